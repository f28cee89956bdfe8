"""Any history of calls: every criterion against a dictionary from which all is recomputed.

Forward passes of any batch size, two before one backward pass, in eval mode, without gradients,
recomputed by a checkpoint, accumulated, with errors in between, after saving, loading, copying,
pickling, moving and refreshing. ``remembered`` has the dictionaries.
"""

import copy
import io
import pickle

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from losses.remembered import CASES, Rows, Scores, broken, tensor
from torch.utils.checkpoint import checkpoint

from fcco import losses as L

# Calls in eval mode and without gradients are what these tests are about; they warn.
pytestmark = pytest.mark.filterwarnings("ignore:.*it is not a validation loss")

WAYS = st.sampled_from([None, "reentrant", "saved hooks"])


def is_a(kind):
    return precondition(lambda self: isinstance(self.case, kind))


class Histories(RuleBasedStateMachine):
    """One criterion and its dictionary."""

    name: str

    @initialize()
    def begin(self):
        torch.manual_seed(0)
        self.case = CASES[self.name]()
        self.criterion = self.case.build().double()

    def call(self, values, rest, through=None):
        """The loss of a batch, and the leaf to differentiate it by."""
        leaf = values.clone().requires_grad_()
        # The criterion is inside the checkpoint, behind an operation of the model.
        run = lambda x: self.case.call(self.criterion, x * 1.0, *rest)  # noqa: E731
        if through is None:
            return leaf, run(leaf)
        return leaf, checkpoint(run, leaf, use_reentrant=through == "reentrant")

    def agrees(self, leaf, loss, value, gradient):
        assert loss.item() == pytest.approx(value, rel=1e-9, abs=1e-11)
        torch.testing.assert_close(leaf.grad, gradient, rtol=1e-8, atol=1e-11)

    @rule(data=st.data(), through=WAYS)
    def train(self, data, through):
        values, *rest = self.case.inputs(data)
        *expected, table = self.case.expected(self.criterion, values, *rest)
        leaf, loss = self.call(values, rest, through)
        loss.backward()
        self.case.table = table
        self.agrees(leaf, loss, *expected)

    @rule(data=st.data(), through=st.sampled_from([None, "saved hooks"]))
    def two_before_one_backward(self, data, through):
        pairs = []
        for _ in range(2):
            values, *rest = self.case.inputs(data)
            *expected, table = self.case.expected(self.criterion, values, *rest)
            leaf, loss = self.call(values, rest, through)
            self.case.table = table
            pairs.append((leaf, loss, *expected))
        (pairs[0][1] + pairs[1][1]).backward()
        for pair in pairs:
            self.agrees(*pair)

    @is_a(Rows)
    @rule(data=st.data(), count=st.integers(1, 3), through=WAYS, disturbed=st.booleans())
    def accumulate(self, data, count, through, disturbed):
        """Micro-batches until an optimizer steps are one step of the table."""
        shown = {}
        self.criterion.accumulate = True
        for _ in range(count):
            values, *rest = self.case.inputs(data)
            *expected, _ = self.case.expected(self.criterion, values, *rest, in_window=True)
            leaf, loss = self.call(values, rest, through)
            loss.backward()
            self.agrees(leaf, loss, *expected)
            for block, lines in self.case.samples(values, *rest).items():
                shown.setdefault(block, []).append(lines)
            if disturbed:
                self.fail(data)
                self.only_look(data, "eval")
            self.the_table_is_the_dictionary()
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1).step()
        self.criterion.accumulate = False
        self.case.table = self.case.written({i: torch.cat(parts) for i, parts in shown.items()})

    @is_a(Scores)
    @rule(data=st.data(), mode=st.sampled_from(["train", "eval", "no_grad"]))
    def refresh(self, data, mode):
        scores, index = self.case.inputs(data)
        self.criterion.train(mode != "eval")
        with torch.set_grad_enabled(mode != "no_grad"):
            self.criterion.refresh(scores, index)
        assert self.criterion.training == (mode != "eval")
        self.criterion.train()
        self.case.table = self.case.written(scores, index)

    @rule(data=st.data(), mode=st.sampled_from(["eval", "no_grad"]))
    def only_look(self, data, mode):
        values, *rest = self.case.inputs(data)
        value, *_ = self.case.expected(self.criterion, values, *rest)
        self.criterion.train(mode != "eval")
        with torch.set_grad_enabled(mode != "no_grad"):
            loss = self.case.call(self.criterion, values, *rest)
        self.criterion.train()
        assert loss.item() == pytest.approx(value, rel=1e-9, abs=1e-11)

    @rule(data=st.data())
    def fail(self, data):
        values, *rest = broken(*self.case.inputs(data))
        with pytest.raises(FloatingPointError):
            self.case.call(self.criterion, values.requires_grad_(), *rest)

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
        elif way == "pickle":
            self.criterion = pickle.loads(pickle.dumps(self.criterion))
        else:  # a table keeps at least the digits of float32
            self.criterion.half()
            self.criterion.double()
            self.the_table_is_the_dictionary(tolerance=1e-6)
            self.case.table = self.case.remembered(self.criterion)

    @invariant()
    def the_table_is_the_dictionary(self, tolerance=1e-9):
        remembered, expected = self.case.remembered(self.criterion), self.case.table
        assert remembered.keys() == expected.keys()
        for i, row in expected.items():
            close = {"rtol": tolerance, "atol": tolerance / 100}
            torch.testing.assert_close(tensor(remembered[i]), tensor(row), **close)


def test_every_criterion_has_a_dictionary():
    found = {type(case().build()).__name__ for case in CASES.values()}
    assert found == set(L.__all__) - {"RowLoss"}, "RowLoss is the base class of others"


@pytest.mark.parametrize("name", CASES)
def test_any_history(name):
    run_histories(name, examples=4)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_many_histories(name):
    run_histories(name, examples=100)


def run_histories(name, examples):
    machine = type(name, (Histories,), {"name": name})
    test = machine.TestCase
    test.settings = settings(
        max_examples=examples,
        stateful_step_count=25,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    test().runTest()
