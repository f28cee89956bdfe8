"""A state goes to the criterion that it was saved of: every criterion, every argument of it."""

import copy
import inspect
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fcco import Objective
from fcco import losses as L
from fcco import objectives as O

N = 12
LABELS = torch.tensor([1, 0, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0])
TIMES = torch.tensor([3.0, 1.0, 2.0, 2.0, 5.0, 4.0, 4.0, 1.0, 7.0, 6.0, 6.0, 2.5])
GRADES, LENGTHS = torch.tensor([2, 0, 1, 0, 0, 3, 1, 0, 1, 0, 2, 0]), torch.tensor([5, 4, 3])
MORE = torch.cat([LABELS, LABELS])
RANDOM = torch.Generator().manual_seed(0)
ORDER = torch.arange(N - 1, -1, -1)


class Steep(O.Surrogate):
    """A user's own, with a setting."""

    def __init__(self, width):
        self.width = width

    def __call__(self, s):
        return torch.sigmoid(s / self.width)


class Scaled:
    """A user's own function of means, with a setting."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, u):
        return self.factor * u[..., 0].square()


ranked = {"labels": (LABELS, LABELS[ORDER]), "surrogate": (Steep(1.0), Steep(2.0))}
listed = {"grades": (GRADES, GRADES[ORDER]), "lengths": (LENGTHS, LENGTHS.flip(0)),
          "weights": (np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0]))}  # fmt: skip
beta = {"beta": (0.3, 0.3)}
ARGUMENTS = {
    L.CoxLoss: {"times": (TIMES, TIMES[ORDER]), "events": (LABELS, LABELS[ORDER]),
                "ties": ("efron", "breslow")},
    L.AUCLoss: {"labels": ranked["labels"], "temperature": (1.0, 0.5)},
    L.APLoss: ranked,
    L.PartialAUCLoss: ranked | {"temperature": (1.0, 0.5), "two_way": (2.0, 3.0),
                                "max_fpr": (0.5, 0.4), "min_tpr": (0.5, 0.4)},
    L.PushLoss: ranked | {"power": (2.0, 3.0)},
    L.NDCGLoss: listed | {"top_k": (2, 3), "surrogate": ranked["surrogate"],
                          "softness": (0.5, 0.6)},
    L.ListNetLoss: listed,
    L.DROLoss: {"num_samples": (N, N + 1), "temperature": (1.0, 0.5)},
    L.CVaRLoss: {"num_samples": (N, N + 1), "fraction": (0.5, 0.4)},
    L.ScoreLoss: {"objective": (O.AUC(LABELS), O.AUC(LABELS, bounded=False)),
                  "sample_weight": (torch.ones(N), 1 + torch.arange(N))},
    L.ContrastiveLoss: beta | {
        "num_samples": (N, N + 1), "temperature": (1.0, 0.5), "two_way": (True, False),
        "learned": ("common", None), "radius": (0.5, 0.6), "eps": (1e-14, 1e-3)},
    L.NCALoss: beta | {"classes": (LABELS, LABELS[ORDER]), "temperature": (1.0, 0.5),
                       "logarithm": (False, True), "eps": (1e-6, 1e-3)},
    L.GroupDROLoss: beta | {"num_groups": (3, 4), "temperature": (1.0, 0.5)},
    L.GroupCVaRLoss: beta | {"num_groups": (3, 4), "fraction": (0.5, 0.4),
                             "temperature": (0.1, 0.2)},
    L.TableLoss: beta | {"objective": (O.GroupDRO(LABELS, temperature=1.0),
                                       O.GroupDRO(LABELS, temperature=1.0, cap=3.0))},
    L.MeansLoss: beta | {"function": (Scaled(1.0), Scaled(2.0)), "shape": ((2, 1), (1, 2))},
    L.F1Loss: beta | {"num_tasks": (3, 2), "recall_weight": (1.0, 2.0),
                      "average": ("micro", "macro")},
    L.DiceLoss: beta | {"num_classes": (3, 2), "weights": ((0.5, 0.5), (0.3, 0.7)),
                        "jaccard": (False, True), "include_background": (True, False)},
    L.CorrelationLoss: beta | {"num_outputs": (1, 2), "concordance": (False, True)},
    L.ParityLoss: beta | {"num_groups": (2, 3), "squared": (False, True)},
}  # fmt: skip
PAIRS = [(kind, name) for kind, given in ARGUMENTS.items() for name in given if name != "beta"]
named = pytest.mark.parametrize(
    ("kind", "name"), PAIRS, ids=[f"{kind.__name__}, {name}" for kind, name in PAIRS]
)


def filled(criterion):
    """With numbers in its table, so that a state that is loaded in part would be seen."""
    for name, tensor in criterion.state_dict().items():
        if name != "fingerprint":
            tensor.copy_(torch.rand(tensor.shape, generator=RANDOM) + 1)
    return criterion


def build(kind, **changes):
    arguments = {name: copy.copy(both[0]) for name, both in ARGUMENTS[kind].items()}
    return filled(kind(**(arguments | changes)))


def loads(criterion, state):
    """Whether it does; if not, an error says why, and nothing has changed."""
    before, said = copy.deepcopy(criterion.state_dict()), ""
    try:
        criterion.load_state_dict(state)
    except RuntimeError as error:
        said = str(error)
    if not said:
        assert all(state[key].equal(value) for key, value in criterion.state_dict().items())
        return True
    assert "belongs to other labels, to another order of the samples, or to other" in said
    assert all(before[key].equal(value) for key, value in criterion.state_dict().items())
    return False


def test_every_argument_of_every_criterion_is_here():
    public = {kind for kind in vars(L).values() if inspect.isclass(kind)} - {L.RowLoss}
    assert public == ARGUMENTS.keys()
    for kind, arguments in ARGUMENTS.items():
        assert inspect.signature(kind).parameters.keys() == arguments.keys(), kind


@named
def test_another_argument_makes_another_table(kind, name):
    first, second = build(kind), build(kind, **{name: ARGUMENTS[kind][name][1]})
    assert not loads(first, second.state_dict())
    assert not loads(second, first.state_dict())
    assert loads(build(kind), first.state_dict())


@pytest.mark.parametrize("kind", ARGUMENTS, ids=lambda kind: kind.__name__)
def test_a_state_of_another_kind(kind):
    """Also where the buffers have the same names and shapes."""
    state = build(kind).state_dict()
    for other in ARGUMENTS.keys() - {kind}:
        if {kind, other} == {L.AUCLoss, L.ScoreLoss}:
            continue  # AUCLoss is this ScoreLoss
        assert not loads(build(other), state), other


@pytest.mark.parametrize(("first", "second"), [
    (F1 := lambda: L.F1Loss(3, average="micro"), L.F1Loss),
    (F1, lambda: L.F1Loss(2, average="micro")),
    (lambda: L.DiceLoss(3, include_background=False), lambda: L.DiceLoss(2)),
    (lambda: L.DiceLoss(jaccard=True), L.DiceLoss),
    (L.CorrelationLoss, lambda: L.CorrelationLoss(concordance=True)),
    (lambda: L.MeansLoss(Scaled(1), (1, 11)), lambda: L.MeansLoss(Scaled(1), (11, 1))),
    (lambda: L.PushLoss([1, 0], surrogate=O.SquaredHinge(0.5)),
     lambda: L.PushLoss([1, 0], surrogate=O.Squared(0.5))),
])  # fmt: skip
def test_tables_of_equal_shape(first, second):
    """The means of F1 over three tasks together are not those of one task."""
    assert not loads(second(), first().state_dict())


def test_beta_is_no_part_of_it():
    """It may be assigned during training."""
    state = L.GroupDROLoss(3, temperature=1.0, beta=0.3).state_dict()
    assert loads(L.GroupDROLoss(3, temperature=1.0, beta=0.7), state)


NUMBERS = [2, 2.0, np.float64(2), np.float32(2), np.int64(2), np.uint8(2), torch.tensor(2.0)]


@pytest.mark.parametrize(("one", "other"), [*itertools.combinations(NUMBERS, 2)], ids=repr)
def test_equal_numbers_are_one_setting(one, other):
    first, second = (L.AUCLoss(LABELS, temperature=t) for t in (one, other))
    assert loads(second, first.state_dict())
    assert not loads(L.AUCLoss(LABELS, temperature=one + 1), first.state_dict())


@pytest.mark.parametrize("kind", [k for k, given in ARGUMENTS.items() if "labels" in given],
                         ids=lambda kind: kind.__name__)  # fmt: skip
def test_the_form_of_labels_does_not_matter(kind):
    forms = [LABELS, LABELS.bool(), LABELS.double(), LABELS.numpy(), LABELS.tolist(), LABELS.byte()]
    states = [build(kind, labels=form) for form in forms]
    assert all(loads(states[0], other.state_dict()) for other in states)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_one_label_makes_a_difference(data):
    """Wherever it is, and however small: one neighbour among float64 times, too."""
    kind = data.draw(st.sampled_from([L.CoxLoss, L.AUCLoss, L.NDCGLoss, L.NCALoss, L.ScoreLoss]))
    place = data.draw(st.integers(0, N - 1))
    name = {L.CoxLoss: "times", L.AUCLoss: "labels", L.NDCGLoss: "grades", L.NCALoss: "classes",
            L.ScoreLoss: "sample_weight"}[kind]  # fmt: skip
    changed = ARGUMENTS[kind][name][0].clone()
    if changed.is_floating_point():
        changed[place] = torch.nextafter(changed[place], torch.tensor(9.0))
    else:
        changed[place] = 1 - changed[place].clamp(max=1)
    assert not loads(build(kind), build(kind, **{name: changed}).state_dict())


class Own(Objective):
    """A user's own objective, with something of any type in it."""

    num_blocks, inner_dim = 4, 1

    def __init__(self, thing):
        self.thing = thing

    def outer(self, u, blocks):
        return u[:, 0]


