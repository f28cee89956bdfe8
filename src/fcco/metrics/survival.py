"""Agreement of predicted risks with censored times."""

from torch import Tensor

from fcco.metrics.arguments import check_booleans, check_numbers, check_shape

__all__ = ["concordance_index"]

# Pairs held at a time: some tens of megabytes of comparisons.
_PAIRS = 1 << 24


def concordance_index(
    risk: Tensor, times: Tensor, events: Tensor, *, weights: Tensor | None = None
) -> float:
    """Harrell's C: the share of the pairs with a known order that the risks order correctly.

    The order of i before j is known if i had its event at ``times[i]`` < ``times[j]``, or at
    ``times[i]`` = ``times[j]`` where j was censored. It is right if ``risk[i]`` > ``risk[j]``, and
    counts one half if the two are equal.

    Args:
        risk: (N,), higher for an earlier event.
        times: (N,), of the event or of the censoring.
        events: (N,) booleans, False for a censored time.
        weights: (N,), a pair counts by the product of its two; all alike by default.

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
    if weights is not None:
        check_shape("weights", weights, len(risk))
        weights = weights.double()

    def total(pairs: Tensor, own: Tensor) -> float:
        if weights is None:
            return int(pairs.sum())
        return float(weights[own] @ (pairs.double() @ weights))

    known = right = tied = 0.0
    for own in events.nonzero().flatten().split(max(_PAIRS // len(risk), 1)):
        later = times > times[own, None]
        later |= (times == times[own, None]) & ~events
        known += total(later, own)
        right += total(later & (risk[own, None] > risk), own)
        tied += total(later & (risk[own, None] == risk), own)
    if known == 0:
        raise ValueError("events: no pair has a known order")
    return (2 * right + tied) / (2 * known)
