"""Missing labels count for nothing; a task that lacks a class leaves the mean and keeps its id."""

import math

import pytest
import torch
from torch import nn

import fcco
from fcco import losses as L
from fcco import objectives as O
from fcco.data import block_loader, exact_pass, exact_value
from fcco.updates import Normalized

COUNT, TASKS = 30, 5
GENERATOR = torch.Generator().manual_seed(2)
X = torch.randn((COUNT, 4), generator=GENERATOR, dtype=torch.float64)
LABELS = torch.randint(2, (COUNT, TASKS), generator=GENERATOR)
LABELS[torch.rand((COUNT, TASKS), generator=GENERATOR) < 0.2] = -1
LABELS[:, 1] = LABELS[:, 1].clamp(max=0)  # no positive
LABELS[:, 3] = LABELS[:, 3].abs().masked_fill(LABELS[:, 3] == 0, -1)  # no negative
KEPT = torch.tensor([0, 2, 4])

KINDS = {
    "multi-task auc": O.MultiTaskAUC,
    "multi-task gap": O.MultiTaskGap,
    "auc": lambda labels: O.AUC(labels, cross_entropy=0.5),
    "unbounded auc": lambda labels: O.AUC(labels, bounded=False),
    "ap": O.AveragePrecision,
    "partial auc": lambda labels: O.PartialAUC(labels, temperature=0.5),
    "sensitive": lambda labels: O.PartialAUC(labels, temperature=0.5, min_tpr=0.5),
    "push": O.PNormPush,
}
TASKWISE = ["multi-task auc", "multi-task gap", "auc", "unbounded auc"]
every = pytest.mark.parametrize("name", KINDS)


def model_of(seed=0):
    torch.manual_seed(seed)
    return nn.Linear(4, TASKS).double()


def reference(name):
    """The objective of the three tasks that count."""
    return KINDS[name](LABELS[:, KEPT])


@every
def test_a_task_that_lacks_a_class_leaves_the_mean(name):
    objective, model = KINDS[name](LABELS), model_of()
    three = reference(name)
    h = model(X).detach()
    leaf, other = h.clone().requires_grad_(), h[:, KEPT].clone().requires_grad_()
    value, expected = objective.exact(leaf), three.exact(other)
    assert value.item() == pytest.approx(expected.item(), abs=1e-13)
    (gradient,), (wanted,) = torch.autograd.grad(value, leaf), torch.autograd.grad(expected, other)
    torch.testing.assert_close(gradient[:, KEPT], wanted, rtol=1e-12, atol=1e-14)
    assert not gradient[:, [1, 3]].any()
    assert not gradient[LABELS < 0].any()
    assert objective.metric(h) == pytest.approx(three.metric(h[:, KEPT]), abs=1e-13)
    # By chunks, too: an exact pass with any number of samples, or blocks, at a time.
    for size in (4, 1000):
        assert mean_over_chunks(objective, model, size) == pytest.approx(value.item(), abs=1e-11)


def mean_over_chunks(objective, model, size):
    rows = torch.zeros(objective.num_blocks, objective.inner_dim, dtype=torch.float64)
    counts, loss = torch.zeros(objective.num_blocks, 1, dtype=torch.float64), 0.0
    with torch.no_grad():
        for call in exact_pass(model, X, objective, chunk_size=size):
            probe = call()
            values, samples = probe.values, probe.samples_per_row().unsqueeze(1).double()
            if probe.log_scale is not None:
                values = values * probe.log_scale.exp().unsqueeze(1)
            rows.index_add_(0, probe.blocks, values * samples)
            counts.index_add_(0, probe.blocks, samples)
            loss += 0 if probe.loss is None else float(probe.loss) * probe.samples / COUNT
        blocks = torch.arange(objective.num_blocks)
        feasible = objective.feasible(rows / counts, blocks)
        return objective.outer(feasible, blocks).mean().item() + loss


def test_scores_of_a_task_without_a_class_may_be_huge():
    """Their exponentials overflow, and they count for nothing all the same."""
    criterion = L.AUCLoss([[1, 1], [0, 1]], temperature=0.01)
    scores = torch.tensor([[0.0, 10.0], [0.0, 0.0]], requires_grad=True)
    loss = criterion(scores, torch.arange(2))
    loss.backward()
    assert loss.item() == pytest.approx(0.01 * math.log(2))
    assert scores.grad.tolist() == [[-0.5, 0.0], [0.5, 0.0]]


