"""Adam- and AMSGrad-style steps (appendix, equation ``rule1``)."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fcco.distributed.sharded import global_norm, locals_of
from fcco.updates.update import Norm, Update, clip_scale

__all__ = ["AMSGrad", "Adam"]


class SecondMoment(Update):
    """A step divided by the root of a second moment h of z; what h is, a subclass says."""

    moments: tuple[str, ...] = ("h",)
    """What is remembered for each parameter, zero at first."""

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

    @abstractmethod
    def moment(self, h: list[Tensor], states: Sequence[dict[str, Any]]) -> list[Tensor]:
        """h_t of every parameter, given h'_t."""

    def init(self, z: Tensor) -> dict[str, Tensor]:
        """Zero moments, and the weight that corrects their bias."""
        # h_weight follows h's own recursion on a stream of ones, so it is 1 - beta2^t for this
        # very parameter, also for one that joined late.
        return {name: torch.zeros_like(z) for name in self.moments} | {"h_weight": z.new_zeros(())}

    def directions(
        self,
        zs: Sequence[Tensor],
        states: Sequence[dict[str, Any]],
        norm: Norm = global_norm,
    ) -> list[Tensor]:
        """Advance h, then divide the (projected) z by its root."""
        scale = None if self.radius is None else clip_scale(zs, self.radius, norm)
        z = locals_of(zs)
        h = locals_of([state["h"] for state in states])
        weight = locals_of([state["h_weight"] for state in states])
        torch._foreach_mul_(h, self.beta2)
        torch._foreach_addcmul_(h, z, z, value=1 - self.beta2)
        torch._foreach_mul_(weight, self.beta2)
        torch._foreach_add_(weight, 1 - self.beta2)
        h = self.moment(h, states)
        # In place from here on: fresh memory for every operation costs more than the arithmetic.
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


class Adam(SecondMoment):
    """d_t = Pi[z_t] / (sqrt(h_t) + eps),  h_t = beta2 h_{t-1} + (1 - beta2) z_t^2,  h_0 = 0.

    Args:
        beta2: memory of the second moment; the paper's beta' is 1 - beta2.
        eps: the paper's delta.
        radius: of the ball z_t is projected onto, only in the direction (C_F in the paper's
            analysis); None: no projection.
        bias_correction: divide h_t by 1 - beta2^t as torch's Adam does; False is the paper's rule.

    Examples:
        >>> Adam().directions([z := torch.tensor([2.0])], [Adam().init(z)])
        [tensor([1.])]
    """

    def moment(self, h: list[Tensor], states: Sequence[dict[str, Any]]) -> list[Tensor]:
        """h_t = h'_t."""
        return h


class AMSGrad(SecondMoment):
    """Adam's step with the running maximum of h_t in the place of h_t.

    The arguments are those of ``Adam``; with ``bias_correction`` it is the maximum that is
    corrected, as torch's ``amsgrad=True`` does.

    Examples:
        >>> AMSGrad().directions([z := torch.tensor([2.0])], [AMSGrad().init(z)])
        [tensor([1.])]
    """

    moments = ("h", "h_max")

    def moment(self, h: list[Tensor], states: Sequence[dict[str, Any]]) -> list[Tensor]:
        """h_t = max(h_{t-1}, h'_t)."""
        h_max = locals_of([state["h_max"] for state in states])
        torch._foreach_maximum_(h_max, h)
        return h_max