@pytest.mark.parametrize(("one", "other"), [
    (np.arange(4), np.arange(4)[::-1].copy()),
    (np.array(["a", "b"]), np.array(["a", "c"])),
    (np.array(["a", None]), np.array(["a", 3])),
    ({"a": 1}, {"a": 2}),
    ([1, 23], [12, 3]),
    (["1", 2], [1, "2"]),
    ((1, (2, 3)), ((1, 2), 3)),
    (torch.zeros(2), torch.ones(2).long()),
    (torch.zeros(2), torch.tensor([0.0, 1e-300], dtype=torch.float64)),
    (torch.zeros(2, 1), torch.zeros(1, 2)),
    (None, 0.0),
    (True, False),
    (Steep(1.0), Steep(1.5)),
    (Steep(1.0), O.Sigmoid(1.0)),
])  # fmt: skip
def test_what_a_users_objective_holds(one, other):
    assert loads(L.TableLoss(Own(copy.copy(one))), L.TableLoss(Own(one)).state_dict())
    assert not loads(L.TableLoss(Own(other)), L.TableLoss(Own(one)).state_dict())


def test_the_same_times_in_another_precision_are_the_same_labels():
    times, events = torch.rand(9), torch.arange(9) % 2
    state = L.CoxLoss(times, events).state_dict()
    for same in (times.double(), times.tolist(), times.numpy()):
        assert loads(L.CoxLoss(same, events.bool()), state)
    assert not loads(L.CoxLoss(times.half(), events), state)
