"""Agreement of predicted risks with censored times."""

from torch import Tensor

from fcco.metrics.arguments import check_booleans, check_numbers, check_shape

__all__ = ["concordance_index"]

# Pairs held at a time: some tens of megabytes of comparisons.
_PAIRS = 1 << 24


def concordance_index(risk: Tensor, times: Tensor, events: Tensor) -> float:
    """Harrell's C: the share of the pairs with a known order that the risks order correctly.

    The order of i before j is known if i had its event at ``times[i]`` < ``times[j]``, or at
    ``times[i]`` = ``times[j]`` where j was censored. It is right if ``risk[i]`` > ``risk[j]``, and
    counts one half if the two are equal.

    Args:
        risk: (N,), higher for an earlier event.
        times: (N,), of the event or of the censoring.
        events: (N,) booleans, False for a censored time.

    Examples:
        >>> import torch
        >>> times, events = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, False, True])
        >>> concordance_index(torch.tensor([0.5, 0.9, 0.1]), times, events)
        0.5
    """
    check_shape("risk", risk, "N")
    check_shape("times", times, len(risk))
    check_shape("events", events, len(risk))
    check_booleans("events", events)
    check_numbers("risk", risk)
    check_numbers("times", times)
    known = right = tied = 0
    rows = max(_PAIRS // len(risk), 1)
    for own_risk, own_time in zip(risk[events].split(rows), times[events].split(rows), strict=True):
        later = times > own_time[:, None]
        later |= (times == own_time[:, None]) & ~events
        known += int(later.sum())
        right += int((later & (own_risk[:, None] > risk)).sum())
        tied += int((later & (own_risk[:, None] == risk)).sum())
    if known == 0:
        raise ValueError("events: no pair has a known order")
    return (2 * right + tied) / (2 * known)