def test_scores_may_be_huge_before_the_first_negative():
    criterion = L.AUCLoss([[1, 1], [0, 1], [1, 0], [0, 0]], temperature=0.1).double()
    scores = [[0.0, 80.0], [0.0, 75.0], [0.1, 75.2], [0.2, 74.9]]
    scores = torch.tensor(scores, dtype=torch.float64)
    first = scores[:2].requires_grad_()
    loss = criterion(first, torch.arange(2))
    loss.backward()
    assert loss.item() == pytest.approx(0.1 * math.log(2))
    assert first.grad.tolist() == [[-0.5, 0.0], [0.5, 0.0]]
    found = criterion(scores[2:], torch.arange(2, 4)).item()
    tasks = ([0.0, 0.1], [0.0, 0.2]), ([80.0, 75.0], [75.2, 74.9])
    sums = [sum(math.exp((b - a) / 0.1) for a in p for b in n) for p, n in tasks]
    expected = [0.1 * math.log(1 + total / 4) for total in sums]
    assert found == pytest.approx(sum(expected) / 2, rel=1e-12)


@pytest.mark.parametrize("name", TASKWISE)
def test_blocks_are_columns(name):
    objective = KINDS[name](LABELS)
    assert (objective.num_blocks, objective.num_tasks) == (TASKS, TASKS)
    loader = block_loader(X, objective, blocks_per_step=3, samples_per_block=4, num_steps=50)
    model, seen = model_of(), set()
    for batch in loader:
        assert torch.equal(batch.columns, batch.blocks)
        seen |= set(batch.blocks.tolist())
        drawn = loader.sampler.at(loader.sampler.step)
        rows = drawn.inputs[drawn.partners]
        counted = batch.weights.sum(0) > 0
        assert torch.equal(counted.all(1), torch.isin(batch.blocks, KEPT))
        kinds = LABELS[rows, batch.blocks[:, None]]
        positive, negative = batch.weights > 0
        assert (kinds[positive] == 1).all()
        assert (kinds[negative] == 0).all()
        probe = objective.inner(model, batch)
        assert not probe.values[~torch.isin(batch.blocks, KEPT)].any()
    assert seen == set(range(TASKS))
    assert objective.batch(X, range(COUNT)).blocks.tolist() == KEPT.tolist()


@pytest.mark.parametrize("name", [name for name in KINDS if name not in TASKWISE])
def test_anchors_of_the_tasks_that_count_are_blocks(name):
    objective = KINDS[name](LABELS)
    three = reference(name)
    assert objective.num_blocks == three.num_blocks
    assert torch.equal(objective.columns, KEPT[three.columns])
    assert torch.equal(objective.anchors, three.anchors)
    for batch in block_loader(X, objective, blocks_per_step=4, samples_per_block=6, num_steps=30):
        assert torch.equal(batch.columns, objective.columns[batch.blocks])


@pytest.mark.sweep(3)
@every
@pytest.mark.parametrize("optimizer", ["sox", "v3", "v3 in chunks"])
def test_optimizers_follow_the_mean_over_the_tasks_that_count(name, optimizer):
    """The exact gradient, and in steps that draw blocks that do not count nothing breaks."""
    objective, model = KINDS[name](LABELS), model_of()
    expected = torch.autograd.grad(objective.exact(model(X)), list(model.parameters()))
    if optimizer == "sox":
        opt = fcco.SOX(
            model.parameters(), objective, lr=0.01, alpha=1.0, beta=1.0, update=Normalized()
        )
        [everything] = exact_pass(model, X, objective)
        value = opt.step(everything)
        found = [opt.state[p]["z"] for p in model.parameters()]
        if name != "auc":  # whose ordinary loss is not part of the value
            start = exact_value(model_of(), X, objective)
            assert value.item() == pytest.approx(start, abs=1e-9)
    else:
        opt = fcco.MSVRM(
            model.parameters(), objective, version=3, lr=0.01, alpha=0.5, beta=0.5,
            update=Normalized(),
        )  # fmt: skip
        size = 7 if "chunks" in optimizer else 1000
        opt.snapshot(exact_pass(model, X, objective, chunk_size=size))
        found = [opt.state[p]["anchor"] for p in model.parameters()]
    for z, gradient in zip(found, expected, strict=True):
        torch.testing.assert_close(z, gradient, rtol=1e-9, atol=1e-12)
        assert not z[[1, 3]].any()
    before, untouched = exact_value(model, X, objective), model.weight[[1, 3]].detach().clone()
    blocks = min(3, objective.num_blocks)
    loader = block_loader(X, objective, blocks_per_step=blocks, samples_per_block=8, num_steps=20)
    for batch in loader:
        opt.step(lambda: objective.inner(model, batch))  # noqa: B023
    assert exact_value(model, X, objective) < before
    assert torch.equal(model.weight[[1, 3]], untouched)


