"""Peak memory of a piece of work, from the allocator's own events."""

import os

import torch
from torch.profiler import ProfilerActivity, profile, record_function

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else every start and stop is reported
MARK = "the run that counts"


def peak_bytes(run):
    """The most that ``run`` holds at a time beyond what was held before, in bytes.

    Every allocation of torch's CPU allocator counts, also those inside of operations; scratch
    space that a library (oneDNN, BLAS) takes for itself does not. The profiler knows the size of
    what is freed only if it saw it allocated, so there is a first run for it to see.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        run()
        with record_function(MARK):
            run()
    events = sorted(record.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    start = next(k for k, event in enumerate(events) if event.name() == MARK)
    held = peak = 0
    for event in events[start:]:
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def kept_bytes(optimizer):
    """What an optimizer remembers from step to step, in bytes."""
    kept = {}

    def add(entry):
        for value in entry.values():
            if isinstance(value, dict):
                add(value)
            elif isinstance(value, torch.Tensor):
                storage = value.untyped_storage()
                kept[storage.data_ptr()] = storage.nbytes()

    for state in optimizer.state.values():
        add(state)
    add(optimizer.state_dict()["param_groups"][-1])  # of ours, what all parameters share
    return sum(kept.values())
