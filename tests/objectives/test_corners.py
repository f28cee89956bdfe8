"""Corners that a review found: each gave a wrong number, an overflow or a silent loss."""

import copy
import math

import numpy as np
import pytest
import torch
from losses import criteria
from objectives import zoo
from torch import nn

import fcco
from fcco import data as D
from fcco import objectives as O
from fcco.objectives.multi_task import class_moments
from fcco.problem import slope
from fcco.problem.draws import draw

X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.rand(60, 3, generator=torch.Generator().manual_seed(1)) < 0.4


def test_tasks_without_a_positive_in_the_batch_are_left_out():
    labels = torch.zeros(60, 2, dtype=torch.bool)
    labels[::2, 0], labels[50, 1] = True, True
    objective = O.MultiTaskAUC(labels)
    probe = objective.inner(nn.Linear(3, 2).double(), objective.batch(X[:9], torch.arange(9)))
    assert probe.blocks.tolist() == [0]


def test_group_means_of_bfloat16_do_not_saturate():
    batch = fcco.GroupBatch(
        torch.tensor([0]),
        torch.zeros(3000, 1),
        owner=torch.zeros(3000, dtype=torch.int64),
        counts=torch.tensor([3000]),
    )
    assert batch.mean(torch.ones(3000, dtype=torch.bfloat16)).item() == 1.0


def test_monitoring_leaves_no_trace():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 3)
    ).double()
    before, state = torch.get_rng_state(), copy.deepcopy(model.state_dict())
    D.exact_value(model, X, O.MultiTaskAUC(LABELS), chunk_size=20)
    assert torch.equal(torch.get_rng_state(), before)
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name])


def test_chunks_of_an_exact_pass_are_made_when_they_are_called(monkeypatch):
    objective, made = O.NCA(LABELS[:, 0].long()), []
    chunk = objective.chunk
    monkeypatch.setattr(objective, "chunk", lambda span: made.append(1) or chunk(span))
    closures = D.exact_pass(nn.Linear(3, 2).double(), X, objective, chunk_size=10)
    assert (len(closures), made) == (6, [])
    closures[0]()
    assert made == [1]


