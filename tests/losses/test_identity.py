"""A table belongs to the labels and settings that it was built from; a gradient is the first."""

import copy

import pytest
import torch
from losses import criteria
from losses.criteria import CASES, generator
from torch.autograd import forward_ad

import fcco
from fcco import losses as L
from fcco import objectives as O

N = 60
RANDOM = generator(3)
ORDER, H = torch.randperm(N, generator=RANDOM), torch.randn(N, generator=RANDOM)
LABELS = (torch.rand(N, generator=RANDOM) < 0.4).long()
TIMES, EVENTS = torch.rand(N, generator=RANDOM), torch.rand(N, generator=RANDOM) < 0.6
GRADES, LENGTHS = torch.randint(0, 4, (N,), generator=RANDOM), torch.tensor([20, 15, 25])
CLASSES = torch.randint(0, 3, (N,), generator=RANDOM)

BUILT = {
    "cox": lambda p: L.CoxLoss(TIMES[p], EVENTS[p]),
    "auc": lambda p: L.AUCLoss(LABELS[p]),
    "ap": lambda p: L.APLoss(LABELS[p]),
    "partial": lambda p: L.PartialAUCLoss(LABELS[p], temperature=0.2),
    "push": lambda p: L.PushLoss(LABELS[p]),
    "ndcg": lambda p: L.NDCGLoss(GRADES[p], LENGTHS),
    "listnet": lambda p: L.ListNetLoss(GRADES[p], LENGTHS),
    "nca": lambda p: L.NCALoss(CLASSES[p]),
    "table": lambda p: L.TableLoss(O.GroupDRO(CLASSES[p], CLASSES[p], temperature=1.0)),
}


@pytest.mark.parametrize("name", BUILT)
def test_a_state_of_labels_in_another_order_is_refused(name):
    first, second = BUILT[name](torch.arange(N)), BUILT[name](ORDER)
    before = copy.deepcopy(second.state_dict())
    with pytest.raises(RuntimeError, match="belongs to other labels"):
        second.load_state_dict(first.state_dict())
    assert all(before[key].equal(value) for key, value in second.state_dict().items())
    assert BUILT[name](torch.arange(N)).load_state_dict(first.state_dict())


@pytest.mark.parametrize("build", [
    lambda t: L.AUCLoss(LABELS, temperature=t),
    lambda t: L.PartialAUCLoss(LABELS, temperature=t),
    lambda t: L.PushLoss(LABELS, power=1 + t),
    lambda t: L.APLoss(LABELS, surrogate=O.Sigmoid(t)),
    lambda t: L.CoxLoss(TIMES, EVENTS, ties="efron" if t < 0.5 else "breslow"),
    lambda t: L.NDCGLoss(GRADES, LENGTHS, top_k=int(10 * t)),
    lambda t: L.DROLoss(N, temperature=t),
    lambda t: L.CVaRLoss(N, fraction=t),
    lambda t: L.ContrastiveLoss(N, temperature=t),
    lambda t: L.GroupDROLoss(3, temperature=t),
])  # fmt: skip
def test_a_state_of_other_settings_is_refused(build):
    with pytest.raises(RuntimeError, match="other settings"):
        build(0.1).load_state_dict(build(0.9).state_dict())
    build(0.1).load_state_dict(build(0.1).state_dict())


def test_settings_cannot_be_changed_below_a_table():
    criterion = L.AUCLoss(LABELS)
    with pytest.raises(AttributeError, match="temperature is a part of what"):
        criterion.temperature = 0.1
    with pytest.raises(AttributeError, match="temperature cannot be changed"):
        criterion.objective.temperature = 0.1
    other = criterion.objective.on(LABELS[:30])
    other.temperature = 0.1
    assert copy.deepcopy(criterion).objective.temperature == 1.0
    bags = O.SoftmaxPooling([0, 1, 1], [0, 1], temperature=1.0)
    L.TableLoss(bags)
    with pytest.raises(AttributeError, match="temperature cannot be changed"):
        bags.temperature = 0.1


def test_attributes_of_a_users_objective_are_left_to_the_user():
    class Counting(fcco.Objective):
        num_blocks, inner_dim = 3, 1

        def __init__(self):
            self.calls = 0

        def outer(self, u, blocks):
            self.calls += 1
            return u.square().sum(1)

    criterion = L.TableLoss(Counting())
    criterion(fcco.Probe(torch.arange(3), torch.ones(3, 1, requires_grad=True)))
    assert criterion.objective.calls


