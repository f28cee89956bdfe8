"""The gain beta, which is the weight of a fresh value in a row, chosen by the data or by a rule.

    u_t = u + beta (g(w_t; xi) - u)

The error of a row is its drift since its last visit. The error of a fresh value is its sampling
noise. Let P and R be the mean squares of drift and noise. The error of u_t is least at

    beta = P / (P + R),

which is the gain of a scalar Kalman filter. A step observes both: the mean square of
g(w_t; xi) - u is P + R, and ``Probe.noise`` is the square root of R.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real

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
"""Weight of the fresh value in u: a number, "auto", or a rule of ``RULES`` with its number."""

START = 0.5
"""Gain until the noise is known. It is kept if an objective does not report the noise."""

SLOPE_AT = 0.4
"""Interpolation weight between u and g at which f' converts errors of u into errors of f(u)."""

_SMALLEST = 0.02
"""Smallest gain that is chosen. With a smaller one, a row would not notice that it is wrong."""

_WINDOW = 300
"""Number of rows in the running means. It determines beta to 0.1 and still follows the drift."""

_CLIP = 10
"""A step's mean square is clipped at this many times the running mean, against outlier batches."""

_ROWS, _EVERY = 8, 4
"""The running means use every step until they have 8 rows per step, then every fourth step."""

_LARGEST = torch.finfo(torch.float32).max


@dataclass(frozen=True, kw_only=True)
class Gain:
    """The gain of one step.

    Args:
        beta: the gain, or the number that a rule takes.
        rule: the name of a rule in ``RULES`` that gives every row its own gain, or None if all
            rows have the gain ``beta``.
        auto: whether ``beta`` was chosen from the observations of earlier steps.
        learns: whether this step will be used to choose later gains.
    """

    beta: float
    rule: str | None = None
    auto: bool = False
    learns: bool = False

    def shares(self, old: Tensor, fresh: Tensor) -> tuple[Scalar, Scalar]:
        """Return 1 - beta and beta, as numbers or, for a rule, as one number per row.

        Args:
            old: (k, 1), the logarithms of the rows, which only a rule uses.
            fresh: (k, 1), the logarithms of the fresh values.
        """
        if self.rule is None:
            return 1 - self.beta, self.beta
        return RULES[self.rule](self.beta, old, fresh)


def read_gain(beta: Beta, memory: Tensor | None = None) -> Gain:
    """Return the gain of the next step; raise a ``ValueError`` if ``beta`` is invalid.

    Args:
        beta: a number, "auto", or a rule with its number.
        memory: the numbers from which "auto" is chosen, see ``new_gain``.

    Examples:
        >>> read_gain(0.3).beta, read_gain(("scent", 0.0)).rule, read_gain("auto").beta
        (0.3, 'scent', 0.5)
    """
    if isinstance(beta, float | int | Real):  # also NumPy's numbers, but Python's at once
        if not 0 < beta <= 1:
            raise ValueError(f"beta must be a number in (0, 1], got {beta!r}")
        return Gain(beta=float(beta))
    if beta == "auto":
        if memory is None:
            return Gain(beta=START, auto=True)
        return Gain(beta=chosen_gain(memory), auto=True, learns=learns(memory))
    if isinstance(beta, tuple | list) and len(beta) == 2 and str(beta[0]) in RULES:
        rule, number = beta
        if isinstance(number, Real) and (
            abs(number) < _LARGEST if rule == "scent" else 0 < number <= 1
        ):
            return Gain(beta=float(number), rule=rule)
    rules = ", ".join(f'("{name}", number)' for name in RULES)
    raise ValueError(f'beta must be a number in (0, 1], "auto" or one of {rules}, got {beta!r}')


def new_gain() -> Tensor:
    """Return an empty memory: steps, rows, and means of squared surprises and of squared noise.

    It is a float64 tensor on the CPU, so that reading it costs no transfer.
    """
    return torch.zeros(4, dtype=torch.float64, device="cpu")


def chosen_gain(memory: Tensor) -> float:
    """Return P / (P + R), estimated from recent steps.

    Examples:
        >>> chosen_gain(new_gain()), chosen_gain(torch.tensor([7.0, 40.0, 4.0, 1.0]))
        (0.5, 0.75)
    """
    # The mean squared surprise estimates P + R and the mean squared noise R, so that
    # P / (P + R) = 1 - noise / surprise.
    _, _, surprise, noise = memory.tolist()
    if surprise == 0:
        return START
    return float(min(max(1 - noise / surprise, _SMALLEST), 1.0))


def learns(memory: Tensor) -> bool:
    """Return whether the next step will be used.

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
        memory: the memory of the earlier steps.
        seen: the number of observed rows, and the sums of their squared surprises and of their
            squared noise. Rows count if they had a value before and their noise is known. It is
            empty if the step was not used.

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
        # An ordinary mean at first, and an exponential average once the window is full.
        share = min(count / min(rows, _WINDOW), 1.0)
        means = [m + share * (x / count - m) for m, x in zip(means, sums, strict=True)]
    return memory.new_tensor([step + 1, rows, *means])


# Rules of other papers. Each returns the weight of the old row and the weight of the fresh value.
# ``old`` and ``fresh`` are logarithms of u and of g(w_t; xi).


def _scent(shift: float, old: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of SCENT, beta_i = sigmoid(shift + log u_i)."""
    return torch.sigmoid(-shift - old), torch.sigmoid(shift + old)


def _restart(beta: float, old: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of U-max: a fresh value above e times the row replaces it."""
    above = fresh > old + 1
    share = torch.full_like(old, beta).masked_fill(above, 1.0)
    return 1 - share, share


def _log(beta: float, old: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights for which log u_t = (1 - beta) log u + beta log g."""
    # The weights are (e^(beta d) - 1) / (e^d - 1) and its complement, for d = log g - log u. At
    # d = 0 they are 0 / 0, and the clamp gives their limit.
    move = (fresh - old).abs().clamp(min=1e-30)
    small, large = (torch.expm1(-x * move) / torch.expm1(-move) for x in (beta, 1 - beta))
    rises = fresh > old
    # The weight of a falling row is small, so 1 minus the other weight would round it to 0.
    keep = torch.where(rises, large, large * torch.exp(-beta * move))
    return keep, torch.where(rises, small * torch.exp((beta - 1) * move), small)


RULES: dict[str, Callable[[float, Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "scent": _scent,
    "restart": _restart,
    "log": _log,
}
"""Rules by name. Each takes one number and returns the weights 1 - beta and beta of every row."""


def cosine_gain(epoch: int, epochs: int, least: float = 0.2) -> float:
    """Return FastCLIP's gain, which falls from 1 to ``least`` along a cosine over the epochs.

    To use this schedule, set ``group["beta"]`` of an optimizer, or ``criterion.beta`` of a loss.

    Args:
        epoch: the current epoch, counted from 0.
        epochs: the number of epochs after which the gain is ``least``.
        least: the final gain.

    Examples:
        >>> [round(cosine_gain(epoch, 2), 6) for epoch in range(4)]
        [1.0, 0.6, 0.2, 0.2]
    """
    turn = torch.pi * min(epoch / max(epochs, 1), 1.0)
    return least + (1 - least) * (1 + float(torch.cos(torch.tensor(turn)))) / 2
