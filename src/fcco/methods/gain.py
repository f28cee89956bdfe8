"""The gain: how much of a fresh value a row takes over, chosen by the data or by a rule.

    u_t = u + beta (g(w_t; xi) - u)

A row is off by its drift since its last visit, a fresh value by its sampling noise. With P and R
their mean squares, the error of u_t is least at

    beta = P / (P + R),

the gain of a scalar Kalman filter. A step sees both: the mean square of g(w_t; xi) - u is P + R,
and ``Probe.noise`` is the square root of R.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fcco.methods.weights import Scalar

__all__ = [
    "RULES",
    "SLOPE_AT",
    "START",
    "Beta",
    "Gain",
    "chosen_gain",
    "cosine_gain",
    "learns",
    "new_gain",
    "next_gain",
    "read_gain",
]

Beta = float | str | tuple[str, float]
"""The weight of the new in u: a number, "auto", or a rule of ``RULES`` with its number."""

START = 0.5
"""The gain until the noise was seen; it stays where an objective reports none."""

SLOPE_AT = 0.4
"""The place between row (0) and fresh value (1) whose slope converts errors of u to errors of f."""

_SMALLEST = 0.02
"""The least gain that is chosen: a row that takes over less would not notice that it is wrong."""

_WINDOW = 300
"""The rows that the means remember: enough to know beta to 0.1, and few enough to follow drift."""

_CLIP = 10
"""A step's mean square is clipped at this many times the running mean, against outlier batches."""

_ROWS, _EVERY = 8, 4
"""The memory learns from every step until it has seen 8 rows per step, then from each fourth."""

_LARGEST = torch.finfo(torch.float32).max


@dataclass(frozen=True, kw_only=True)
class Gain:
    """The gain of one step.

    Args:
        beta: the gain, or the number of a rule.
        rule: the name in ``RULES`` of what gives every row its own gain; None: all have ``beta``.
        auto: whether ``beta`` was chosen from what earlier steps saw.
        learns: whether the choice learns from this step.
    """

    beta: float
    rule: str | None = None
    auto: bool = False
    learns: bool = False

    def shares(self, old: Tensor, fresh: Tensor) -> tuple[Scalar, Scalar]:
        """Return 1 - beta and beta, of each row by the logarithms of its old and its fresh value.

        Only a rule reads the logarithms; without one both shares are numbers.
        """
        if self.rule is None:
            return 1 - self.beta, self.beta
        return RULES[self.rule](self.beta, old, fresh)


def read_gain(beta: Beta, memory: Tensor | None = None) -> Gain:
    """Return the gain of the next step; raise ``ValueError`` if ``beta`` is none.

    Args:
        beta: a number, "auto", or a rule with its number.
        memory: what "auto" chooses from, see ``new_gain``.

    Examples:
        >>> read_gain(0.3).beta, read_gain(("scent", 0.0)).rule, read_gain("auto").beta
        (0.3, 'scent', 0.5)
    """
    if isinstance(beta, float | int):
        if not 0 < beta <= 1:
            raise ValueError(f"beta must be a number in (0, 1], got {beta!r}")
        return Gain(beta=beta)
    if beta == "auto":
        if memory is None:
            return Gain(beta=START, auto=True)
        return Gain(beta=chosen_gain(memory), auto=True, learns=learns(memory))
    if isinstance(beta, tuple | list) and len(beta) == 2 and str(beta[0]) in RULES:
        rule, number = beta
        if isinstance(number, float | int) and (
            abs(number) < _LARGEST if rule == "scent" else 0 < number <= 1
        ):
            return Gain(beta=number, rule=rule)
    rules = ", ".join(f'("{name}", number)' for name in RULES)
    raise ValueError(f'beta must be a number in (0, 1], "auto" or one of {rules}, got {beta!r}')


def new_gain() -> Tensor:
    """An empty memory: steps, rows, and means of squared surprises and of squared noise.

    It lies on the host, in float64.
    """
    return torch.zeros(4, dtype=torch.float64, device="cpu")


