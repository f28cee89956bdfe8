"""Step rules: how the estimate z_t becomes the direction d_t of w_{t+1} = w_t - lr d_t."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fcco.distributed.sharded import global_norm, local, locals_of

__all__ = ["AMSGrad", "Adam", "Norm", "Normalized", "Plain", "Projected", "Update"]

Norm = Callable[[Sequence[Tensor]], Tensor]
"""A function that returns the Euclidean norm of all parameters together."""


class Update(ABC):
    """A step rule, which computes the direction d_t from z_t; the recursion of z never uses d_t.

    An update object holds only settings. Its state is in ``optimizer.state[p]``.
    """

    def init(self, z: Tensor) -> dict[str, Tensor]:
        """Return the initial state of one parameter, given its z, which is zero."""
        return {}

    @abstractmethod
    def directions(
        self,
        zs: Sequence[Tensor],
        states: Sequence[dict[str, Any]],
        norm: Norm = global_norm,
    ) -> list[Tensor]:
        """Return d_t for every parameter; for a sharded parameter the local part is enough.

        Args:
            zs: z_t of every parameter, which must not be changed.
            states: the state of every parameter, which is updated in place.
            norm: the function that computes the norm of all parameters together.
        """


class Plain(Update):
    """The plain step, d_t = z_t (Algorithms 1 and 2).

    Examples:
        >>> Plain().directions([torch.tensor([2.0])], [{}])
        [tensor([2.])]
    """

    def directions(
        self, zs: Sequence[Tensor], states: Sequence[dict[str, Any]], norm: Norm = global_norm
    ) -> list[Tensor]:
        """Return z itself."""
        return list(zs)


class Normalized(Update):
    """The normalized step, d_t = z_t / ||z_t|| (AdaMSVRM; ``new:1`` to ``new:3``).

    The norm is over all parameters together. At z_t = 0 the step is zero.

    Examples:
        >>> Normalized().directions([torch.tensor([3.0, 4.0])], [{}])
        [tensor([0.6000, 0.8000])]
    """

    def directions(
        self, zs: Sequence[Tensor], states: Sequence[dict[str, Any]], norm: Norm = global_norm
    ) -> list[Tensor]:
        """Divide every z by the common norm."""
        size = norm(zs)
        # At z = 0 this avoids 0 / 0, and the direction is 0.
        size = size.where(size > 0, 1.0)
        return [local(z) / size.to(z.device) for z in zs]


class Projected(Update):
    """The projected step, d_t = z_t min(1, radius / ||z_t||).

    This is Lemma ``lem:main3``, case (ii), with radius = C_F. The recursion keeps the raw z_t.

    Examples:
        >>> Projected(radius=1.0).directions([torch.tensor([3.0, 4.0])], [{}])
        [tensor([0.6000, 0.8000])]
    """

    def __init__(self, radius: float) -> None:
        if not radius > 0:
            raise ValueError(f"Projected: radius must be positive, got {radius}")
        self.radius = radius

    def directions(
        self, zs: Sequence[Tensor], states: Sequence[dict[str, Any]], norm: Norm = global_norm
    ) -> list[Tensor]:
        """Return z, or its projection onto the ball."""
        scale = _clip_scale(zs, self.radius, norm)
        return [local(z) * scale.to(z.device) for z in zs]


class Adam(Update):
    """The step of Adam, with z_t as its first moment (Appendix, equation ``rule1``).

        d_t = Pi[z_t] / (sqrt(h_t) + eps),  h_t = beta2 h_{t-1} + (1 - beta2) z_t^2,  h_0 = 0.

    Args:
        beta2: the decay rate of the second moment; the paper's beta' is 1 - beta2.
        eps: the number that is added to the root, the paper's delta.
        radius: the radius of the ball onto which z_t is projected in the direction (C_F in the
            paper's analysis), or None for no projection. h_t uses the raw z_t.
        bias_correction: whether h_t is divided by 1 - beta2^t, as in torch's Adam. The paper's
            rule has no such correction.

    Examples:
        >>> Adam().directions([z := torch.tensor([2.0])], [Adam().init(z)])
        [tensor([1.])]
    """

    def __init__(
        self,
        beta2: float = 0.999,
        eps: float = 1e-8,
        radius: float | None = None,
        bias_correction: bool = True,
    ) -> None:
        name = type(self).__name__
        if not 0 <= beta2 < 1:
            raise ValueError(f"{name}: beta2 must lie in [0, 1), got {beta2}")
        if not eps > 0:
            raise ValueError(f"{name}: eps must be positive, got {eps}")
        if radius is not None and not radius > 0:
            raise ValueError(f"{name}: radius must be positive, got {radius}")
        self.beta2 = beta2
        self.eps = eps
        self.radius = radius
        self.bias_correction = bias_correction

    def init(self, z: Tensor) -> dict[str, Tensor]:
        """Return a zero second moment, and the weight that corrects its bias."""
        # h_weight follows the recursion of h for z = 1, so it equals 1 - beta2^t. Here t counts
        # the steps of this parameter, which may have been added late.
        return {"h": torch.zeros_like(z), "h_weight": z.new_zeros(())}

    def directions(
        self, zs: Sequence[Tensor], states: Sequence[dict[str, Any]], norm: Norm = global_norm
    ) -> list[Tensor]:
        """Update h, then divide the (projected) z by its root."""
        scale = None if self.radius is None else _clip_scale(zs, self.radius, norm)
        z = locals_of(zs)
        h = locals_of([state["h"] for state in states])
        weight = locals_of([state["h_weight"] for state in states])
        torch._foreach_mul_(h, self.beta2)
        torch._foreach_addcmul_(h, z, z, value=1 - self.beta2)
        # h_weight = beta2 h_weight + (1 - beta2), the same recursion as that of h.
        torch._foreach_mul_(weight, self.beta2)
        torch._foreach_add_(weight, 1 - self.beta2)
        h = self._moment(h, states)
        # Work in place from here on: new memory for every operation costs more than arithmetic.
        directions = (
            torch._foreach_div(h, weight) if self.bias_correction else list(map(torch.clone, h))
        )
        torch._foreach_sqrt_(directions)
        torch._foreach_add_(directions, self.eps)
        torch._foreach_reciprocal_(directions)
        torch._foreach_mul_(directions, z)
        if scale is not None:
            directions = tuple(d.mul_(scale.to(d.device)) for d in directions)
        return list(directions)

    def _moment(self, h: list[Tensor], states: Sequence[dict[str, Any]]) -> list[Tensor]:
        """Return the number under the root, given h_t."""
        return h


class AMSGrad(Adam):
    """The step of AMSGrad, which is Adam's with the running maximum of h_t in place of h_t.

    The arguments are those of ``Adam``. With ``bias_correction``, the maximum is corrected, as
    torch's ``amsgrad=True`` does.

    Examples:
        >>> AMSGrad().directions([z := torch.tensor([2.0])], [AMSGrad().init(z)])
        [tensor([1.])]
    """

    def init(self, z: Tensor) -> dict[str, Tensor]:
        """Return zero moments, and the weight that corrects their bias."""
        return super().init(z) | {"h_max": torch.zeros_like(z)}

    def _moment(self, h: list[Tensor], states: Sequence[dict[str, Any]]) -> list[Tensor]:
        # The maximum is over the raw moments, before any bias correction.
        h_max = locals_of([state["h_max"] for state in states])
        torch._foreach_maximum_(h_max, h)
        return h_max


def _clip_scale(zs: Sequence[Tensor], radius: float, norm: Norm) -> Tensor:
    """Return min(1, radius / ||z||), the factor of the projection onto a ball."""
    size = norm(zs)
    return (radius / size.where(size > 0, radius)).clamp(max=1.0)
