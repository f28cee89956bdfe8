"""Both forms of AUC beyond the zoo: on digits, of huge scores, with noise and cross-entropy."""

import pytest
import support
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

import fcco
from fcco.data import block_loader, exact_pass, exact_value, load_digits
from fcco.objectives import AUC, MultiTaskAUC, one_vs_rest


@pytest.fixture
def problem():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((23, 3), generator=generator, dtype=torch.float64)
    classes = torch.randint(4, (23,), generator=generator)
    model = torch.nn.Linear(3, 4).double()
    return model, x, classes


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
def test_the_margin_is_that_of_the_definition(problem, chunk_size):
    model, x, classes = problem
    objective = MultiTaskAUC(classes, margin=0.8)
    expected = brute_force(model, x, classes, 0.8)
    value = exact_value(model, x, objective, chunk_size=chunk_size)
    assert value == pytest.approx(expected, abs=1e-12)


def test_rows_stay_in_their_domain():
    objective = MultiTaskAUC(torch.tensor([0, 1]))
    u = torch.tensor([[-0.1, 1.2, 0.5, 3.0]])
    assert objective.feasible(u, torch.tensor([0])).tolist() == [[0.0, 1.0, 0.5, 1.0]]


@pytest.mark.parametrize("name", ["sox", "msvrm-v1-age", "msvrm-v2-age", "msvrm-v3-age"])
def test_a_few_steps_raise_the_auc(name):
    """The sign: positives go above negatives, not below."""
    (x, y), _ = load_digits()
    objective = MultiTaskAUC(y)
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 10)
    entry = support.CATALOGUE[name]
    opt = entry.build(model.parameters(), objective, lr=0.3)
    before = objective.metric(model(x))
    if opt.snapshot_due:
        opt.snapshot(exact_pass(model, x, objective))
    loader = block_loader(x, objective, blocks_per_step=5, samples_per_block=64, num_steps=5)
    for batch in loader:
        opt.step(lambda: objective.inner(model, batch))  # noqa: B023
    assert objective.metric(model(x)) > before + 0.05


def balanced_cross_entropy(h, labels):
    entropy = binary_cross_entropy_with_logits(h, labels.double(), reduction="none")
    sides = [entropy[labels[:, k] == side, k].mean() for k in range(4) for side in (0, 1)]
    return sum(sides) / 8


@pytest.mark.parametrize("chunk_size", [23, 4])
def test_the_exponential_form_has_its_share_of_cross_entropy(problem, chunk_size):
    """In ``exact``, and as the mean of ``Probe.loss`` over the samples of all chunks."""
    model, x, classes = problem
    labels = classes[:, None] == torch.arange(4)
    objective = AUC(labels, temperature=0.7, cross_entropy=0.3)
    with torch.no_grad():
        h = model(x)
        extra = 0.3 * balanced_cross_entropy(h, labels)
        expected = AUC(labels, temperature=0.7).exact(h) + extra
        value = exact_value(model, x, objective, chunk_size=chunk_size)
        assert value == pytest.approx(expected.item(), abs=1e-12)
        probes = [call() for call in exact_pass(model, x, objective, chunk_size=chunk_size)]
    losses = sum(probe.loss * probe.samples for probe in probes) / 23
    torch.testing.assert_close(losses, extra, rtol=0, atol=1e-12)


def test_without_its_bound_the_exponential_form_is_the_log_of_the_mean_over_all_pairs(problem):
    model, x, classes = problem
    with torch.no_grad():
        h, labels = model(x), classes[:, None] == torch.arange(4)
        costs = [
            (h[~labels[:, k], k, None] - h[labels[:, k], k]).div(0.7).exp().mean().log() * 0.7
            for k in range(4)
        ]
    value = exact_value(model, x, AUC(labels, temperature=0.7, bounded=False))
    assert value == pytest.approx(sum(costs).item() / 4, abs=1e-12)


