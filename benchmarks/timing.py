"""Times of things that are compared: run in turn, and divided within a round."""

import statistics
import time
from dataclasses import asdict, dataclass

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
"""What a user waits for; and what is left of it on a machine that others use at the same time."""


@dataclass(frozen=True)
class Spread:
    """The median over rounds, and the quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values):
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)

    def json(self):
        return asdict(self)

    def __str__(self):
        return f"{self.median:.3f} ({self.low:.2f}–{self.high:.2f})"  # noqa: RUF001


def interleave(groups, seconds, warmup=2, before=None, clock=time.perf_counter):
    """The seconds of every run in every round: {group: {name: [seconds]}}.

    The runs of a group are what is compared: they come right after one another, so that whatever
    else the machine does meets all of them. Which group comes first, and which run of a group,
    changes from round to round.

    Args:
        groups: {group: {name: callable}}.
        seconds: about how long it may take; there are at least three rounds.
        warmup: rounds that do not count.
        before: called at the beginning of each round, and not timed.
        clock: what counts as time; see ``CLOCKS``.
    """
    times = {group: {name: [] for name in runs} for group, runs in groups.items()}
    begin, k = time.perf_counter(), -warmup
    while k < 3 or time.perf_counter() < begin + seconds:
        if before is not None:
            before()
        for group in _rotated(list(groups), k):
            for name in _rotated(list(groups[group]), k):
                start = clock()
                groups[group][name]()
                taken = clock() - start
                if k >= 0:
                    times[group][name].append(taken)
        k += 1
    return times


def ratio(times, name, base):
    """How long ``name`` takes in units of ``base``, round by round."""
    return Spread.of([a / b for a, b in zip(times[name], times[base], strict=True)])


def milliseconds(times, name):
    return statistics.median(times[name]) * 1e3


def _rotated(items, k):
    """Another order for each k: rotated, and backwards for every second one."""
    start = k // 2 % len(items)
    turned = items[start:] + items[:start]
    return turned[::-1] if k % 2 else turned