def test_sample_weights_and_missing_fingerprints_count():
    objective = O.Cox(TIMES, EVENTS)
    weighted = L.ScoreLoss(objective, sample_weight=torch.rand(N, generator=generator(1)) + 0.1)
    with pytest.raises(RuntimeError, match="belongs to other labels"):
        L.ScoreLoss(objective).load_state_dict(weighted.state_dict())
    state = L.AUCLoss(LABELS).state_dict()
    del state["fingerprint"]
    with pytest.raises(RuntimeError, match="no fingerprint"):
        L.AUCLoss(LABELS).load_state_dict(state, strict=False)


def test_what_is_learned_does_not_count():
    first = L.ContrastiveLoss(5, temperature=0.1, learned="individual")
    with torch.no_grad():
        first.objective.temperatures.mul_(2)
    second = L.ContrastiveLoss(5, temperature=0.1, learned="individual")
    second.load_state_dict(first.state_dict())
    assert second.objective.temperatures.equal(first.objective.temperatures)


def test_a_refused_state_leaves_rounded_sums_to_be_recomputed():
    """A cast has rounded the scores, so that their sums must be formed again in any case."""
    labels = torch.tensor([1, 1, 0, 0, 0])
    scores = 3 * torch.randn(5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    criterion = L.PartialAUCLoss(labels, temperature=0.1).double()
    criterion(scores, torch.arange(5))
    criterion.float()
    twin = copy.deepcopy(criterion)
    with pytest.raises(RuntimeError, match="other labels"):
        twin.load_state_dict(L.PartialAUCLoss(labels.flip(0), temperature=0.1).state_dict())
    losses = [c(torch.tensor([0.5]), torch.tensor([3])).item() for c in (criterion, twin)]
    assert losses[0] == losses[1]
    assert criterion.sums.sums.equal(twin.sums.sums)


def test_a_criterion_inside_a_module_is_named():
    def build(labels):
        return torch.nn.ModuleDict({"net": torch.nn.Linear(2, 1), "loss": L.AUCLoss(labels)})

    with pytest.raises(RuntimeError, match=r"loss\.: the table belongs to other labels"):
        build(LABELS).load_state_dict(build(LABELS[ORDER]).state_dict())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_without_staleness_the_gradient_is_exact_in_the_first_pass_too(case):
    """Scores that never change, heavy tails among them: nothing may bend the gradient."""
    criterion, random = case.criterion(), generator(5)
    scores = case.scores() ** 5 * 0.1
    met = torch.zeros(case.size)
    for index in torch.randperm(case.size, generator=random).split(4):
        h = scores[index].clone().requires_grad_()
        (found,) = torch.autograd.grad(criterion(h, index), h)
        met[index] = 1
        leaf = scores.clone().requires_grad_()
        value = criterion.objective.exact(leaf, met)
        (slope,) = torch.autograd.grad(value, leaf, allow_unused=True, materialize_grads=True)
        expected = slope[index] * met.sum() / len(index)
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9)


def losses_of(h):
    index, groups = torch.arange(45), torch.arange(45) % 3
    yield L.CoxLoss(*criteria.survival()).double()(h, index)
    yield L.APLoss(criteria.labels()).double()(h, index)
    yield L.GroupDROLoss(3, temperature=5.0).double()(h.square(), groups)


def test_a_second_derivative_is_an_error():
    """The slopes are constants of the graph: a Hessian through them would be wrong."""
    h = torch.randn(45, generator=generator(), dtype=torch.float64, requires_grad=True)
    for loss in losses_of(h):
        (gradient,) = torch.autograd.grad(loss, h, create_graph=True)
        with pytest.raises(RuntimeError, match="differentiated twice"):
            torch.autograd.grad((gradient * h).sum(), h)


def test_a_forward_derivative_is_an_error():
    h = torch.randn(45, generator=generator(), dtype=torch.float64)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(h, torch.ones_like(h))
        found = losses_of(dual)
        with pytest.raises(RuntimeError, match="forward-mode"):
            next(found)
        with pytest.raises(RuntimeError, match="forward-mode"):
            L.GroupDROLoss(3, temperature=5.0).double()(dual.square(), torch.arange(45) % 3)


def test_exact_has_second_derivatives():
    objective = O.Cox(*criteria.survival())
    h = torch.randn(45, generator=generator(), dtype=torch.float64)
    hessian = torch.autograd.functional.hessian(objective.exact, h)
    assert torch.linalg.eigvalsh(hessian).min() > -1e-12, "convex"
    torch.testing.assert_close(hessian.sum(1), torch.zeros_like(h), rtol=0, atol=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 0.2, 0.1, 0.05])
