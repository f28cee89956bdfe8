"""The oracle: the only place that moves parameters, calls closures and back-propagates."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import TracebackType

import torch
from torch import Tensor
from torch.autograd import forward_ad

from fcco.distributed import Reduction
from fcco.problem.probe import Closure, Closures, Probe
from fcco.distributed.sharded import local, written
from fcco.kernel.world import World

__all__ = ["Oracle", "Pull", "Response", "as_closures"]


@dataclass(frozen=True)
class Pull:
    """What to back-propagate from a probe: a cotangent for its values, a weight for its loss."""

    values: Tensor
    loss: float = 0.0


Response = Callable[[int, Probe, Tensor | None], Pull | None]
"""Sees micro-batch k's probe (and its directional derivative, if asked for) while the graph is
alive, and says what to back-propagate."""


def as_closures(closures: Closures) -> tuple[Closure, ...]:
    """One closure or several, as a tuple.

    Examples:
        >>> len(as_closures([lambda: None, lambda: None]))
        2
    """
    result = (closures,) if callable(closures) else tuple(closures or ())
    if not result or not all(callable(closure) for closure in result):
        raise ValueError("a closure, or a non-empty sequence of closures, is needed")
    return result


class Oracle(AbstractContextManager["Oracle"]):
    """One visit to the objective, at several points, with one and the same sample.

    The evaluation where the model stands consumes the RNG and changes the buffers like any training
    step; every other one starts from the same RNG state and the same buffers (so dropout masks and
    BatchNorm behave alike at all points) and leaves no trace. If anything raises inside the
    ``with`` block, parameters, buffers and RNG are bit-identical to before and ``.grad`` is empty.

    Args:
        params: the parameters that move.
        buffers: module buffers that a forward pass changes.
        reduction: says when gradients are averaged over ranks.
        rewind: leave no trace of the first evaluation either (exact passes).

    ``value_passes`` and ``gradient_passes`` count what was done, ``received`` says which
    parameters got a gradient.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        buffers: Sequence[Tensor],
        reduction: Reduction,
        *,
        rewind: bool = False,
    ) -> None:
        self._params = params
        self._buffers = buffers
        self._reduction = reduction
        self._rewind = rewind
        self.value_passes = 0
        self.gradient_passes = 0
        self.received = [False] * len(params)
        self._seen_here = False

    def __enter__(self) -> "Oracle":
        self.clear_gradients()
        self._before = World.capture(self._params, self._buffers)
        self._after: World | None = None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None or self._rewind:
            self._before.restore(self._buffers)
        elif self._after is not None:
            self._after.restore(self._buffers)
        if kind is not None:
            self.clear_gradients()
            self._reduction.forget()
        torch.clear_autocast_cache()  # it may hold casts of parameters at another point

    def clear_gradients(self) -> None:
        """Empty ``.grad``."""
        for p in self._params:
            p.grad = None

    def evaluate(
        self,
        closures: Sequence[Closure],
        respond: Response,
        *,
        at: Sequence[Tensor] | None = None,
        gradient: bool = True,
        direction: Sequence[Tensor] | None = None,
        into: list[Tensor] | None = None,
        last: bool = True,
    ) -> None:
        """Call every closure once at one point, and back-propagate what ``respond`` says.

        Args:
            closures: the micro-batches.
            respond: given each probe in turn.
            at: the parameters of the point; None: where the model stands.
            gradient: whether a reverse pass is wanted; else no graph is built.
            direction: also take the derivative of the values along it, by forward-mode AD.
            into: add the gradients to these tensors; None: they accumulate in ``.grad``.
            last: whether no further backward pass follows at another point; if they accumulate,
                only the last one of all is averaged over ranks.
        """
        if self.value_passes:
            if self._after is None and self._seen_here:
                self._after = World.capture(self._params, self._buffers)
            self._before.restore(self._buffers)
        self._seen_here |= at is None
        self.value_passes += 1 if direction is None else 2  # a tangent costs about a forward pass
        self.gradient_passes += gradient
        # Gradients of lower precision than the sum are added up there, not in ``.grad``.
        narrow = into is not None and any(
            p.dtype != total.dtype for p, total in zip(self._params, into, strict=True)
        )
        with ExitStack() as stack:
            if at is not None:
                stack.enter_context(_moved(self._params, at))
            # A cast that an outer autocast cached belongs to another point.
            torch.clear_autocast_cache()
            for k, closure in enumerate(closures):
                end = k + 1 == len(closures) and (into is not None or last)
                with self._reduction.around(last=narrow or end):
                    if self._evaluate_one(k, closure, respond, gradient, direction):
                        self._collect(into if narrow else None)
            if into is not None:
                self._collect(into)

    def _evaluate_one(
        self,
        k: int,
        closure: Closure,
        respond: Response,
        gradient: bool,
        direction: Sequence[Tensor] | None,
    ) -> bool:
        """Whether there was a backward pass."""
        derivative = None
        with torch.set_grad_enabled(gradient):
            if direction is None:
                probe = _call(closure)
            else:
                probe, derivative = self._call_along(closure, direction)
        pull = respond(k, probe, derivative)
        if pull is None or not gradient:
            return False
        roots, seeds = [], []
        if probe.values.requires_grad:
            roots.append(probe.values)
            seeds.append(pull.values.to(probe.values.dtype))
        if probe.loss is not None and probe.loss.requires_grad:
            roots.append(probe.loss)
            seeds.append(torch.full_like(probe.loss, pull.loss))
        if not roots:
            raise ValueError(
                "neither Probe.values nor Probe.loss depends on a trainable parameter: was the "
                "closure run under no_grad, or were the values detached?"
            )
        torch.autograd.backward(roots, seeds)
        return True

    def _collect(self, into: list[Tensor] | None) -> None:
        """Note who received a gradient, and move it to ``into`` if that is given."""
        places = set()
        for j, p in enumerate(self._params):
            grad = p.grad
            if grad is None:
                continue
            if grad.is_sparse:
                raise ValueError(
                    f"trainable parameter {j} has a sparse gradient, which is not supported "
                    "(nn.Embedding(sparse=True)?)"
                )
            self.received[j] = True
            if into is not None:
                local(into[j]).add_(local(grad))
                p.grad = None
            elif (place := local(grad).data_ptr()) in places:
                # Autograd may hand one buffer to two parameters (of a + b, say), and would then
                # accumulate the next point into it twice.
                p.grad = grad.clone()
            else:
                places.add(place)

    def _call_along(
        self, closure: Closure, direction: Sequence[Tensor]
    ) -> tuple[Probe, Tensor | None]:
        """Call with a tangent on every parameter, given in place; it ends with the dual level.

        The reverse pass comes after that: inside, it would carry tangents of gradients along.
        """
        with ExitStack() as stack:
            if "torch._dynamo" in sys.modules:  # compiled graphs carry no tangents
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(forward_ad.dual_level())
            with torch.no_grad():
                for p, tangent in zip(self._params, direction, strict=True):
                    p.copy_(forward_ad.make_dual(p.clone(), tangent.to(p.dtype)))
            try:
                probe, derivative = _unpack(_call(closure))
            except NotImplementedError as missing:
                raise NotImplementedError(
                    "single_point=True needs forward-mode differentiation of the model, which one "
                    "of its operations lacks; use single_point=False"
                ) from missing
        if derivative is None and isinstance(probe.values, Tensor) and probe.values.requires_grad:
            raise ValueError(
                "single_point=True found no derivative of Probe.values along the parameters: "
                "something in the closure (a custom autograd Function, a reentrant checkpoint) "
                "drops forward-mode tangents"
            )
        return probe, derivative