@every
def test_what_a_missing_label_would_have_been_does_not_matter(name):
    """-1 and NaN are the same, in floats and integers."""
    h = model_of()(X).detach()
    values = [
        KINDS[name](labels).exact(h)
        for labels in (
            LABELS,
            LABELS.double(),
            LABELS.float().masked_fill(LABELS < 0, torch.nan),
            LABELS.numpy().astype("i1"),
            LABELS.tolist(),
        )
    ]
    assert all(value.equal(values[0]) for value in values)


def test_one_task_may_lack_labels_too():
    labels = torch.tensor([1, -1, 0, -1, 1])
    h = torch.tensor([1.0, 9.0, 2.0, -9.0, 3.0], dtype=torch.float64)
    kept = [0, 2, 4]
    for kind in (O.AUC, O.AveragePrecision, O.PNormPush):
        expected = kind(labels[kept]).exact(h[kept])
        torch.testing.assert_close(kind(labels).exact(h), expected, rtol=1e-13, atol=0)
        assert kind(labels).metric(h) == kind(labels[kept]).metric(h[kept])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.ones(4), "no task has both a positive and a negative sample: negatives are 0, and"),
        (torch.zeros(4), "no task has both a positive and a negative sample$"),
        (torch.full((4,), torch.nan), "no task has both a positive and a negative sample"),
        (torch.tensor([[1, 0], [1, 0], [-1, 0]]), "no task has both a positive and a negative"),
        (torch.tensor([1, -1, 1, -1]), ".*negatives are 0, and -1 is a missing label"),
    ],
)
@every
def test_without_any_task_there_is_nothing_to_learn(name, labels, message):
    if name in ("multi-task auc", "multi-task gap") and labels.ndim == 1:
        labels = labels.unsqueeze(1)
    with pytest.raises(ValueError, match=f"labels: {message}"):
        KINDS[name](labels)


def test_classes_without_samples_keep_their_ids():
    """Classes 0, 2 and 4 of five: block 4 is class 4, and its column is the fifth."""
    classes = torch.tensor([0, 2, 4, 2, 0, 4, 4])
    objective = O.MultiTaskAUC(classes)
    assert objective.num_blocks == 5
    h = torch.randn((7, 5), generator=GENERATOR, dtype=torch.float64)
    three = O.MultiTaskAUC(classes // 2).exact(h[:, [0, 2, 4]])
    torch.testing.assert_close(objective.exact(h), three, rtol=1e-13, atol=0)
    assert objective.batch(torch.zeros(7, 1), range(7)).blocks.tolist() == [0, 2, 4]


def test_other_data_may_lack_the_last_class():
    objective = O.MultiTaskAUC(torch.tensor([0, 1, 2, 0, 1, 2]))
    other = objective.on(torch.tensor([0, 1, 0, 1]))
    assert other.num_tasks == 3
    scores = torch.randn(4, 3, dtype=torch.float64)
    expected = O.MultiTaskAUC(torch.tensor([0, 1, 0, 1])).exact(scores[:, :2])
    torch.testing.assert_close(other.exact(scores), expected)


@pytest.mark.parametrize("call", [
    lambda: O.Cox(10, 20, 1),
    lambda: O.MultiTaskAUC(num_tasks=10),
    lambda: O.GroupDRO(num_groups=5),
    lambda: O.GlobalContrastive(9, temperature=0.1, individual=True),
    lambda: O.PartialAUC(torch.tensor([0, 1])),
])  # fmt: skip
def test_other_arguments_are_answered_by_those_that_it_takes(call):
    with pytest.raises(TypeError, match=r"Since 0.3 objectives are built from .*\(.*\)"):
        call()


def test_half_a_subclass_is_refused():
    with pytest.raises(TypeError, match="redefines outer but not _value"):

        class Other(O.MultiTaskAUC):
            def outer(self, u, blocks):
                return 100 + u[:, 0]
