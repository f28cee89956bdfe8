"""Any history of calls: every criterion against a dictionary from which all is recomputed.

Forward passes of any batch size, two before one backward pass, in eval mode, without gradients,
recomputed by a checkpoint, with errors in between, after saving, loading, copying, pickling and
moving. The model remembers scores or rows in a dictionary of Python floats, and computes value and
gradient from scratch: by ``objective.exact`` (which other tests compare with plain loops) for
scores, by hand for rows and means.
"""

import copy
import io
import math
import pickle

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from torch.utils.checkpoint import checkpoint

from fcco import losses as L

# Calls in eval mode and without gradients are what these tests are about; they warn.
pytestmark = pytest.mark.filterwarnings("ignore:.*it is not a validation loss")

N = 8
BETA = 0.3
NUMBERS = st.floats(-2, 2, allow_nan=False, width=32)
LABELS = [1, 0, 0, 1, 0, 1, 0, 0]


class Scores:
    """A score loss, and a dictionary of the scores that it has seen."""

    def __init__(self, build):
        self.build = build
        self.table = {}

    def inputs(self, data):
        size = data.draw(st.integers(1, N), label="size")
        index = data.draw(st.permutations(range(N)), label="index")[:size]
        values = data.draw(st.lists(NUMBERS, min_size=size, max_size=size), label="scores")
        return torch.tensor(values, dtype=torch.float64), torch.tensor(index)

    def expected(self, criterion, scores, index):
        """Value and gradient, and the table after it."""
        table = self.table | dict(zip(index.tolist(), scores.tolist(), strict=True))
        every = torch.tensor([table.get(i, 0.0) for i in range(N)], dtype=torch.float64)
        seen = torch.tensor([float(i in table) for i in range(N)], dtype=torch.float64)
        every.requires_grad_()
        value = criterion.objective.exact(every, seen)
        (slope,) = torch.autograd.grad(value, every)
        return value.item(), slope[index] * len(table) / len(index), table

    def broken(self, scores, index):
        return scores * math.nan, index

    def remembered(self, criterion):
        scores, seen = criterion.scores[:, 0].tolist(), criterion.seen.tolist()
        return {i: s for i, (s, known) in enumerate(zip(scores, seen, strict=True)) if known}


class Groups:
    """``GroupDROLoss``: u_i by hand, f(u) = T (exp(u / T) - 1) with T = 2."""

    def __init__(self, build):
        self.build = build
        self.table = {}

    def inputs(self, data):
        size = data.draw(st.integers(1, 6), label="size")
        groups = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
        values = data.draw(st.lists(NUMBERS, min_size=size, max_size=size), label="losses")
        return torch.tensor(values, dtype=torch.float64), torch.tensor(groups)

    def expected(self, criterion, losses, groups):
        table, met = dict(self.table), sorted(set(groups.tolist()))
        gradient, value = torch.zeros_like(losses), 0.0
        for i in met:
            mean = losses[groups == i].mean().item()
            table[i] = (1 - BETA) * table[i] + BETA * mean if i in table else mean
            value += 2 * math.expm1(table[i] / 2) / len(met)
            count = int((groups == i).sum())
            gradient[groups == i] = math.exp(table[i] / 2) / len(met) / count
        return value, gradient, table

    def broken(self, losses, groups):
        return losses * math.inf, groups

    def remembered(self, criterion):
        rows, met = criterion.table.rows[:, 0].tolist(), criterion.table.visited.tolist()
        return {i: u for i, (u, known) in enumerate(zip(rows, met, strict=True)) if known}


class Means(Groups):
    """``MeansLoss`` of f(u) = u^2 of one mean."""

    def inputs(self, data):
        size = data.draw(st.integers(1, 6), label="size")
        values = data.draw(st.lists(NUMBERS, min_size=size, max_size=size), label="lines")
        return (torch.tensor(values, dtype=torch.float64).unsqueeze(1),)

    def expected(self, criterion, lines):
        mean = lines.mean().item()
        u = (1 - BETA) * self.table[0] + BETA * mean if self.table else mean
        return u * u, torch.full_like(lines, 2 * u / len(lines)), {0: u}

    def broken(self, lines):
        return (lines * math.nan,)


def square(u):
    return u[..., 0].square()


