"""A step happens wholly or not at all, wherever it fails or is interrupted."""

import sys
from contextlib import nullcontext

import pytest
from support import CATALOGUE, RULES, Draw, make_update
from support.faults import FailAt, Fault, interrupt_at
from support.job import Job, assert_same, assert_unchanged, capture

SLOW = pytest.mark.slow
FEW = ("sox", "msvrm-v2-theory", "msvrm-v3-theory", "msvrm-v1-sp", "fresh-pair-v3", "bsgd")
"""Between them they pass through every line; the others are slow tests."""
ACTS = ("step", "micro-batches", "estimate", "snapshot")


def build(entry):
    """A job a few steps on, with Adam's state to lose, and what may be interrupted in it."""
    update = make_update(RULES["adam"])
    job = Job(entry, update=update, weight_decay=0.1).run(4)
    draw = job.draw()
    parts = [Draw(*(x[k] for x in vars(draw).values())) for k in (slice(0, 1), slice(1, 3))]
    acts = {
        "step": lambda: job.opt.step(lambda: job.inner(draw)),
        "micro-batches": lambda: job.opt.step([lambda p=p: job.inner(p) for p in parts]),
        "estimate": lambda: job.opt.estimate(lambda: job.inner(draw)),
    }
    if entry.anchored:
        acts["snapshot"] = lambda: job.opt.snapshot(lambda: job.inner(job.problem.everything()))
    return job, acts


def seen(job):
    """All there is, gradients too."""
    grads = [None if p.grad is None else p.grad.clone() for p in job.model.parameters()]
    return {"job": capture(job.model, job.opt), "grads": grads}


def after(entry, name, mode=None):
    """How it ends if nothing happens; forward-mode derivatives round differently in a mode."""
    job, acts = build(entry)
    with mode or nullcontext():
        acts[name]()
    return seen(job)


def fail_each(entry, act, kind, every=1, first=1):
    """Make every operation before the commit raise; returns how many there were."""
    expected = after(entry, act, FailAt(0))  # which seeds anew
    job, acts = build(entry)
    before, k = capture(job.model, job.opt), first
    while True:
        mode = FailAt(k, kind)
        try:
            with mode:
                acts[act]()
        except kind:
            assert_unchanged(before, job.model, job.opt)
        else:
            break
        k += every
    assert_same(seen(job), expected)
    return mode.count


def interrupt_each(entry, act, every=1):
    """Let Ctrl-C come at every line; returns how many came before and after the commit."""
    expected = after(entry, act)
    job, acts = build(entry)
    before, queries = capture(job.model, job.opt), job.opt.queries
    k, early, late = 1, 0, 0
    while True:
        try:
            with interrupt_at(k):
                acts[act]()
        except KeyboardInterrupt:
            if job.opt.queries == queries:
                assert_unchanged(before, job.model, job.opt)
                early += 1
            else:  # it came after the commit, which then is whole
                assert_same(seen(job), expected)
                job, acts = build(entry)
                late += 1
        else:
            break
        k += every
    assert_same(seen(job), expected)
    return early, late


@pytest.mark.parametrize("name", FEW)
def test_operations_may_fail(name):
    for act in build(CATALOGUE[name])[1]:
        assert fail_each(CATALOGUE[name], act, Fault, every=29, first=1 + FEW.index(name)) > 60


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Fault, KeyboardInterrupt])
@pytest.mark.parametrize("name", CATALOGUE)
def test_any_operation_may_fail(name, kind):
    for act in build(CATALOGUE[name])[1]:
        assert fail_each(CATALOGUE[name], act, kind) > 60


@pytest.mark.parametrize("name", ["msvrm-v2-theory", "msvrm-v3-theory"])
def test_ctrl_c_may_come(name):
    for act in build(CATALOGUE[name])[1]:
        assert interrupt_each(CATALOGUE[name], act, every=37)[0] > 5


@pytest.mark.slow
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("name", FEW)
def test_ctrl_c_may_come_at_any_line(name, act):
    if act in build(CATALOGUE[name])[1]:
        early, late = interrupt_each(CATALOGUE[name], act)
        assert early > 150
        assert 0 < late < 100  # the lines of a commit, where Ctrl-C is held back


if __name__ == "__main__":
    for name, entry in CATALOGUE.items():
        counts = {act: fail_each(entry, act, Fault) for act in build(entry)[1]}
        row = [name, *(str(counts.get(act, "")) for act in ACTS)]
        sys.stdout.write("| " + " | ".join(row) + " |\n")
        sys.stdout.flush()


@pytest.mark.parametrize("k", [1, 10**9], ids=["interrupted", "not reached"])
def test_an_interrupt_leaves_a_debugger_where_it_was(k):
    """Also the count of covered lines, which the rest of a test run would lose."""

    def debugger(frame, event, argument):
        return None

    _, acts = build(CATALOGUE["sox"])
    before = sys.gettrace()
    sys.settrace(debugger)
    try:
        with pytest.raises(KeyboardInterrupt) if k == 1 else nullcontext(), interrupt_at(k):
            acts["step"]()
        assert sys.gettrace() is debugger
    finally:
        sys.settrace(before)