def test_the_risk_of_groups_lies_between_their_losses(temperature):
    """Beyond the cap, where the exponential goes on along its tangent, too."""
    criterion = L.GroupDROLoss(2, temperature=temperature).double()
    value = criterion(torch.tensor([2.3, 2.3], dtype=torch.float64), torch.tensor([0, 1])).item()
    assert criterion.objective.risk(value) == pytest.approx(2.3, rel=1e-9)
    other = L.GroupDROLoss(2, temperature=temperature).double()
    value = other(torch.tensor([0.1, 2.3], dtype=torch.float64), torch.tensor([0, 1])).item()
    assert 0.1 < other.objective.risk(value) < 2.3


@pytest.mark.parametrize("name", BUILT)
def test_a_part_of_a_state_is_refused(name):
    """With ``strict=False``, sums or counts of another table would stay behind the loaded one."""
    criterion = BUILT[name](ORDER)
    state = criterion.state_dict()
    before = copy.deepcopy(state)
    for key in state:
        part = {other: torch.zeros_like(value) for other, value in state.items() if other != key}
        part |= {"fingerprint": state["fingerprint"]} if key != "fingerprint" else {}
        with pytest.raises(RuntimeError, match=r"a part of the table|no fingerprint"):
            criterion.load_state_dict(part, strict=False)
    assert all(before[key].equal(value) for key, value in criterion.state_dict().items())
    assert criterion.load_state_dict({}, strict=False).missing_keys


@pytest.mark.parametrize("name", BUILT)
@pytest.mark.parametrize("assign", [False, True])
def test_a_state_does_not_change_the_precision(name, assign):
    criterion = BUILT[name](ORDER)
    dtypes = {key: value.dtype for key, value in criterion.state_dict().items()}
    state = {
        key: value.half() if value.is_floating_point() else value
        for key, value in criterion.state_dict().items()
    }
    criterion.load_state_dict(state, assign=assign)
    assert {key: value.dtype for key, value in criterion.state_dict().items()} == dtypes


ROWS = {
    "contrastive": (lambda: L.ContrastiveLoss(8, temperature=0.5), "temperature", "two_way"),
    "nca": (lambda: L.NCALoss(torch.arange(8) % 2), "temperature", "logarithm"),
    "group dro": (lambda: L.GroupDROLoss(3, temperature=0.5), "temperature", "loss"),
    "group cvar": (lambda: L.GroupCVaRLoss(3, fraction=0.5), "fraction", "temperature"),
    "means": (lambda: L.MeansLoss(lambda u: u[..., 0], 1), "function", "num_blocks"),
    "auc": (lambda: L.AUCLoss(torch.arange(8) % 2), "temperature", "bounded"),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_a_table_was_built_from_cannot_be_assigned(name):
    """An ignored setting, or rows of one function that are used by another, would be silent."""
    build, *settings = ROWS[name]
    criterion = build()
    for setting in settings:
        for owner in (criterion, criterion.objective):
            with pytest.raises(AttributeError, match=setting):
                setattr(owner, setting, 0.25)
    with pytest.raises(AttributeError, match="objective"):
        criterion.objective = build().objective
    twin = copy.deepcopy(criterion)
    with pytest.raises(AttributeError, match=settings[0]):
        setattr(twin.objective, settings[0], 0.25)


def test_weights_and_gains():
    criterion = L.AUCLoss(torch.arange(8) % 2)
    with pytest.raises(AttributeError, match="sample_weight"):
        criterion.sample_weight = torch.ones(8)
    rows = L.GroupDROLoss(3, temperature=0.5)
    rows.beta = 0.25
    rows.accumulate = True
    assert (rows.beta, rows.accumulate) == (0.25, True)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float16, torch.float64])
def test_the_same_numbers_are_the_same_labels(dtype):
    """Whatever they are stored as; others are not, however near."""
    whole = L.CoxLoss(torch.tensor([1, 2, 3]), torch.ones(3))
    whole.refresh(torch.randn(3))
    same = L.CoxLoss(torch.tensor([1, 2, 3]).to(dtype), torch.ones(3))
    same.load_state_dict(whole.state_dict())
    assert same.scores.equal(whole.scores)
    near = L.CoxLoss(torch.tensor([1.0, 2.0, 3.0 + 1e-9], dtype=torch.float64), torch.ones(3))
    with pytest.raises(RuntimeError, match="other labels"):
        near.load_state_dict(whole.state_dict())