CASES = {
    "cox": lambda: Scores(lambda: L.CoxLoss([3.0, 1.0, 2.0, 2.0, 5.0, 4.0, 4.0, 1.0], LABELS)),
    "auc": lambda: Scores(lambda: L.AUCLoss(LABELS)),
    "average precision": lambda: Scores(lambda: L.APLoss(LABELS)),
    "partial auc": lambda: Scores(lambda: L.PartialAUCLoss(LABELS, temperature=0.5)),
    "push": lambda: Scores(lambda: L.PushLoss(LABELS)),
    "ndcg": lambda: Scores(lambda: L.NDCGLoss([2, 0, 1, 0, 0, 3, 1, 0], [5, 3])),
    "listnet": lambda: Scores(lambda: L.ListNetLoss([2, 0, 1, 0, 0, 3, 1, 0], [5, 3])),
    "dro": lambda: Scores(lambda: L.DROLoss(N, temperature=0.7)),
    "cvar": lambda: Scores(lambda: L.CVaRLoss(N, fraction=0.4)),
    "group dro": lambda: Groups(lambda: L.GroupDROLoss(4, temperature=2.0, beta=BETA)),
    "means": lambda: Means(lambda: L.MeansLoss(square, 1, beta=BETA)),
}


class Histories(RuleBasedStateMachine):
    """One criterion and its dictionary."""

    name: str

    @initialize()
    def begin(self):
        torch.manual_seed(0)
        self.case = CASES[self.name]()
        self.criterion = self.case.build().double()

    def call(self, values, rest, through=None):
        leaf = values.clone().requires_grad_()
        if through is None:
            return leaf, self.criterion(leaf, *rest)
        # The criterion is inside the checkpoint, behind an operation of the model.
        run = lambda x: self.criterion(x * 1.0, *rest)  # noqa: E731
        return leaf, checkpoint(run, leaf, use_reentrant=through == "reentrant")

    def agrees(self, leaf, loss, value, gradient):
        assert loss.item() == pytest.approx(value, rel=1e-9, abs=1e-11)
        torch.testing.assert_close(leaf.grad, gradient, rtol=1e-8, atol=1e-11)

    @rule(data=st.data(), through=st.sampled_from([None, "reentrant", "saved hooks"]))
    def train(self, data, through):
        values, *rest = self.case.inputs(data)
        value, gradient, table = self.case.expected(self.criterion, values, *rest)
        leaf, loss = self.call(values, rest, through)
        loss.backward()
        self.case.table = table
        self.agrees(leaf, loss, value, gradient)

    @rule(data=st.data())
    def two_before_one_backward(self, data):
        pairs = []
        for _ in range(2):
            values, *rest = self.case.inputs(data)
            *expected, table = self.case.expected(self.criterion, values, *rest)
            leaf, loss = self.call(values, rest, "saved hooks")
            self.case.table = table
            pairs.append((leaf, loss, *expected))
        (pairs[0][1] + pairs[1][1]).backward()
        for pair in pairs:
            self.agrees(*pair)

    @rule(data=st.data(), mode=st.sampled_from(["eval", "no_grad"]))
    def only_look(self, data, mode):
        values, *rest = self.case.inputs(data)
        value, *_ = self.case.expected(self.criterion, values, *rest)
        self.criterion.train(mode != "eval")
        with torch.set_grad_enabled(mode != "no_grad"):
            loss = self.criterion(values, *rest)
        self.criterion.train()
        assert loss.item() == pytest.approx(value, rel=1e-9, abs=1e-11)

    @rule(data=st.data())
    def fail(self, data):
        values, *rest = self.case.broken(*self.case.inputs(data))
        with pytest.raises(FloatingPointError):
            self.criterion(values.requires_grad_(), *rest)

    @rule(way=st.sampled_from(["state", "deepcopy", "pickle", "half and back"]))
    def travel(self, way):
        if way == "state":
            file = io.BytesIO()
            torch.save(self.criterion.state_dict(), file)
            file.seek(0)
            self.criterion = self.case.build().double()
            self.criterion.load_state_dict(torch.load(file, weights_only=True))
        elif way == "deepcopy":
            self.criterion = copy.deepcopy(self.criterion)
        elif way == "pickle" and self.name != "means":  # whose function is the test's own
            self.criterion = pickle.loads(pickle.dumps(self.criterion))
        else:  # the numbers are those of float32, which a table keeps at least
            self.criterion.half()
            self.criterion.double()
            if self.name in ("group dro", "means"):
                as_float = torch.tensor(list(self.case.table.values())).float().tolist()
                self.case.table = dict(zip(self.case.table, as_float, strict=True))

    @invariant()
    def the_table_is_the_dictionary(self):
        remembered = self.case.remembered(self.criterion)
        assert remembered.keys() == self.case.table.keys()
        for i, value in self.case.table.items():
            assert remembered[i] == pytest.approx(value, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_any_history(name):
    run_histories(name, examples=6)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_many_histories(name):
    run_histories(name, examples=300)


def run_histories(name, examples):
    machine = type(name, (Histories,), {"name": name})
    test = machine.TestCase
    test.settings = settings(
        max_examples=examples,
        stateful_step_count=25,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    test().runTest()