@contextmanager
def _moved(params: Sequence[Tensor], places: Sequence[Tensor]) -> Iterator[None]:
    """Stand at ``places``, then exactly where one stood before.

    In place and never through ``.data``: a graph still alive across the move then raises instead
    of giving wrong gradients.
    """
    parts = [local(p) for p in params]
    with torch.no_grad():
        here = torch._foreach_clone(parts)
        torch._foreach_copy_(parts, [local(place) for place in places])
    written(params)
    try:
        yield
    finally:
        with torch.no_grad():
            torch._foreach_copy_(parts, here)
        written(params)


def _call(closure: Closure) -> Probe:
    probe = closure()
    if not isinstance(probe, Probe):
        raise TypeError(f"the closure must return a Probe, got {type(probe).__name__}")
    return probe


def _unpack(probe: Probe) -> tuple[Probe, Tensor | None]:
    """Split dual values into the ordinary probe and the derivative of its values."""

    def primal(dual: Tensor | None) -> Tensor | None:
        return forward_ad.unpack_dual(dual).primal if isinstance(dual, Tensor) else dual

    if not isinstance(probe.values, Tensor):
        return probe, None  # for Probe.check to report
    values = forward_ad.unpack_dual(probe.values)
    tangent = values.tangent
    plain = replace(
        probe,
        values=values.primal,
        pair=primal(probe.pair),
        loss=primal(probe.loss),
        log_scale=primal(probe.log_scale),
    )
    return plain, None if tangent is None else tangent.detach().clone()
