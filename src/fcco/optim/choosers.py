"""The optimizers by name; each class chooses a method of ``fcco.methods``."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from fcco import methods
from fcco.distributed import Ranks
from fcco.kernel.safeguard import ChangeBound
from fcco.kernel.storage import Place
from fcco.methods import Beta, Gamma, Method, find
from fcco.optim.optimizer import CompositionalOptimizer, Params
from fcco.problem import Objective
from fcco.updates import Update

__all__ = ["BSGD", "MSVRM", "SOAP", "SOX", "SVRG", "FreshPair", "Variant", "by_name"]

_MSVRM = {1: methods.MSVRM_V1, 2: methods.MSVRM_V2, 3: methods.MSVRM_V3}
_SINGLE_POINT = {1: methods.SINGLE_POINT_V1, 2: methods.SINGLE_POINT_V2}
_FRESH_PAIR = {1: methods.FRESH_PAIR_V1, 2: methods.FRESH_PAIR_V2, 3: methods.FRESH_PAIR_V3}
_VARIANT = {1: methods.VARIANT_V1, 2: methods.VARIANT_V2, 3: methods.VARIANT_V3}


class SOX(CompositionalOptimizer):
    """SOX: moving averages of the inner values and of the gradient (``SOXE``, ``momentum``).

        u_t = (1 - beta) u_{t-1} + beta g(w_t; xi)       z_t = (1 - alpha) z_{t-1} + alpha G(w_t)

    A step evaluates one point, which takes one value and one gradient per inner sample.

    Args:
        params: the model or its parameters, see ``CompositionalOptimizer``.
        objective: the problem.
        lr: the step size.
        alpha: the weight of the new gradient in z, in (0, 1].
        beta: the weight of the fresh value in u, in (0, 1], or "auto".
        updated_slopes: whether slopes are taken at u_t instead of u_{t-1}, as SOX's own code and
            LibAUC do. This helps if a block is sampled so rarely that u_{t-1} is out of date.

    All further arguments are those of ``CompositionalOptimizer``.
    """

    def __init__(
        self,
        params: Params,
        objective: Objective,
        *,
        lr: float,
        alpha: float = 0.5,
        beta: Beta = "auto",
        updated_slopes: bool = False,
        update: Update | None = None,
        buffers: Iterable[Tensor] = (),
        initial: Tensor | float | None = None,
        weight_decay: float = 0.0,
        table_on: Place = None,
        ranks: Ranks | None = None,
    ) -> None:
        super().__init__(
            params,
            objective,
            # Where slopes are taken is a part of the method, not a coefficient.
            methods.SOX.updated() if updated_slopes else methods.SOX,
            update,
            lr=lr,
            alpha=alpha,
            beta=beta,
            buffers=buffers,
            initial=initial,
            weight_decay=weight_decay,
            table_on=table_on,
            ranks=ranks,
        )


class SOAP(CompositionalOptimizer):
    """SOAP, which is SOX without momentum (alpha = 1). The arguments are those of ``SOX``."""

    def __init__(
        self,
        params: Params,
        objective: Objective,
        *,
        lr: float,
        beta: Beta = "auto",
        updated_slopes: bool = False,
        update: Update | None = None,
        buffers: Iterable[Tensor] = (),
        initial: Tensor | float | None = None,
        weight_decay: float = 0.0,
        table_on: Place = None,
        ranks: Ranks | None = None,
    ) -> None:
        super().__init__(
            params,
            objective,
            methods.SOAP.updated() if updated_slopes else methods.SOAP,
            update,
            lr=lr,
            alpha=1.0,
            beta=beta,
            buffers=buffers,
            initial=initial,
            weight_decay=weight_decay,
            table_on=table_on,
            ranks=ranks,
        )


class MSVRM(CompositionalOptimizer):
    """MSVRM, the paper's methods: u is corrected by the change of g since the last step (``MSVR``).

        u_t = (1 - beta) u_{t-1} + beta g(w_t; xi) + gamma (g(w_t; xi) - g(w_{t-1}; xi))

    Args:
        params: the model or its parameters, see ``CompositionalOptimizer``.
        objective: the problem.
        version: how z is formed. Version 1 uses a moving average (``momentum``) and version 2 uses
            STORM (``eqn:z``). Version 3 uses STORM with u and z anchored at exact passes
            (``MSVR_SVRG``, ``eqn:z+``): call ``snapshot`` whenever ``snapshot_due`` is true.
        lr: the step size.
        alpha: the weight of the new gradient in z, in (0, 1].
        beta: the weight of the fresh value in u, in (0, 1].
        gamma: the strength of the correction. "age" grows with the number of steps since the last
            visit of a row, "theory" is the paper's, "storm" is 1 - beta, the naive STORM of the
            paper's introduction. A number is used as it is.
        single_point: whether the change of g is computed from its derivative at w_t (``MSVR-SP``;
            versions 1 and 2).
        updated_slopes: whether slopes are taken at u_t instead of u_{t-1}, see ``SOX`` (versions 1
            and 2).
        one_slope: whether the slopes at w_t and at w_{t-1} are both taken at u_{t-1} (version 2).
        snapshot_every: the number of steps between exact passes (version 3), or None to leave
            them to you.

    All further arguments are those of ``CompositionalOptimizer``.
    """

    def __init__(
        self,
        params: Params,
        objective: Objective,
        *,
        version: int,
        lr: float,
        alpha: float = 0.5,
        beta: Beta = 0.5,
        gamma: Gamma = "age",
        single_point: bool = False,
        updated_slopes: bool = False,
        one_slope: bool = False,
        update: Update | None = None,
        snapshot_every: int | None = None,
        buffers: Iterable[Tensor] = (),
        initial: Tensor | float | None = None,
        weight_decay: float = 0.0,
        safeguard: ChangeBound | None = None,
        table_on: Place = None,
        ranks: Ranks | None = None,
    ) -> None:
        method = _choose(_SINGLE_POINT if single_point else _MSVRM, version)
        super().__init__(
            params,
            objective,
            _with_slopes(method, updated_slopes=updated_slopes, one_slope=one_slope),
            update,
            lr=lr,
            alpha=alpha,
            beta=beta,
            gamma=gamma,
            snapshot_every=snapshot_every,
            buffers=buffers,
            initial=initial,
            weight_decay=weight_decay,
            safeguard=safeguard,
            table_on=table_on,
            ranks=ranks,
        )


class SVRG(CompositionalOptimizer):
    """SVRG: values and gradients are differences from the last exact pass, at w_s.

        u_i = g_i(w_t; xi) - g_i(w_s; xi) + g_i(w_s)
        z_t = grad g(w_t; xi)^T grad f(u) - grad g(w_s; xi)^T grad f(g(w_s)) + grad F(w_s)

    It is the two-point form of version 3 of ``MSVRM``, without a memory between steps. Use it for
    finite inner sums and high accuracy. Call ``snapshot`` whenever ``snapshot_due`` is true.
    ``alpha`` below 1 adds momentum. All further arguments are those of ``CompositionalOptimizer``.
    """

    def __init__(
        self,
        params: Params,
        objective: Objective,
        *,
        lr: float,
        alpha: float = 1.0,
        update: Update | None = None,
        snapshot_every: int | None = None,
        buffers: Iterable[Tensor] = (),
        weight_decay: float = 0.0,
        table_on: Place = None,
        ranks: Ranks | None = None,
    ) -> None:
        super().__init__(
            params,
            objective,
            methods.SVRG,
            update,
            lr=lr,
            alpha=alpha,
            beta=1.0,
            snapshot_every=snapshot_every,
            buffers=buffers,
            weight_decay=weight_decay,
            table_on=table_on,
            ranks=ranks,
        )


class FreshPair(CompositionalOptimizer):
    """Methods for outer functions with affine slopes, which need no table.

        G(w) = (1/B1) sum_i grad f_i(g_i(w; xi'))^T grad g_i(w; xi)

    G is unbiased, because xi and xi' are two independent samples of each block. The Probe that the
    closure returns must have ``pair``, the values under xi'. ``version`` is 1, 2 or 3 as for
    ``MSVRM``. All further arguments are those of ``CompositionalOptimizer``.
    """

    def __init__(
        self,
        params: Params,
        objective: Objective,
        *,
        version: int,
        lr: float,
        alpha: float = 0.5,
        update: Update | None = None,
        snapshot_every: int | None = None,
        buffers: Iterable[Tensor] = (),
        weight_decay: float = 0.0,
        safeguard: ChangeBound | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        super().__init__(
            params,
            objective,
            _choose(_FRESH_PAIR, version),
            update,
            lr=lr,
            alpha=alpha,
            snapshot_every=snapshot_every,
            buffers=buffers,
            weight_decay=weight_decay,
            safeguard=safeguard,
            ranks=ranks,
        )


class BSGD(CompositionalOptimizer):
    """BSGD, biased mini-batch descent: slopes are taken at fresh values, and there is no table.

    ``alpha`` below 1 adds momentum. All further arguments are those of ``CompositionalOptimizer``.
    """

    def __init__(
        self,
        params: Params,
        objective: Objective,
        *,
        lr: float,
        alpha: float = 1.0,
        update: Update | None = None,
        buffers: Iterable[Tensor] = (),
        weight_decay: float = 0.0,
        ranks: Ranks | None = None,
    ) -> None:
        super().__init__(
            params,
            objective,
            methods.BSGD,
            update,
            lr=lr,
            alpha=alpha,
            buffers=buffers,
            weight_decay=weight_decay,
            ranks=ranks,
        )


class Variant(CompositionalOptimizer):
    """The paper's ablation: every row of u shrinks in a step, and sampled rows are scaled by m/B1.

    It exists for comparisons and is not meant for training. ``version`` is 1, 2 or 3 as for
    ``MSVRM``. All further arguments are those of ``CompositionalOptimizer``.
    """

    def __init__(
        self,
        params: Params,
        objective: Objective,
        *,
        version: int,
        lr: float,
        alpha: float = 0.5,
        beta: float = 0.5,
        update: Update | None = None,
        snapshot_every: int | None = None,
        buffers: Iterable[Tensor] = (),
        initial: Tensor | float | None = None,
        weight_decay: float = 0.0,
        safeguard: ChangeBound | None = None,
        table_on: Place = None,
        ranks: Ranks | None = None,
    ) -> None:
        super().__init__(
            params,
            objective,
            _choose(_VARIANT, version),
            update,
            lr=lr,
            alpha=alpha,
            beta=beta,
            snapshot_every=snapshot_every,
            buffers=buffers,
            initial=initial,
            weight_decay=weight_decay,
            safeguard=safeguard,
            table_on=table_on,
            ranks=ranks,
        )


def by_name(
    name: str,
    params: Params,
    objective: Objective,
    *,
    updated_slopes: bool = False,
    one_slope: bool = False,
    **settings: Any,
) -> CompositionalOptimizer:
    """Build the optimizer of a method in ``fcco.methods.REGISTRY``.

    A coefficient that the method does not have is ignored, so that one dictionary of settings can
    be used for all methods of a comparison.

    Args:
        name: the name of the method.
        params: the model or its parameters, see ``CompositionalOptimizer``.
        objective: the problem.
        updated_slopes: whether slopes are taken at u_t, see ``SOX``.
        one_slope: whether both slopes are taken at u_{t-1}, see ``MSVRM``.
        settings: further arguments of ``CompositionalOptimizer``.

    Examples:
        >>> import torch
        >>> from fcco.objectives import MultiTaskAUC
        >>> objective = MultiTaskAUC(torch.arange(30) % 10)
        >>> opt = by_name("sox", torch.nn.Linear(4, 10), objective, lr=0.1, gamma="age")
        >>> opt.method.name
        'sox'
    """
    # ``entry.arguments`` drops the settings that the method does not have.
    entry = find(name)
    method = _with_slopes(entry.method, updated_slopes=updated_slopes, one_slope=one_slope)
    return CompositionalOptimizer(params, objective, method, **entry.arguments(**settings))


def _with_slopes(method: Method, *, updated_slopes: bool, one_slope: bool) -> Method:
    if updated_slopes and one_slope:
        raise ValueError("updated_slopes and one_slope exclude each other")
    if one_slope:
        return method.with_one_slope()
    return method.updated() if updated_slopes else method


def _choose(versions: dict[int, Method], version: int) -> Method:
    if version not in versions:
        raise ValueError(f"version must be one of {sorted(versions)}, got {version!r}")
    return versions[version]
