"""The derivative of inner values along a direction, by forward-mode differentiation."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd import forward_ad

from fcco.kernel.interrupts import defer_interrupts
from fcco.problem import Closure, Probe

__all__ = ["call_along"]


def call_along(
    closure: Closure, params: Sequence[Tensor], previous: Sequence[Tensor]
) -> tuple[Probe, Tensor | None]:
    """Return the closure's probe, and grad g_i(w_t; xi)^T (w_t - w_{t-1}) for each row: (k, p).

    Every parameter carries its tangent while the closure runs. The reverse pass must come after the
    dual level has ended. Inside, it would also compute tangents of gradients.
    """
    # torch allows one dual level at a time. If Ctrl-C came while the level is opened or closed,
    # torch would refuse every later one. So the interrupt waits for the forward pass.
    with defer_interrupts(), ExitStack() as stack:
        if "torch._dynamo" in sys.modules:  # compiled graphs drop tangents
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(forward_ad.dual_level())
        with torch.no_grad():
            for p, before in zip(params, previous, strict=True):
                p.copy_(forward_ad.make_dual(p.clone(), (p - before).to(p.dtype)))
        try:
            probe, derivative = _unpack(closure())
        except NotImplementedError as missing:
            raise NotImplementedError(
                "single_point=True needs forward-mode differentiation of the model, which one "
                "of its operations lacks; use single_point=False"
            ) from missing
    if (
        derivative is None
        and isinstance(probe, Probe)
        and isinstance(probe.values, Tensor)
        and probe.values.requires_grad
    ):
        raise ValueError(
            "single_point=True found no derivative of Probe.values along the parameters: "
            "something in the closure (a custom autograd Function, a reentrant checkpoint) "
            "drops forward-mode tangents"
        )
    return probe, derivative


def _unpack(probe: Probe) -> tuple[Probe, Tensor | None]:
    """Split dual values into the ordinary probe and the derivative of its values."""

    def primal(dual: Tensor | None) -> Tensor | None:
        return forward_ad.unpack_dual(dual).primal if isinstance(dual, Tensor) else dual

    if not isinstance(probe, Probe) or not isinstance(probe.values, Tensor):
        return probe, None  # the checks will report it
    scale = probe.log_scale
    if isinstance(scale, Tensor) and forward_ad.unpack_dual(scale).tangent is not None:
        raise ValueError(
            "single_point=True: Probe.log_scale has a derivative along the parameters; compute it "
            "from detached values, because torch.no_grad() does not stop forward mode"
        )
    values = forward_ad.unpack_dual(probe.values)
    tangent = values.tangent
    plain = replace(
        probe,
        values=values.primal,
        pair=primal(probe.pair),
        loss=primal(probe.loss),
    )
    return plain, None if tangent is None else tangent.detach().clone()
