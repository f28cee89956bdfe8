"""Multi-task AUC against its definition, written as plain loops."""

import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

import fcco
import fcco.testing
from fcco.data import TaskData, exact_pass, exact_value, load_digits
from fcco.losses import AUCLoss
from fcco.metrics import macro_auroc, macro_average_precision
from fcco.objectives import ExponentialAUC, MultiTaskAUC, one_vs_rest


@pytest.fixture
def problem():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((23, 3), generator=generator, dtype=torch.float64)
    classes = torch.randint(4, (23,), generator=generator)
    model = torch.nn.Linear(3, 4).double()
    return model, TaskData.from_classes(x, classes), classes


@torch.no_grad()
def brute_force(model, x, classes, margin):
    """(1/m) sum over tasks of two variances and the squared hinge, by loops over samples."""
    total = 0.0
    for task in range(4):
        scores = {True: [], False: []}
        for row, label in zip(x, classes, strict=True):
            scores[int(label) == task].append(float(torch.sigmoid(model(row)[task])))
        mean = {side: sum(s) / len(s) for side, s in scores.items()}
        spread = sum(sum((h - mean[side]) ** 2 for h in s) / len(s) for side, s in scores.items())
        total += spread + max(margin + mean[False] - mean[True], 0.0) ** 2 / 2
    return total / 4


@pytest.mark.parametrize("chunk_size", [23, 7, 1])
def test_exact_value_is_the_definition(problem, chunk_size):
    model, data, classes = problem
    objective = MultiTaskAUC(4, margin=0.8)
    expected = brute_force(model, data.inputs, classes, 0.8)
    value = exact_value(model, data, objective, chunk_size=chunk_size)
    assert value == pytest.approx(expected, abs=1e-12)


def test_sampled_inner_values_are_unbiased_by_enumeration(problem):
    """The mean over every choice of one positive and one negative is the exact inner value."""
    model, data, classes = problem
    objective = MultiTaskAUC(4)
    (call,) = exact_pass(model, data, objective)
    exact = call().values.detach()
    for task in range(4):
        positive, negative = data.inputs[classes == task], data.inputs[classes != task]
        values = [
            objective.inner(
                model, fcco.TaskBatch(torch.tensor([task]), torch.stack([p, n]), positives=1)
            ).values
            for p in positive
            for n in negative
        ]
        torch.testing.assert_close(torch.cat(values).mean(0), exact[task], rtol=0, atol=1e-12)


def test_gradcheck():
    objective = MultiTaskAUC(4)
    u = torch.rand((5, 4), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda u: objective.outer(u, torch.arange(5)), (u,))


def test_rows_stay_in_their_domain():
    objective = MultiTaskAUC(2)
    u = torch.tensor([[-0.1, 1.2, 0.5, 3.0]])
    assert objective.feasible(u, torch.tensor([0])).tolist() == [[0.0, 1.0, 0.5, 1.0]]


@pytest.mark.parametrize("name", ["sox", "msvrm-v1-age", "msvrm-v2-age", "msvrm-v3-age"])
def test_a_few_steps_raise_the_auc(name):
    """The sign: positives go above negatives, not below."""
    train, _ = load_digits()
    objective = MultiTaskAUC(10)
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 10)
    entry = fcco.testing.CATALOGUE[name]
    opt = entry.build(model.parameters(), objective, lr=0.3)
    with torch.no_grad():
        before = macro_auroc(model(train.inputs), train.labels)
    if opt.snapshot_due:
        opt.snapshot(exact_pass(model, train, objective))
    loader = fcco.data.block_loader(
        train, objective, blocks_per_step=5, samples_per_block=64, num_steps=5
    )
    for batch in loader:
        opt.step(lambda: objective.inner(model, batch))  # noqa: B023
    with torch.no_grad():
        after = macro_auroc(model(train.inputs), train.labels)
    assert after > before + 0.05


def test_metrics_equal_scikit_learn():
    _, test = load_digits()
    scores = torch.randn((len(test), 10), generator=torch.Generator().manual_seed(0))
    auc = macro_auroc(scores, test.labels)
    ap = macro_average_precision(scores, test.labels)
    labels = test.labels.numpy()
    assert auc == pytest.approx(roc_auc_score(labels, scores.numpy(), average="macro"), abs=1e-6)
    assert ap == pytest.approx(
        average_precision_score(labels, scores.numpy(), average="macro"), abs=1e-6
    )


