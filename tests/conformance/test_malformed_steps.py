"""A hundred thousand malformed steps: the right error for each, and nothing changed."""

import functools

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import CATALOGUE
from support.job import Job, assert_unchanged, capture

from fcco import Probe

M, B1, P = 6, 3, 2
"""Blocks, probed blocks and components of the job."""

WORDS = st.sampled_from([None, "3", 2.5, object(), [0, 1], b"", float("nan")])
NOT_FINITE = st.sampled_from([float("nan"), float("inf"), -float("inf")])
NO_FLOATS = st.sampled_from([torch.int64, torch.int8, torch.bool, torch.complex128, torch.uint8])
NO_INT64 = st.sampled_from([torch.int32, torch.int16, torch.bool, torch.float32, torch.complex64])
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
BAD_COUNTS = st.integers(-(2**62), 0) | st.integers(2**32 + 1, 2**62)


def spoiled(tensor, where, value):
    """A copy, still attached to the graph, with ``value`` in the entries ``where``."""
    mask = torch.zeros(tensor.shape, dtype=torch.bool).flatten()
    mask[torch.tensor(where) % mask.numel()] = True
    return torch.where(mask.view(tensor.shape), torch.as_tensor(value, dtype=tensor.dtype), tensor)


def some(data):
    return data.draw(st.lists(st.integers(0, 1000), min_size=1, max_size=4))


def other_than(shape):
    return SHAPES.filter(lambda found: found != shape)


def foreign_id(data, p):
    blocks = p.blocks.clone()
    wrong = st.integers(-(2**62), -1) | st.integers(M, 2**62)
    blocks[data.draw(st.integers(0, B1 - 1))] = data.draw(wrong)
    return {"blocks": blocks}, ValueError, "lie outside"


def repeated_id(data, p):
    row, further = data.draw(st.permutations(range(B1)))[:2]
    blocks = p.blocks.clone()
    blocks[row] = blocks[further]
    return {"blocks": blocks}, ValueError, "probed twice"


def ids_of_another_type(data, p):
    return {"blocks": p.blocks.to(data.draw(NO_INT64))}, ValueError, "blocks"


def ids_of_another_shape(data, p):
    shape = data.draw(other_than((B1,)))
    return {"blocks": torch.zeros(shape, dtype=torch.int64)}, ValueError, "Probe"


def values_of_another_shape(data, p):
    shape = data.draw(other_than((B1, P)))
    values = p.values.sum() * torch.ones(shape, dtype=p.values.dtype)
    return {"values": values}, ValueError, "values"


def values_of_another_type(data, p):
    return {"values": p.values.detach().to(data.draw(NO_FLOATS))}, ValueError, "values"


def values_not_finite(data, p):
    values = spoiled(p.values, some(data), data.draw(NOT_FINITE))
    return {"values": values}, FloatingPointError, "values"


def pair_not_finite(data, p):
    pair = spoiled(p.values, some(data), data.draw(NOT_FINITE))
    return {"pair": pair}, FloatingPointError, "pair"


def pair_of_another_shape(data, p):
    shape = data.draw(other_than((B1, P)))
    return {"pair": torch.zeros(shape, dtype=p.values.dtype)}, ValueError, "pair"


def loss_not_finite(data, p):
    return {"loss": p.values.sum() * 0 + data.draw(NOT_FINITE)}, FloatingPointError, "loss"


def loss_of_another_shape(data, p):
    shape = data.draw(other_than(()))
    return {"loss": torch.zeros(shape, dtype=p.values.dtype)}, ValueError, "loss"


def scale_of_a_plain_objective(data, p):
    return {"log_scale": torch.zeros(B1, dtype=p.values.dtype)}, ValueError, "log_scale"


def samples_out_of_range(data, p):
    return {"samples": data.draw(BAD_COUNTS)}, ValueError, "samples"


def samples_out_of_range_for_a_block(data, p):
    counts = torch.ones(B1, dtype=torch.int64)
    counts[data.draw(st.integers(0, B1 - 1))] = data.draw(BAD_COUNTS)
    return {"samples": counts}, ValueError, "samples"


def samples_of_another_shape(data, p):
    shape = data.draw(other_than((B1,)))
    return {"samples": torch.ones(shape, dtype=torch.int64)}, ValueError, "samples"


def a_word_for_a_tensor(data, p):
    name = data.draw(st.sampled_from(["blocks", "values", "samples", "pair", "loss", "log_scale"]))
    optional = name in ("pair", "loss", "log_scale")
    word = data.draw(WORDS.filter(lambda word: not (optional and word is None)))
    return {name: word}, ValueError, name


FAULTS = [
    foreign_id,
    repeated_id,
    ids_of_another_type,
    ids_of_another_shape,
    values_of_another_shape,
    values_of_another_type,
    values_not_finite,
    pair_not_finite,
    pair_of_another_shape,
    loss_not_finite,
    loss_of_another_shape,
    scale_of_a_plain_objective,
    samples_out_of_range,
    samples_out_of_range_for_a_block,
    samples_of_another_shape,
    a_word_for_a_tensor,
]


@functools.cache
def prepared(name, steps):
    """A job some steps on, a draw for the next one, and how all stands; it never gets further."""
    job = Job(CATALOGUE[name]).run(steps)
    job.snapshot()
    return job, job.draw(), capture(job.model, job.opt)


def malformed(name):
    """One example: a job, what is wrong with its next step, and at which of its points."""

    @given(data=st.data())
    def check(data):
        job, draw, before = prepared(name, data.draw(st.integers(0, 6)))
        torch.set_rng_state(before["rng"])
        fault = data.draw(st.sampled_from(FAULTS))
        verb = data.draw(st.sampled_from([job.opt.step, job.opt.estimate]))
        at = data.draw(st.integers(0, job.entry.points - 1))
        calls, expected = [], []

        def closure():
            probe = job.inner(draw)
            calls.append(probe)
            if len(calls) - 1 != at:
                return probe
            fields, error, word = fault(data, probe)
            expected[:] = [error, word]
            return Probe(**(vars(probe) | fields))

        caught = None
        try:
            verb(closure)
        except (ValueError, FloatingPointError) as error:
            caught = error
        if not expected:  # that point was not visited, and the step was a good one
            assert caught is None
            prepared.cache_clear()
            return
        kind, word = expected
        assert isinstance(caught, kind), (fault.__name__, caught)
        # Ids that are wrong at one point also differ from those at the others.
        assert word in str(caught) or "but [" in str(caught), (fault.__name__, caught)
        assert_unchanged(before, job.model, job.opt)

    return check


def run(name, examples):
    options = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}
    settings(max_examples=examples, **options)(malformed(name))()


@pytest.mark.parametrize("name", ["sox", "msvrm-v2-theory", "msvrm-v3-theory"])
def test_malformed_steps(name):
    run(name, 100)


@pytest.mark.slow
@pytest.mark.parametrize("name", CATALOGUE)
def test_a_hundred_thousand_malformed_steps(name):
    run(name, -(-100_000 // len(CATALOGUE)))