def chosen_gain(memory: Tensor) -> float:
    """Return P / (P + R) of what was seen lately.

    Examples:
        >>> chosen_gain(new_gain()), chosen_gain(torch.tensor([7.0, 40.0, 4.0, 1.0]))
        (0.5, 0.75)
    """
    _, _, surprise, noise = memory.tolist()
    if surprise == 0:
        return START
    return float(min(max(1 - noise / surprise, _SMALLEST), 1.0))


def learns(memory: Tensor) -> bool:
    """Return whether the memory learns from the next step.

    Examples:
        >>> [step for step in range(10) if learns(torch.tensor([step, 40.0, 4.0, 1.0]))]
        [3, 5, 6, 7, 8, 9]
    """
    before, rows, *_ = memory.tolist()
    step = int(before) + 1
    return rows < _ROWS * step or step % _EVERY == 0


def next_gain(memory: Tensor, seen: Sequence[float]) -> Tensor:
    """Return the memory after a step.

    Args:
        memory: of the steps before.
        seen: the rows that were seen (not for the first time, and with known noise), and the sums
            of their squared surprises and of their squared noise; empty if nothing was learned.

    Examples:
        >>> next_gain(new_gain(), (2.0, 8.0, 2.0))
        tensor([1., 2., 4., 1.], dtype=torch.float64)
    """
    step, rows, *means = memory.tolist()
    if seen and seen[0]:
        count, *sums = seen
        if rows > _WINDOW and sums[0] > _CLIP * count * means[0] > 0:
            sums = [_CLIP * count * means[0] * x / sums[0] for x in sums]
        rows += count
        share = min(count / min(rows, _WINDOW), 1.0)
        means = [m + share * (x / count - m) for m, x in zip(means, sums, strict=True)]
    return memory.new_tensor([step + 1, rows, *means])


# Rules of others, as what each row keeps of itself and takes of the fresh value. ``old`` and
# ``fresh`` are logarithms of u and of g(w_t; xi).


def _scent(shift: float, old: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]:
    """SCENT: beta_i = sigmoid(shift + log u_i)."""
    return torch.sigmoid(-shift - old), torch.sigmoid(shift + old)


def _restart(beta: float, old: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]:
    """U-max: a fresh value that is e times the row replaces it."""
    above = fresh > old + 1
    share = torch.full_like(old, beta).masked_fill(above, 1.0)
    return 1 - share, share


def _log(beta: float, old: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]:
    """log u_t = (1 - beta) log u + beta log g: a row that averages logarithms."""
    move = (fresh - old).abs().clamp(min=1e-30)  # the limit of the shares at 0, without 0 / 0
    small, large = (torch.expm1(-x * move) / torch.expm1(-move) for x in (beta, 1 - beta))
    rises = fresh > old
    # What is kept of a falling row is small, and 1 minus the share would round it away.
    keep = torch.where(rises, large, large * torch.exp(-beta * move))
    return keep, torch.where(rises, small * torch.exp((beta - 1) * move), small)


RULES: dict[str, Callable[[float, Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "scent": _scent,
    "restart": _restart,
    "log": _log,
}
"""Shares per row, 1 - beta and beta, by name; each has one number."""


def cosine_gain(epoch: int, epochs: int, least: float = 0.2) -> float:
    """FastCLIP's gain: it falls from 1 to ``least`` along a cosine, epoch by epoch.

    It is a schedule: set ``group["beta"]`` of an optimizer, or ``criterion.beta`` of a loss.

    Examples:
        >>> [round(cosine_gain(epoch, 2), 6) for epoch in range(4)]
        [1.0, 0.6, 0.2, 0.2]
    """
    turn = torch.pi * min(epoch / max(epochs, 1), 1.0)
    return least + (1 - least) * (1 + float(torch.cos(torch.tensor(turn)))) / 2