def test_refusals():
    with pytest.raises(ValueError, match="num_tasks"):
        MultiTaskAUC(0)
    with pytest.raises(ValueError, match="margin"):
        MultiTaskAUC(3, margin=0.0)


@pytest.mark.parametrize("chunk_size", [23, 4])
def test_the_exponential_form_is_that_of_the_loss_and_has_its_share_of_cross_entropy(
    problem, chunk_size
):
    model, data, _ = problem
    objective = ExponentialAUC(4, 23, 0.7, cross_entropy=0.3)
    with torch.no_grad():
        h = model(data.inputs)
        entropy = torch.nn.functional.binary_cross_entropy_with_logits(
            h, data.labels.double(), reduction="none"
        )
        balanced = [
            entropy[data.labels[:, k] == side, k].mean() for k in range(4) for side in (0, 1)
        ]
        expected = AUCLoss(data.labels, temperature=0.7).exact(h) + 0.3 * sum(balanced) / 8
    value = exact_value(model, data, objective, chunk_size=chunk_size)
    assert value == pytest.approx(expected.item(), abs=1e-12)


def test_without_its_bound_the_exponential_form_is_the_log_of_the_mean_over_all_pairs(problem):
    model, data, _ = problem
    with torch.no_grad():
        h, labels = model(data.inputs), data.labels
        costs = [
            (h[~labels[:, k], k, None] - h[labels[:, k], k]).div(0.7).exp().mean().log() * 0.7
            for k in range(4)
        ]
    value = exact_value(model, data, ExponentialAUC(4, 23, 0.7, bounded=False))
    assert value == pytest.approx(sum(costs).item() / 4, abs=1e-12)


@pytest.mark.parametrize("shared", [True, False])
def test_the_exponential_form_reports_its_standard_errors(problem, shared):
    """Of means over n terms: their standard deviation divided by sqrt(n)."""
    model, data, _ = problem
    if shared:
        batch = data.batch(torch.arange(23))
    else:
        loader = fcco.data.block_loader(
            data, MultiTaskAUC(4), blocks_per_step=4, samples_per_block=9, num_steps=1, seed=0
        )
        (batch,) = loader
    with torch.no_grad():
        probe = ExponentialAUC(4, 23, 0.7).inner(model, batch)
        h = model(batch.inputs)
    for row, task in enumerate(probe.blocks):
        if shared:
            own, positive = h[:, task], batch.positive[:, row] == 1
        else:
            own = h[9 * row : 9 * row + 9, task]
            positive = torch.arange(9) < batch.positives
        terms = [(own[~positive] / 0.7).exp(), (-own[positive] / 0.7).exp()]
        expected = [t.std() / len(t) ** 0.5 for t in terms]
        noise = probe.noise[row] * probe.log_scale[row].exp()
        torch.testing.assert_close(noise, torch.stack(expected))


@pytest.mark.parametrize("offset", [-500.0, 0.0, 500.0])
def test_the_exponential_form_of_huge_scores_is_finite_and_points_the_right_way(offset):
    """Scores of +-1000 in the wrong order, in float32; any common offset."""
    data = TaskData.binary(torch.tensor([[1.0], [-1.0]]), torch.tensor([0, 1]))
    model = torch.nn.Linear(1, 1)
    torch.nn.init.constant_(model.weight, 1000.0)
    torch.nn.init.constant_(model.bias, offset)
    objective = ExponentialAUC(1, 2, cross_entropy=0.1)
    opt = fcco.SOX(model, objective, lr=1.0, alpha=1.0, beta=1.0)
    loader = fcco.data.block_loader(
        data, objective, blocks_per_step=1, samples_per_block=2, num_steps=3, seed=0
    )
    for batch in loader:
        value = opt.step(lambda batch=batch: objective.inner(model, batch))
        assert value.isfinite()
    assert model.weight.item() < 999


def test_log_odds_of_huge_logits_are_exact_and_have_gradients():
    logits = torch.tensor([[900.0, 0.0, -3.0], [1.0, 1.0, -50.0]], requires_grad=True)
    odds = one_vs_rest(logits)
    rest = [torch.cat([logits[:, :k], logits[:, k + 1 :]], 1).logsumexp(1) for k in range(3)]
    torch.testing.assert_close(odds, logits - torch.stack(rest, 1))
    odds.sum().backward()
    assert logits.grad.isfinite().all()
