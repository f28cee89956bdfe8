"""The optimizers by name: each chooses a method."""

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
    """Moving averages (``SOXE``, ``momentum``): one point, one value and one gradient per sample.

        u_t = (1 - beta) u_{t-1} + beta g(w_t; xi)       z_t = (1 - alpha) z_{t-1} + alpha G(w_t)

    ``updated_slopes`` takes slopes at u_t instead of u_{t-1}, as SOX's own code and LibAUC do: it
    helps where a block is met so rarely that u_{t-1} is out of date. Further arguments as for
    ``CompositionalOptimizer``.
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
    """SOX without momentum, alpha = 1. Arguments as for ``SOX``."""

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
    """The paper's methods: u corrected by how g changed since the step before (``MSVR``).

        u_t = (1 - beta) u_{t-1} + beta g(w_t; xi) + gamma (g(w_t; xi) - g(w_{t-1}; xi))

    ``version`` says how z is formed: 1 by a moving average (``momentum``), 2 by STORM
    (``eqn:z``), 3 by STORM with u and z anchored at exact passes (``MSVR_SVRG``, ``eqn:z+``;
    call ``snapshot`` when ``snapshot_due``). ``single_point`` (versions 1 and 2) takes the change
    of g from its derivative at w_t (``MSVR-SP``). ``gamma="storm"`` is the naive STORM of the
    introduction. ``updated_slopes`` (versions 1 and 2) takes slopes at u_t instead of u_{t-1}, see
    ``SOX``; ``one_slope`` (version 2) takes them at u_{t-1} at w_t and at w_{t-1} alike. Further
    arguments as for ``CompositionalOptimizer``.
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
    """Values and gradients as differences from the last exact pass: two points, no memory between.

        u_i = g_i(w_t; xi) - g_i(w_s; xi) + g_i(w_s)
        z_t = grad g(w_t; xi)^T grad f(u) - grad g(w_s; xi)^T grad f(g(w_s)) + grad F(w_s)

    Call ``snapshot`` when ``snapshot_due``, as for version 3 of ``MSVRM``, whose two-point form it
    is. For finite inner sums and high accuracy. ``alpha`` below 1 adds momentum. Further arguments
    as for ``CompositionalOptimizer``.
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
    """For affine slopes of f: no table, an unbiased G from two independent samples per block.

        G(w) = (1/B1) sum_i grad f_i(g_i(w; xi'))^T grad g_i(w; xi)

    The closure's Probe carries ``pair``, the values under xi'. ``version`` as for ``MSVRM``.
    Further arguments as for ``CompositionalOptimizer``.
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
    """Biased mini-batch descent: the slope is taken at the fresh value, there is no table.

    ``alpha`` below 1 adds momentum. Further arguments as for ``CompositionalOptimizer``.
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
    """The paper's ablation: every row of u shrinks, sampled rows are scaled by m/B1.

    ``version`` as for ``MSVRM``; it is here to be compared with, not to be used. Further
    arguments as for ``CompositionalOptimizer``.
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

    A coefficient that the method does not have is left out, so that one dictionary of settings
    serves a comparison of all.

    Args:
        name: of the method.
        params: as for ``CompositionalOptimizer``.
        objective: the problem.
        updated_slopes: see ``SOX``.
        one_slope: see ``MSVRM``.
        settings: further arguments of ``CompositionalOptimizer``.

    Examples:
        >>> import torch
        >>> from fcco.objectives import MultiTaskAUC
        >>> objective = MultiTaskAUC(torch.arange(30) % 10)
        >>> opt = by_name("sox", torch.nn.Linear(4, 10), objective, lr=0.1, gamma="age")
        >>> opt.method.name
        'sox'
    """
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