@pytest.mark.parametrize("shared", [True, False])
def test_the_exponential_form_reports_its_standard_errors(problem, shared):
    """Of means over n terms: their standard deviation divided by sqrt(n)."""
    model, x, classes = problem
    labels = classes[:, None] == torch.arange(4)
    objective = AUC(labels, temperature=0.7)
    if shared:
        batch = objective.batch(x, torch.arange(23))
    else:
        (batch,) = block_loader(
            x, objective, blocks_per_step=4, samples_per_block=9, num_steps=1, seed=0
        )
    with torch.no_grad():
        probe = objective.inner(model, batch)
        h = model(batch.inputs)
    for row, task in enumerate(probe.blocks):
        if shared:
            own, positive = h[:, task], labels[:, task]
        else:
            own = h[9 * row : 9 * row + 9, task]
            positive = torch.arange(9) < 4
        terms = [(own[~positive] / 0.7).exp(), (-own[positive] / 0.7).exp()]
        expected = [t.std() / len(t) ** 0.5 for t in terms]
        noise = probe.noise[row] * probe.log_scale[row].exp()
        torch.testing.assert_close(noise, torch.stack(expected))


@pytest.mark.parametrize("offset", [-500.0, 0.0, 500.0])
def test_the_exponential_form_of_huge_scores_is_finite_and_points_the_right_way(offset):
    """Scores of +-1000 in the wrong order, in float32; any common offset."""
    x, objective = torch.tensor([[1.0], [-1.0]]), AUC(torch.tensor([0, 1]), cross_entropy=0.1)
    model = torch.nn.Linear(1, 1)
    torch.nn.init.constant_(model.weight, 1000.0)
    torch.nn.init.constant_(model.bias, offset)
    opt = fcco.SOX(model, objective, lr=1.0, alpha=1.0, beta=1.0)
    loader = block_loader(x, objective, blocks_per_step=1, samples_per_block=2, num_steps=3, seed=0)
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


@pytest.mark.parametrize("offset", [0.0, 5.0, -8.0, 30.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("version", [None, 1, 2])
def test_an_offset_of_all_scores_changes_nothing(offset, dtype, version):
    """In every door: u_1 / u_2 is exp(2 offset / T), which float32 cannot hold."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(40, generator=generator).double()
    objective = AUC(torch.arange(40) % 3 == 0, temperature=0.1)
    leaf = scores.clone().requires_grad_()
    value = objective.exact(leaf)
    (slope,) = torch.autograd.grad(value, leaf)
    h = torch.nn.Parameter((scores + offset).to(dtype))
    batch = objective.batch(torch.arange(40).to(dtype), torch.arange(40))
    model = lambda place: h[place.long()].unsqueeze(1)  # noqa: E731
    if version is None:
        criterion = fcco.losses.TableLoss(objective).half().to(dtype)
        found = criterion(objective.inner(model, batch))
        found.backward()
        gradient = h.grad
    else:
        opt = fcco.MSVRM([h], objective, version=version, lr=0.1, updated_slopes=version == 1)
        found = opt.step(lambda: objective.inner(model, batch))
        gradient = opt.state[h]["z"]
    tolerance = 1e-4 if dtype == torch.float32 else 1e-10
    assert found.item() == pytest.approx(value.item(), rel=tolerance)
    close = {"rtol": tolerance, "atol": tolerance * float(slope.abs().max())}
    torch.testing.assert_close(gradient.double(), slope, **close)


@pytest.mark.parametrize("objective", [AUC, MultiTaskAUC])
def test_drawn_samples_have_weights_in_double_precision(objective):
    """Of 3 positives and 4 negatives each counts 1/3 or 1/4 in the mean of its class."""
    labels = torch.arange(60) % 2 == 0
    inputs = torch.randn(60, 3, dtype=torch.float64)
    options = {"blocks_per_step": 1, "samples_per_block": 7, "num_steps": 2, "seed": 0}
    for batch in block_loader(inputs, objective(labels), **options):
        assert batch.weights[batch.weights > 0].tolist() == [1 / 3] * 3 + [1 / 4] * 4
