"""Row losses: the step of SOX with slopes at u_t, for any torch optimizer."""

import copy
import io
import math

import pytest
import torch
from losses.row_criteria import CASES, CLASSES, HEAT, N, X, Y, generator, model
from objectives import zoo
from torch import nn
from torch.nn.functional import normalize
from torch.utils.checkpoint import checkpoint

import fcco
from fcco import losses as L
from fcco import objectives as O
from fcco.losses.merge import merge
from fcco.problem import Probe

# Calls in eval mode and without gradients are what these tests are about; they warn.
pytestmark = pytest.mark.filterwarnings("ignore:.*it is not a validation loss")


def steps(seed=0, passes=2, size=8):
    drawn = generator(seed)
    for _ in range(passes):
        yield from torch.randperm(N, generator=drawn).tensor_split(N // size)


def train(criterion, network, case, indices, lr=0.05):
    optimizer = torch.optim.Adam([*network.parameters(), *criterion.parameters()], lr)
    values = []
    for index in indices:
        loss = case.call(criterion, network, index)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    return values, optimizer


# The step -----------------------------------------------------------------------------------------


@pytest.mark.sweep(3)
@pytest.mark.parametrize("case", zoo.CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("rule", [torch.optim.AdamW, torch.optim.SGD], ids=["adamw", "sgd"])
def test_a_table_loss_is_the_step_of_sox(case, rule):
    """Bit by bit."""
    objective, twin = (copy.deepcopy(case.objective) for _ in range(2))
    batches = fcco.data.block_loader(
        case.inputs,
        objective,
        blocks_per_step=min(objective.num_blocks, 3),
        samples_per_block=max(case.samples, 4),
        num_steps=8,
        seed=3,
    )
    first, second = case.model(), case.model()
    for problem in (objective, twin):
        if isinstance(problem, nn.Module):
            problem.double()

    def parameters(network, problem):
        own = list(problem.parameters()) if isinstance(problem, nn.Module) else []
        return [*network.parameters(), *own]

    criterion = L.TableLoss(objective, beta=0.3).double()
    mine = rule(parameters(first, objective), lr=0.05)
    theirs = rule(parameters(second, twin), lr=0.05)
    sox = fcco.SOX(parameters(second, twin), twin, lr=0.0, alpha=1.0, beta=0.3, updated_slopes=True)
    for batch in batches:
        loss = criterion(objective.inner(first, batch))
        mine.zero_grad()
        loss.backward()
        expected = sox.estimate(lambda batch=batch: twin.inner(second, batch))
        assert loss.item() == expected.item()
        for p, q in zip(parameters(first, objective), parameters(second, twin), strict=True):
            assert (torch.zeros_like(p) if p.grad is None else p.grad).equal(q.grad)
        mine.step()
        theirs.step()
    everyone = torch.arange(objective.num_blocks)
    assert criterion.read(everyone).equal(sox.table.read(everyone))
    for p, q in zip(parameters(first, objective), parameters(second, twin), strict=True):
        assert p.equal(q)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_value_is_that_of_plain_loops(case):
    """u_t = (1 - beta) u_{t-1} + beta g, the mean of f(u_t); and a table that says the same."""
    criterion, network, table = case.criterion(beta=0.25), model(), {}
    for t, index in enumerate(steps(passes=3, size=7)):
        loss = case.call(criterion, network, index)
        fresh = case.values(network, index.tolist())
        for block, value in fresh.items():
            old = table.get(block, value)
            table[block] = [0.75 * a + 0.25 * b for a, b in zip(old, value, strict=True)]
        expected = sum(case.outer(table[block], block) for block in fresh) / len(fresh)
        assert loss.item() == pytest.approx(expected, rel=1e-9), t
        with torch.no_grad():
            for p in network.parameters():
                p.mul_(1.02)
    blocks = torch.tensor(sorted(table))
    expected = torch.tensor([table[int(b)] for b in blocks], dtype=torch.float64)
    torch.testing.assert_close(criterion.read(blocks), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_gradient_is_that_of_the_batch_at_a_first_visit(case):
    """Then u_t = g, and the loss is a plain function of the batch: finite differences of loops."""
    network, index = model(), torch.tensor([3, 20, 8, 11, 5])
    loss = case.call(case.criterion(), network, index)
    weight = network[2].weight
    (gradient,) = torch.autograd.grad(loss, weight)

    def value():
        rows = case.values(network, index.tolist())
        return sum(case.outer(u, i) for i, u in rows.items()) / len(rows)

    for place in ((0, 0), (1, 4), (4, 7)):
        with torch.no_grad():
            weight[place] += 1e-6
            above = value()
            weight[place] -= 2e-6
            below = value()
            weight[place] += 1e-6
        assert gradient[place].item() == pytest.approx((above - below) / 2e-6, rel=1e-5, abs=1e-8)


def test_a_probe_brings_an_ordinary_loss_along():
    criterion, w = (
        L.TableLoss(O.GroupDRO(torch.arange(3), temperature=1.0)),
        torch.ones(2, 1, requires_grad=True),
    )
    loss = criterion(Probe(torch.tensor([0, 2]), w, loss=w.square().sum()))
    assert loss.item() == pytest.approx(math.e - 1)
    loss.backward()
    torch.testing.assert_close(w.grad, torch.full((2, 1), math.e / 2 + 2))


def test_beta_may_be_changed_and_is_checked():
    criterion = L.GroupDROLoss(2, temperature=1.0, beta=1.0)
    for beta, cost, expected in ((1.0, 4.0, 4.0), (0.5, 2.0, 3.0), (0.1, 13.0, 4.0)):
        criterion.beta = beta
        criterion(torch.tensor([cost], requires_grad=True), torch.tensor([1]))
        assert criterion.read(torch.tensor([1])).item() == pytest.approx(expected)
    before = copy.deepcopy(criterion.state_dict())
    criterion.beta = 0.0
    with pytest.raises(ValueError, match=r"beta must be a number in \(0, 1\], got 0.0"):
        criterion(torch.tensor([1.0], requires_grad=True), torch.tensor([1]))
    for name, tensor in criterion.state_dict().items():
        assert tensor.equal(before[name])
    with pytest.raises(ValueError, match="beta"):
        L.NCALoss([0, 1], beta=2.0)


# Other libraries' formulas ------------------------------------------------------------------------


def test_nca_of_one_batch_is_the_softmax_of_other_libraries():
    """-log of what falls on the class of a softmax over minus squared distances to the others."""
    e = normalize(model()(X), dim=1).detach().requires_grad_()
    criterion = L.NCALoss(CLASSES, logarithm=True, eps=1e-300).double()
    loss = criterion(e, torch.arange(N))
    logits = -torch.cdist(e, e).square()
    logits = logits.masked_fill(torch.eye(N, dtype=torch.bool), -torch.inf)
    expected = -(logits.softmax(1) * (CLASSES[:, None] == CLASSES)).sum(1).log().mean()
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
    slopes = [torch.autograd.grad(value, e, retain_graph=True)[0] for value in (loss, expected)]
    torch.testing.assert_close(*slopes, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("two_way", [False, True])
def test_contrastive_of_one_batch_is_cross_entropy(two_way):
    """With eps = 1 / (B - 1): T (NT-Xent - log(B - 1)); two-way it is CLIP's loss."""
    network, B = model(), 9
    index = torch.randperm(N, generator=generator(4))[:B]
    a, b = network(X[index]), network(Y[index])
    criterion = L.ContrastiveLoss(N, temperature=HEAT, two_way=two_way, eps=1 / (B - 1)).double()
    loss = criterion(a, b, index)
    logits = normalize(a, dim=1) @ normalize(b, dim=1).T / HEAT
    cost = nn.CrossEntropyLoss()
    expected = cost(logits, torch.arange(B))
    if two_way:
        expected = (expected + cost(logits.T, torch.arange(B))) / 2
    torch.testing.assert_close(loss / HEAT + math.log(B - 1), expected, rtol=1e-12, atol=0)
    weight = network[0].weight
    slopes = [
        torch.autograd.grad(value, weight, retain_graph=True)[0]
        for value in (loss / HEAT, expected)
    ]
    torch.testing.assert_close(*slopes, rtol=1e-10, atol=1e-12)


def test_exact_with_the_own_pair_is_the_info_nce_of_all_pairs():
    network = model()
    a, b = network(X), network(Y)
    criterion = L.ContrastiveLoss(N, temperature=HEAT, eps=1 / (N - 1))
    logits = normalize(a, dim=1) @ normalize(b, dim=1).T / HEAT
    cost, own = nn.CrossEntropyLoss(), torch.arange(N)
    expected = (cost(logits, own) + cost(logits.T, own)) / 2
    found = criterion.exact(a, b) / HEAT + math.log(N - 1)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


def test_group_dro_of_one_batch_has_the_weights_of_a_softmax():
    losses = torch.rand(12, generator=generator(), dtype=torch.float64).requires_grad_()
    groups = torch.arange(12) % 4
    L.GroupDROLoss(4, temperature=0.5).double()(losses, groups).backward()
    means = losses.detach().view(3, 4).mean(0)
    weights = losses.grad.view(3, 4).sum(0)
    torch.testing.assert_close(weights / weights.sum(), (means / 0.5).softmax(0))


def test_the_threshold_of_cvar_is_learned():
    criterion = L.GroupCVaRLoss(4, fraction=0.5, temperature=0.01, beta=1.0)
    optimizer = torch.optim.SGD(criterion.parameters(), 0.05)
    losses = torch.tensor([1.0, 2.0, 3.0, 6.0])
    for _ in range(300):
        value = criterion(losses, torch.arange(4))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    assert value.item() == pytest.approx(4.5, abs=0.02)  # the mean of 3 and 6
    assert 2 <= criterion.objective.threshold.item() <= 3.05


@pytest.mark.parametrize("learned", ["common", "individual"])
def test_a_learned_temperature_follows_its_gradient(learned):
    case = next(case for case in CASES if case.name == f"contrastive, {learned}")
    criterion, network, index = case.criterion(), model(), torch.arange(6)
    loss = case.call(criterion, network, index)
    (gradient,) = torch.autograd.grad(loss, criterion.objective.temperatures)
    assert gradient.shape == ((1,) if learned == "common" else (2 * N,))
    heat = torch.tensor(HEAT, dtype=torch.float64, requires_grad=True)
    a, b = (normalize(network(part[index]), dim=1) for part in (X, Y))
    total = 0.0
    for s in (a @ b.T, b @ a.T):
        gaps = ((s - s.diagonal()[:, None]) / heat).exp()
        others = ~torch.eye(6, dtype=torch.bool)
        total = total + (heat * ((gaps * others).sum(1).div(5).log() + 0.2)).sum() / 12
    torch.testing.assert_close(loss, total)
    torch.testing.assert_close(gradient.sum(), torch.autograd.grad(total, heat)[0])


# A sample that comes twice ------------------------------------------------------------------------


@pytest.mark.parametrize("case", [c for c in CASES if "group" not in c.name], ids=str)
def test_a_sample_that_comes_twice_counts_once(case):
    network = model()
    once = case.call(case.criterion(), network, torch.tensor([3, 9, 14]))
    twice = case.call(case.criterion(), network, torch.tensor([9, 3, 9, 14, 3, 3]))
    torch.testing.assert_close(once, twice, rtol=1e-12, atol=1e-12)
    slopes = [torch.autograd.grad(loss, network[0].weight)[0] for loss in (once, twice)]
    torch.testing.assert_close(*slopes, rtol=1e-10, atol=1e-12)


def test_two_views_of_one_sample_are_averaged():
    """Of sample 4 there are two draws; exp is averaged, over anchors and over partners alike."""
    e = torch.randn(3, 2, generator=generator(), dtype=torch.float64)
    criterion = L.NCALoss(torch.zeros(9, dtype=torch.long)).double()
    criterion.train()(e, torch.tensor([4, 4, 7]))
    near = (-(e[2] - e[:2]).square().sum(1)).exp().mean().expand(2)
    torch.testing.assert_close(criterion.read(torch.tensor([4])), near[None])
    torch.testing.assert_close(criterion.read(torch.tensor([7])), near[None])


# A citizen of PyTorch -----------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=str)
def test_resume_is_bit_exact(case):
    indices = list(steps())
    criterion, network = case.criterion(), model()
    _, optimizer = train(criterion, network, case, indices[:4])
    file = io.BytesIO()
    torch.save([part.state_dict() for part in (criterion, network, optimizer)], file)
    file.seek(0)
    saved = torch.load(file)
    assert set(saved[0]) >= {"table.rows", "table.visited"}
    assert all(tensor.isfinite().all() for tensor in saved[0].values())
    results = []
    for first in (criterion, case.criterion()):
        second = model()
        optimizer = torch.optim.Adam([*second.parameters(), *first.parameters()], 0.05)
        for part, state in zip((first, second, optimizer), copy.deepcopy(saved), strict=True):
            part.load_state_dict(state)
        values = []
        for index in indices[4:]:
            loss = case.call(first, second, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            values.append(loss.item())
        results.append((values, copy.deepcopy(first.table.rows), second[0].weight.detach().clone()))
    assert results[0][0] == results[1][0]
    assert all(a.equal(b) for a, b in zip(results[0][1:], results[1][1:], strict=True))


def test_a_state_without_its_table_is_refused():
    criterion = L.GroupDROLoss(3, temperature=1.0)
    with pytest.raises(RuntimeError, match="rows"):
        criterion.load_state_dict({"visited": torch.ones(3, dtype=torch.bool)})
    with pytest.raises(RuntimeError, match="belongs to other labels"):
        criterion.load_state_dict(L.GroupDROLoss(4, temperature=1.0).state_dict())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_copy_goes_its_own_way(case):
    criterion, network = case.criterion(), model()
    train(criterion, network, case, list(steps())[:4])
    loss = case.call(criterion, network, torch.arange(5))  # its graph is alive
    twin, rows = copy.deepcopy(criterion), criterion.table.rows.clone()
    other = case.call(twin, network, torch.arange(8))
    assert criterion.table.rows.equal(rows)
    assert not twin.table.rows.equal(rows)
    assert case.call(criterion, network, torch.arange(8)) == other
    file = io.BytesIO()
    torch.save(criterion, file)
    file.seek(0)
    assert torch.load(file, weights_only=False).table.rows.equal(criterion.table.rows)
    assert loss.requires_grad


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_is_written_in_eval_or_without_gradients(case):
    criterion, network = case.criterion(), model()
    train(criterion, network, case, steps())
    before, index = copy.deepcopy(criterion.state_dict()), torch.arange(9)
    expected = case.call(copy.deepcopy(criterion), network, index).item()
    with torch.no_grad():
        assert case.call(criterion, network, index).item() == expected
    with torch.inference_mode():
        assert case.call(criterion, network, index).item() == expected
    criterion.eval()
    loss = case.call(criterion, network, index)
    assert loss.item() == expected
    assert loss.requires_grad
    for name, tensor in criterion.state_dict().items():
        assert tensor.equal(before[name]), name


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_recomputed_forward_pass_writes_once(case, reentrant):
    """Two batches before one backward pass, each computed again in it."""
    criterion, network = case.criterion(beta=0.3), model()
    twin, plain = copy.deepcopy(criterion), copy.deepcopy(network)
    unused = torch.zeros(1, requires_grad=True)  # which reentrant checkpoints need
    for first, second in zip(*[iter(steps(passes=3, size=6))] * 2, strict=True):
        batches = (first,) if reentrant else (first, second)
        loss = sum(
            checkpoint(
                lambda _, index=index: case.call(
                    criterion, network, index
                ).exp(),  # saves its value
                unused,
                use_reentrant=reentrant,
            )
            for index in batches
        )
        expected = sum(case.call(twin, plain, index).exp() for index in batches)
        network.zero_grad()
        plain.zero_grad()
        loss.backward()
        expected.backward()
        assert loss.item() == expected.item()
        for mine, other in zip(network.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, other.grad)
            with torch.no_grad():
                for p in (mine, other):
                    p -= 0.1 * other.grad
        for name, tensor in criterion.state_dict().items():
            assert tensor.equal(twin.state_dict()[name]), name


def test_the_same_batch_twice_is_two_steps():
    criterion, loss = L.GroupDROLoss(1, temperature=9.0), torch.tensor([1.0], requires_grad=True)
    for expected in (1.0, 2.0, 2.5, 2.75):  # towards 3
        value = criterion(loss, torch.tensor([0]))
        assert criterion.read(torch.tensor([0])).item() == expected
        loss = torch.tensor([3.0], requires_grad=True)
    assert value.requires_grad


def test_precision_of_the_table():
    criterion = L.ContrastiveLoss(4, temperature=0.1)
    assert criterion.table.rows.dtype == torch.float32
    for move, expected in (
        (criterion.half, torch.float32),
        (criterion.double, torch.float64),
        (criterion.bfloat16, torch.float32),
        (lambda: criterion.to("cpu", torch.float64), torch.float64),
    ):
        assert move() is criterion
        assert criterion.table.rows.dtype == expected
    assert criterion.to("meta").table.rows.device.type == "meta"
    torch.set_default_dtype(torch.float64)
    try:
        assert L.NCALoss([0, 1]).table.rows.dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_autocast_is_off_inside(case):
    network, index = model(), torch.arange(9)
    expected = case.call(case.criterion(), network, index)
    outputs = [network(part).detach().float() for part in (X, Y)]
    criterion = case.build()
    with torch.autocast("cpu", torch.bfloat16):
        found = case.call(criterion, _lookup(outputs), index)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=2e-5)
    narrow = [part.bfloat16().requires_grad_() for part in outputs]
    loss = case.call(case.build(), _lookup(narrow), index)
    loss.backward()
    assert loss.dtype == torch.float32
    assert narrow[0].grad.isfinite().all()


def _lookup(outputs):
    """A model that knows its answers: of the rows of X and of Y."""

    def look(inputs):
        found = []
        for row in inputs:
            for known, answers in zip((X, Y), outputs, strict=True):
                hit = (known == row).all(1).nonzero()
                if len(hit):
                    found.append(answers[hit[0, 0]])
        return torch.stack(found)

    return look


@pytest.mark.parametrize("case", [CASES[0], CASES[-1]], ids=str)
def test_a_compiled_training_step_leaves_the_criterion_alone(case):
    criterion, network = case.criterion(), model()
    twin, plain = copy.deepcopy(criterion), copy.deepcopy(network)
    step = torch.compile(lambda index: case.call(criterion, network, index), backend="eager")
    for index in steps(passes=1):
        assert step(index).item() == case.call(twin, plain, index).item()
    assert criterion.table.rows.equal(twin.table.rows)


def test_tiny_temperatures_stay_finite():
    criterion = L.ContrastiveLoss(6, temperature=1e-3)
    a = torch.randn(6, 3, generator=generator(), requires_grad=True)
    for _ in range(3):
        loss = criterion(a, a.flip(0), torch.arange(6))
        loss.backward()
        assert loss.isfinite()
        assert a.grad.isfinite().all()


# Faults -------------------------------------------------------------------------------------------

A = torch.ones(3, 2)
NAN = torch.tensor([[1.0, 1.0], [1.0, 1.0], [torch.nan, 1.0]])
CONTRASTIVE = lambda: L.ContrastiveLoss(9, temperature=0.1)  # noqa: E731
NEAR = lambda: L.NCALoss([0, 1] * 4)  # noqa: E731
DRO = lambda: L.GroupDROLoss(3, temperature=1.0)  # noqa: E731
TABLE = lambda: L.TableLoss(O.GroupDRO(torch.arange(3), temperature=1.0))  # noqa: E731
ONES = torch.ones(2, 1)


@pytest.mark.parametrize(
    ("build", "given", "kind", "message"),
    [
        (CONTRASTIVE, (A, A, [0, 1, 9]), ValueError, r"samples \[9\] are outside 0..8"),
        (CONTRASTIVE, (A, A, [0.0, 1.0, 2.0]), ValueError, "index must be whole numbers"),
        (CONTRASTIVE, (A, A[:2], [0, 1, 2]), ValueError, r"second must have shape \(3, d\)"),
        (CONTRASTIVE, (A, A[:, :1], [0, 1, 2]), ValueError, "second has shape"),
        (CONTRASTIVE, (A, NAN, [0, 1, 7]), FloatingPointError, r"second of samples \[7\]"),
        (CONTRASTIVE, (A, A.long(), [0, 1, 7]), ValueError, "second must be a tensor of floats"),
        (CONTRASTIVE, (A[:1], A[:1], [4]), ValueError, "this batch holds 1"),
        (CONTRASTIVE, (A, A, [4, 4, 4]), ValueError, "this batch holds 1"),
        (CONTRASTIVE, (A[:0], A[:0], []), ValueError, "this batch holds 0"),
        (NEAR, (A, [0, 1, -1]), ValueError, r"samples \[-1\] are outside 0..7"),
        (NEAR, (NAN, [0, 1, 7]), FloatingPointError, r"embeddings of samples \[7\]"),
        (NEAR, (A[:1], [4]), ValueError, "this batch holds 1"),
        (NEAR, (A[0], [4]), ValueError, "embeddings must have shape"),
        (DRO, (A[:, 0], [0, 1, 3]), ValueError, r"groups: groups \[3\] are outside 0..2"),
        (DRO, (A, [0, 1, 2]), ValueError, "reduction='none'"),
        (DRO, (A[:, 0].mean(), [0, 1, 2]), ValueError, "reduction='none'"),
        (DRO, (NAN[:, 0], [0, 1, 2]), FloatingPointError, r"losses at \[2\], of groups \[2\]"),
        (DRO, (A[:0, 0], []), ValueError, "losses and groups are empty"),
        (DRO, (None, [1]), ValueError, "losses must be a tensor of floats, got NoneType"),
        (
            TABLE,
            (Probe(torch.tensor([1, 1]), ONES),),
            ValueError,
            r"blocks \[1\] were probed twice",
        ),
        (TABLE, (Probe(torch.tensor([1, 5]), ONES),), ValueError, r"block ids \[5\] lie outside"),
        (TABLE, (Probe(torch.tensor([1]), ONES),), ValueError, r"values must have shape \(1, 1\)"),
        (TABLE, (Probe(torch.tensor([1, 2]), ONES / 0),), FloatingPointError, r"blocks \[1, 2\]"),
        (TABLE, (ONES,), TypeError, "probe must be a Probe, got Tensor"),
        (TABLE, (Probe(torch.tensor([1]), 2.0),), ValueError, "values must be a tensor"),
    ],
)
def test_a_fault_names_its_culprit_and_changes_nothing(build, given, kind, message):
    criterion = build()
    for good in (torch.tensor([0, 1]), torch.tensor([1, 2])):
        if isinstance(criterion, L.ContrastiveLoss):
            criterion(torch.rand(2, 2), torch.rand(2, 2), good)
        elif isinstance(criterion, L.NCALoss):
            criterion(torch.rand(2, 2), good)
        elif isinstance(criterion, L.GroupDROLoss):
            criterion(torch.rand(2), good)
        else:
            criterion(Probe(good, torch.rand(2, 1)))
    before = copy.deepcopy(criterion.state_dict())
    for mode in (criterion.train, criterion.eval):
        mode()
        with pytest.raises(kind, match=message):
            criterion(*given)
    for name, tensor in criterion.state_dict().items():
        assert tensor.equal(before[name]), name


def test_an_outer_function_that_overflows_changes_nothing():
    class Steep(fcco.Objective):
        num_blocks, inner_dim = 2, 1

        def outer(self, u, blocks):
            return u[:, 0].exp()

    criterion = L.TableLoss(Steep(), beta=1.0)
    values = torch.tensor([[1.0], [200.0]], requires_grad=True)
    for _ in range(2):
        with pytest.raises(FloatingPointError, match=r"blocks \[1\]"):
            criterion(Probe(torch.tensor([0, 1]), values))
        assert not criterion.table.visited.any()
        values = values.detach()  # no slopes are taken, but f overflows


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: L.ContrastiveLoss(1, temperature=0.1), "num_samples must be at least 2"),
        (lambda: L.ContrastiveLoss(9, temperature=0.0), "temperature must be positive"),
        (lambda: L.ContrastiveLoss(9, temperature=0.1, learned="each"), "learned must be None"),
        (lambda: L.NCALoss([0.5, 1.0]), "classes must be whole numbers"),
        (lambda: L.NCALoss([[0, 1]]), "classes must have shape"),
        (lambda: L.GroupDROLoss(0, temperature=1.0), "num_groups must be positive"),
        (lambda: L.GroupCVaRLoss(3, fraction=0.0), "fraction must lie in"),
        (lambda: L.TableLoss(object()), "objective.num_blocks must be a positive int"),
    ],
)
def test_what_a_criterion_cannot_be_built_from(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_merging_rows_of_one_block_keeps_what_is_small():
    """A row of zeros comes at any scale, and must not wipe out the other one."""
    values = torch.tensor([[2.0, 1.0], [0.0, 1.0], [0.0, 1.0], [4.0, 3.0]])
    scale = torch.tensor([-500.0, 0.0, 3.0, -501.0])
    probe = merge(Probe(torch.tensor([1, 1, 0, 1]), values, 1, log_scale=scale), 1)
    assert probe.blocks.tolist() == [0, 1]
    torch.testing.assert_close(probe.log_scale, torch.tensor([0.0, -500.0]))
    torch.testing.assert_close(
        probe.values, torch.tensor([[0.0, 1.0], [(2 + 4 / math.e) / 3, 5 / 3]])
    )
    assert probe.samples.tolist() == [1, 3]


def test_errors_of_merged_values_add_up_in_squares_unless_their_samples_are_the_same():
    """Means of 2 and of 6 samples of one block, which weigh 1/4 and 3/4."""
    values, noise = torch.tensor([[1.0], [5.0]]), torch.tensor([[0.4], [0.8]])
    probe = Probe(torch.tensor([3, 3]), values, torch.tensor([2, 6]), noise=noise)
    apart, common = merge(probe, 0), merge(probe, 0, common=True)
    assert apart.values.item() == common.values.item() == pytest.approx(1 / 4 + 5 * 3 / 4)
    assert apart.noise.item() == pytest.approx(math.hypot(0.4 / 4, 0.8 * 3 / 4))
    assert common.noise.item() == pytest.approx(0.4 / 4 + 0.8 * 3 / 4)
    assert (apart.samples.item(), common.samples.item()) == (8, 6)


@pytest.mark.parametrize("build", [
    lambda: L.ContrastiveLoss(9, temperature=0.1).forward,
    lambda: lambda first, second, index: L.NCALoss([0, 1] * 5)(first, index),
])  # fmt: skip
def test_embeddings_whose_norm_overflows(build):
    """Normalized, they would all be 0, and nothing would be learned without a word."""
    first = torch.ones(3, 2)
    first[1] = 1e30
    with pytest.raises(FloatingPointError, match=r"\[7\]"):
        build()(first, torch.ones(3, 2), torch.tensor([2, 7, 4]))