def test_arrays_are_as_good_as_tensors():
    model, objective = nn.Linear(3, 3).double(), O.MultiTaskAUC(LABELS)
    arrays = D.exact_value(model, X.numpy(), O.MultiTaskAUC(LABELS.numpy()))
    assert arrays == D.exact_value(model, X, objective)
    h = torch.randn(60, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    count, some = torch.arange(60), LABELS[:, 0]
    for of_arrays, of_tensors in (
        (O.Cox(np.arange(60.0), some.numpy()), O.Cox(count.double(), some)),
        (O.Cox(count.tolist(), some.tolist()), O.Cox(count, some)),
        (O.NDCG(np.arange(60) % 3, np.full(6, 10)), O.NDCG(count % 3, torch.full((6,), 10))),
        (O.AUC(some.numpy().astype("f4")), O.AUC(some)),
    ):
        assert of_arrays.exact(h).equal(of_tensors.exact(h))
        assert of_arrays.exact(h.numpy()).equal(of_tensors.exact(h))
    points, classes = torch.stack([h, -h], dim=1), count % 3
    nca = O.NCA(classes)
    assert nca.exact(points.numpy()).equal(nca.exact(points))
    pairs = O.GlobalContrastive(60, temperature=0.5)
    assert pairs.exact(points.numpy(), X.numpy()[:, :2]).equal(pairs.exact(points, X[:, :2]))
    groups = O.GroupDRO(np.arange(60) % 3, np.zeros(60, dtype=np.int64), temperature=1.0)
    assert groups.sizes.tolist() == [20] * 3


def test_cosines_keep_their_digits_under_autocast():
    objective = O.GlobalContrastive(6, temperature=0.01)
    batch = objective.batch((X[:6].float(), X[6:12].float()), torch.arange(6))
    plain = objective.inner(nn.Identity(), batch)
    with torch.autocast("cpu", torch.bfloat16):
        inside = objective.inner(nn.Identity(), batch)
    assert inside.values.equal(plain.values)


NUMBERED = {
    "auc": lambda t: O.AUC(zoo.MISSING, temperature=t, cross_entropy=t),
    "auc multi-class": lambda t: O.MultiTaskAUC(zoo.CLASSES, margin=t),
    "two-way partial auc": lambda t: O.PartialAUC(zoo.Y, temperature=t, two_way=t, max_fpr=t / 4),
    "p-norm push": lambda t: O.PNormPush(zoo.Y, power=t, surrogate=O.Sigmoid(t)),
    "ndcg": lambda t: O.NDCG(zoo.GRADES, zoo.LENGTHS, top_k=t, softness=t),
    "dro": lambda t: O.DRO(9, temperature=t),
    "cvar": lambda t: O.CVaR(9, fraction=t / 4),
    "nca": lambda t: O.NCA(zoo.CLASSES, temperature=t, logarithm=True, eps=t),
    "contrastive": lambda t: O.GlobalContrastive(9, temperature=t, eps=t),
    "contrastive, learned": lambda t: O.GlobalContrastive(
        9, temperature=t, learned="individual", radius=t
    ),
    "group dro": lambda t: O.GroupDRO(zoo.GROUPS, zoo.TARGETS, temperature=t),
    "group cvar": lambda t: O.GroupCVaR(zoo.GROUPS, zoo.TARGETS, fraction=t / 4, temperature=t),
    "bags": lambda t: O.SoftmaxPooling(zoo.GROUPS, zoo.BAG_LABELS, temperature=t),
    "penalty": lambda t: O.ConstraintPenalty(
        zoo.GROUPS, constraint=lambda h, y, block: h[:, 0], penalty=t
    ),
}  # fmt: skip
NUMBERS = [2, np.float32(2), np.int64(2), np.uint8(2), torch.tensor(2), torch.tensor(2.0)]


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
@pytest.mark.parametrize("name", NUMBERED)
def test_a_setting_is_a_number_of_any_type(name, number):
    objective, same = NUMBERED[name](number), NUMBERED[name](2.0)
    outputs = {"auc": 2, "auc multi-class": 3, "group dro": 2, "group cvar": 2, "nca": 2}
    model = nn.Linear(3, 2 if same.num_views == 2 else outputs.get(name, 1)).double()
    inputs = (zoo.X, zoo.Z) if same.num_views == 2 else zoo.X
    assert D.exact_value(model, inputs, objective) == D.exact_value(model, inputs, same)
    probes = [each.inner(model, each.batch(inputs, range(9))) for each in (objective, same)]
    assert probes[0].values.equal(probes[1].values)
    assert probes[0].values.dtype == torch.float64


@pytest.mark.parametrize("count", [9, np.int64(9), np.uint8(200), torch.tensor(9)], ids=repr)
@pytest.mark.parametrize(("build", "blocks"), [
    (lambda n: O.DRO(n, temperature=1), lambda n: 1),
    (lambda n: O.CVaR(n, fraction=1), lambda n: 1),
    (lambda n: O.GlobalContrastive(n, temperature=1), lambda n: 2 * n),
    (lambda n: O.GlobalContrastive(n, temperature=1, two_way=False), lambda n: n),
    (O.IWAE, lambda n: n),
])  # fmt: skip
def test_a_count_is_a_whole_number_of_any_type(build, blocks, count):
    for objective in (build(count), build(3).on(count)):
        sizes = objective.num_samples, objective.num_blocks
        assert sizes == (int(count), blocks(int(count)))
        assert all(type(size) is int for size in sizes)


@pytest.mark.parametrize("least", [np.float32(0.5), torch.tensor(0.5)], ids=repr)
def test_shares_and_counts_of_latent_samples_are_numbers_of_any_type(least):
    objective = O.IWAE(3, least_share=least, exact_samples=torch.tensor(7))
    assert (objective.inner_size, objective.exact_samples) == (2, 7)


@pytest.mark.parametrize("case", criteria.CASES, ids=str)
def test_an_empty_first_batch_has_the_value_zero(case):
    criterion, scores = case.criterion(), case.scores(scale=0.5).requires_grad_()
    loss = criterion(scores[:0], torch.zeros(0, dtype=torch.int64))
    loss.backward()
    assert loss.item() == 0
    assert not scores.grad.any()
    everyone = criterion(scores, torch.arange(case.size)).item()
    assert everyone == pytest.approx(case.value(scores.detach()), rel=1e-6)


def test_parameters_of_an_objective_resume_with_it():
    """The guide's checkpoint, with the objective's state beside the model's, is bit-exact."""

    def make():
        torch.manual_seed(0)
        model = nn.Linear(3, 2).double()
        objective = O.GroupCVaR(torch.arange(60) % 3, LABELS[:, 0].long(), fraction=0.5).double()
        params = [*model.parameters(), *objective.parameters()]
        opt = fcco.SOX(params, objective, lr=0.1, alpha=0.5, beta=0.5, updated_slopes=True)
        loader = D.block_loader(X, objective, blocks_per_step=2, samples_per_block=4, num_steps=20)
        return model, objective, opt, loader

    def run(model, objective, opt, loader, stop=None):
        for batch in loader:
            opt.step(lambda: objective.inner(model, batch))  # noqa: B023
            if loader.sampler.step == stop:
                break
        return [p.detach().clone() for p in (*model.parameters(), *objective.parameters())]

    whole = run(*make())
    first = make()
    run(*first, stop=9)
    saved = [copy.deepcopy(part.state_dict()) for part in first]
    second = make()
    for part, state in zip(second, saved, strict=True):
        part.load_state_dict(state)
    for resumed, straight in zip(run(*second), whole, strict=True):
        assert torch.equal(resumed, straight)


def test_a_temperature_below_its_bound_can_come_back():
    objective = O.GlobalContrastive(10, temperature=0.5, learned="individual")
    with torch.no_grad():
        objective.temperatures.fill_(0.01)
    temperatures = objective._temperature(torch.arange(3))
    assert temperatures.flatten().tolist() == pytest.approx([0.05] * 3)
    temperatures.sum().backward()
    assert objective.temperatures.grad[:3].tolist() == [1.0] * 3


def test_nca_survives_samples_of_the_point_itself():
    """A point that met nobody else has a row of zeros: 0/0 in f, and no exponent to scale by."""
    torch.manual_seed(0)
    x, objective = X[:4], O.NCA(torch.tensor([0, 0, 1, 1]), logarithm=True)
    model = nn.Linear(3, 2).double()
    opt = fcco.SOX(model.parameters(), objective, lr=0.01, alpha=0.5, beta=0.5)
    loader = D.block_loader(x, objective, blocks_per_step=2, samples_per_block=1, num_steps=200)
    before, alone = D.exact_value(model, x, objective), 0
    for batch in loader:
        [partner] = batch.inputs[batch.partners]  # of both blocks
        met_itself = (batch.inputs[batch.anchors] == partner).all(1)
        probe = objective.inner(model, batch)
        assert torch.equal((probe.values == 0).all(1), met_itself)
        value = opt.step(lambda: objective.inner(model, batch))  # noqa: B023
        assert 0 <= value <= -math.log(objective.eps) + 1e-9
        alone += int(met_itself.sum())
    assert alone > 50
    assert D.exact_value(model, x, objective) < before - 0.3


def test_paired_halves_have_the_same_mean_also_without_replacement():
    """Floyd's sets come in a fixed order; the halves of a row must not differ for it."""
    spread = torch.rand(20000, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn = draw(spread, torch.full((20000,), 6), replacement=False).double()
    torch.testing.assert_close(
        drawn.mean(0), torch.full((4,), 2.5, dtype=torch.float64), atol=0.05, rtol=0
    )
    assert (drawn.sort(1).values.diff(dim=1) > 0).all()


def test_push_with_pairs_feeds_the_fresh_pair():
    labels = LABELS[:, 0]
    objective, plainly = (O.PNormPush(labels, power=2.0, paired=pair) for pair in (True, False))
    model = nn.Linear(3, 1).double()
    opt = fcco.FreshPair(model.parameters(), objective, version=1, lr=0.01, alpha=0.5)
    loader = D.block_loader(X, objective, blocks_per_step=4, samples_per_block=6, num_steps=5)
    for batch in loader:
        probe = objective.inner(model, batch)
        plain = plainly.inner(model, batch)
        torch.testing.assert_close((probe.values + probe.pair) / 2, plain.values)
        opt.step(lambda: objective.inner(model, batch))  # noqa: B023


def test_precision_stays_a_share_for_any_surrogate():
    objective = O.AveragePrecision(torch.arange(10) < 3, surrogate=O.SquaredHinge(margin=2.0))
    wild = 3 * torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    value = objective.outer(
        objective.feasible(wild, torch.zeros(200).long()), torch.zeros(200).long()
    )
    assert ((value <= 0) & (value >= -1)).all()


def test_fused_moments_have_the_derivatives_of_the_plain_formula():
    """Reverse and forward mode, with missing labels."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(7, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    positive = (torch.rand(7, 3, generator=generator) < 0.4).double()
    negative = (1 - positive) * (torch.rand(7, 3, generator=generator) < 0.8).double()
    scale = torch.rand(2, 1, 3, generator=generator, dtype=torch.float64)
    weights = scale * torch.stack([positive, negative])

    def plain(x):
        h = torch.sigmoid(x)
        columns = [(part * h**power).sum(0) for power in (1, 2) for part in weights]
        return torch.stack(columns, 1)

    def fused(x):
        return class_moments(x, weights)

    torch.testing.assert_close(fused(logits), plain(logits), rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(fused, (logits,), check_forward_ad=True)


def test_a_closed_slope_is_the_derivative():
    u = torch.rand(20, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    blocks, objective = torch.zeros(20).long(), O.MultiTaskAUC(torch.arange(2) > 0, margin=0.4)
    expected = slope(lambda rows: objective.outer(rows, blocks), u)
    torch.testing.assert_close(objective.outer_slope(u, blocks), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "objective",
    [
        O.NDCG(torch.tensor([2, 0, 1, 3, 1]), torch.tensor([3, 2])),
        O.NDCG(torch.tensor([2, 0, 1, 3, 1]), torch.tensor([3, 2]), top_k=2),
        O.AveragePrecision(torch.arange(10) < 4),
        O.AveragePrecision(torch.arange(10)[:, None] < torch.tensor([1, 3])),
        O.MultiTaskAUC(torch.arange(10)[:, None] < torch.tensor([1, 3, 10, 5])),
    ],
    ids=["ndcg", "ndcg at 2", "ap", "map", "auc, a task without negatives"],
)
def test_slopes_in_closed_form_are_those_of_outer(objective):
    blocks = torch.tensor([2, 0, 3])
    generator = torch.Generator().manual_seed(0)
    u = torch.rand(3, objective.inner_dim, generator=generator, dtype=torch.float64) + 0.2
    u.requires_grad_()
    (expected,) = torch.autograd.grad(objective.outer(u, blocks).sum(), u)
    torch.testing.assert_close(objective.outer_slope(u, blocks), expected, rtol=1e-12, atol=1e-12)
    lacking = isinstance(objective, O.MultiTaskAUC)  # block 2 does not count
    assert (expected.abs().amin(1) > 0).tolist() == [not lacking, True, True]


def test_a_single_point_on_a_batch_that_tasks_share():
    """The derivative along the last move, against one by differences."""
    torch.manual_seed(0)
    x, objective = torch.randn(40, 5, dtype=torch.float64), O.MultiTaskAUC(torch.rand(40, 3) < 0.4)
    batch = objective.batch(x, torch.arange(40))
    model = torch.nn.Linear(5, 3).double()
    opt = fcco.MSVRM(
        model.parameters(),
        objective,
        version=1,
        single_point=True,
        lr=0.03,
        alpha=0.5,
        beta=0.5,
        gamma=0.7,
    )
    opt.step(lambda: objective.inner(model, batch))
    before, blocks = objective.inner(model, batch).values.detach(), torch.arange(3)
    old, start = (
        opt.table.read(blocks),
        [opt.state[p]["previous"].clone() for p in model.parameters()],
    )
    opt.step(lambda: objective.inner(model, batch))
    with torch.no_grad():
        other = torch.nn.Linear(5, 3).double()
        for p, q in zip(other.parameters(), start, strict=True):
            p.copy_(q)
        change = before - objective.inner(other, batch).values
    expected = 0.5 * old + 0.5 * before + 0.7 * change
    torch.testing.assert_close(opt.table.read(blocks), expected, rtol=0, atol=1e-6)
    assert (0.7 * change).abs().max() > 1e-4
