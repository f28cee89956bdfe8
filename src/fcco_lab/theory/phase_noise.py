"""The phase-noise family: affine inner means, noise of known size, a known stationary point."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fcco.problem.objective import Objective
from fcco.problem.probe import Probe

__all__ = ["PHI", "PhaseNoise", "Phi"]


@dataclass(frozen=True)
class Phi:
    """An outer function phi of one variable, its derivative, and its known properties.

    Args:
        value: phi.
        slope: phi'.
        convex: whether phi is convex.
    """

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    convex: bool = False


PHI: dict[str, Phi] = {
    "quadratic": Phi(lambda u: u.square() / 2, lambda u: u, convex=True),
    # log cosh u = |u| + log(1 + exp(-2|u|)) - log 2, which does not overflow
    "log-cosh": Phi(
        lambda u: u.abs() + torch.log1p(torch.exp(-2 * u.abs())) - math.log(2),
        torch.tanh,
        convex=True,
    ),
    "non-convex": Phi(
        lambda u: u.square() / (1 + u.square()), lambda u: 2 * u / (1 + u.square()).square()
    ),
}
"""The outer functions of the family: quadratic, log-cosh and non-convex."""


class PhaseNoise(Objective):
    """g_i(w; xi) = a_i . (w - w*) + u*_i + s sin(o_i . w + xi),  xi uniform over phases.

    The mean over phases is affine, so g_i, F and its gradient are known exactly; values have
    variance s^2/2, Jacobians s^2 ||o_i||^2 / 2. The outer functions are
    f_i(u) = phi(u) - (phi'(u*_i) - c_i) u with sum_i c_i a_i = 0, so that w* is stationary while
    single blocks are not.

    Every method accepts leading batch dimensions (runs of a sweep).

    Args:
        num_blocks: m.
        dim: of w.
        phi: a key of ``PHI``.
        inner_size: n equispaced phases (a finite sum), at least 2; None: the whole circle.
        noise: s.
        distinct: the number of different blocks, repeated up to m, so that F does not change with
            m; None: all differ.
        isotropic: make A^T A / m the identity, so that the quadratic family has mu = L = 1.
        seed: the seed of the coefficients.

    Examples:
        >>> problem = PhaseNoise(8, phi="log-cosh")
        >>> bool(problem.gradient(problem.w_star).norm() < 1e-12)
        True
    """

    inner_dim = 1

    def __init__(
        self,
        num_blocks: int,
        *,
        dim: int = 4,
        phi: str = "log-cosh",
        inner_size: int | None = None,
        noise: float = 1.0,
        distinct: int | None = None,
        isotropic: bool = False,
        seed: int = 0,
    ) -> None:
        if inner_size is not None and inner_size < 2:
            raise ValueError(f"inner_size must be at least 2, got {inner_size}")
        base = num_blocks if distinct is None else min(distinct, num_blocks)
        if base <= dim or num_blocks % base:
            raise ValueError(
                "num_blocks must be a multiple of the number of distinct blocks, which must exceed "
                f"dim={dim}; got {num_blocks} and {base}"
            )
        self.num_blocks = num_blocks
        self.dim = dim
        self.phi = PHI[phi]
        self.inner_size = inner_size
        self.noise = noise
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        a, omega = normal(base, dim) / math.sqrt(dim), normal(base, dim) / math.sqrt(dim)
        if isotropic:
            a = torch.linalg.qr(a).Q * math.sqrt(base)
        u_star, c = normal(base), normal(base)
        # c is made orthogonal to the columns of a, so that w* is stationary.
        c = c - a @ torch.linalg.lstsq(a, c).solution
        copies = num_blocks // base
        self.a, self.omega = a.repeat(copies, 1), omega.repeat(copies, 1)
        self.u_star, self.c = u_star.repeat(copies), c.repeat(copies)
        self.w_star = normal(dim)
        self.start = self.w_star + normal(dim)
        self._tilt = self.phi.slope(self.u_star) - self.c

    # The oracle ---------------------------------------------------------------------------------

    def phases(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Random phases of the given shape."""
        if self.inner_size is None:
            return 2 * math.pi * torch.rand(shape, generator=generator, dtype=torch.float64)
        drawn = torch.randint(self.inner_size, shape, generator=generator)
        return drawn.double() * (2 * math.pi / self.inner_size)

    def sample(self, w: Tensor, blocks: Tensor, xi: Tensor) -> Tensor:
        """g_i(w; xi): w (dim), blocks (k) and xi (k) to (k)."""
        return self._mean(w, blocks) + self.noise * torch.sin(self._angle(w, blocks) + xi)

    def _mean(self, w: Tensor, blocks: Tensor) -> Tensor:
        shift = (w - self.w_star).unsqueeze(-2)
        mean: Tensor = (self.a[blocks] * shift).sum(-1) + self.u_star[blocks]
        return mean

    def _angle(self, w: Tensor, blocks: Tensor) -> Tensor:
        angle: Tensor = (self.omega[blocks] * w.unsqueeze(-2)).sum(-1)
        return angle

    # The objective ------------------------------------------------------------------------------

    def inner(self, model: Any, batch: tuple[Tensor, Tensor, Tensor]) -> Probe:
        """For the optimizer: ``model()`` gives w, the batch is (blocks, phases, second phases)."""
        blocks, xi, pair = batch
        w = model()
        return Probe(
            blocks,
            self.sample(w, blocks, xi).unsqueeze(-1),
            pair=self.sample(w, blocks, pair).unsqueeze(-1),
            noise=w.new_full((len(blocks), 1), self.noise / math.sqrt(2)),  # known without samples
        )

    def outer(self, u: Tensor, blocks: Tensor) -> Tensor:
        """f_i(u)."""
        value: Tensor = self.phi.value(u[..., 0]) - self._tilt[blocks] * u[..., 0]
        return value

    def slope(self, u: Tensor, blocks: Tensor) -> Tensor:
        """f_i'(u), for u of the shape of ``blocks``."""
        slope: Tensor = self.phi.slope(u) - self._tilt[blocks]
        return slope

    # Exact quantities ---------------------------------------------------------------------------

    def exact_inner(self, w: Tensor) -> Tensor:
        """g_i(w) of all blocks: (m)."""
        return self._mean(w, torch.arange(self.num_blocks))

    def value(self, w: Tensor) -> Tensor:
        """F(w)."""
        everything = torch.arange(self.num_blocks)
        value: Tensor = self.outer(self.exact_inner(w).unsqueeze(-1), everything).mean(-1)
        return value

    def gradient(self, w: Tensor) -> Tensor:
        """grad F(w): (dim)."""
        slopes = self.slope(self.exact_inner(w), torch.arange(self.num_blocks))
        gradient: Tensor = (slopes.unsqueeze(-1) * self.a).mean(-2)
        return gradient

    @property
    def optimum(self) -> float:
        """F_*, for a convex phi, where w* is the minimum."""
        if not self.phi.convex:
            raise ValueError("w* is known to be the minimum only for a convex phi")
        return float(self.value(self.w_star))

    @property
    def mu(self) -> float:
        """The strong convexity of the quadratic family: the least eigenvalue of A^T A / m."""
        return float(torch.linalg.eigvalsh(self.a.T @ self.a / self.num_blocks)[0])
