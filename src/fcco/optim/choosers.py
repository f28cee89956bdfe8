"""The optimizers by name: each chooses a method and forwards nothing it does not mean."""

from collections.abc import Iterable

from torch import Tensor
from torch.optim.optimizer import ParamsT

from fcco import methods
from fcco.methods.coefficients import Gamma
from fcco.distributed import Ranks
from fcco.methods import Method
from fcco.problem.objective import Objective
from fcco.optim.compositional import CompositionalOptimizer
from fcco.kernel.safeguard import ChangeBound
from fcco.kernel.storage import Place
from fcco.updates import Update

__all__ = ["BSGD", "MSVRM", "SOAP", "SOX", "FreshPair", "Variant"]

_MSVRM = {1: methods.MSVRM_V1, 2: methods.MSVRM_V2, 3: methods.MSVRM_V3}
_SINGLE_POINT = {1: methods.SINGLE_POINT_V1, 2: methods.SINGLE_POINT_V2}
_FRESH_PAIR = {1: methods.FRESH_PAIR_V1, 2: methods.FRESH_PAIR_V2, 3: methods.FRESH_PAIR_V3}
_VARIANT = {1: methods.VARIANT_V1, 2: methods.VARIANT_V2, 3: methods.VARIANT_V3}


class SOX(CompositionalOptimizer):
    """Moving averages (``SOXE``, ``momentum``): one point, one value and one gradient a sample.

        u_t = (1 - beta) u_{t-1} + beta g(w_t; xi)       z_t = (1 - alpha) z_{t-1} + alpha G(w_t)

    ``updated_slopes`` takes slopes at u_t instead of u_{t-1}, as SOX's own code and LibAUC do: it
    helps where a block is met so rarely that u_{t-1} is out of date. Further arguments as for
    ``CompositionalOptimizer``.
    """

    def __init__(
        self,
        params: ParamsT,
        objective: Objective,
        *,
        lr: float,
        alpha: float,
        beta: float,
        update: Update | None = None,
        buffers: Iterable[Tensor] = (),
        initial: Tensor | float | None = None,
        weight_decay: float = 0.0,
        updated_slopes: bool = False,
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
    """SOX without momentum, alpha = 1. Arguments as for ``CompositionalOptimizer``."""

    def __init__(
        self,
        params: ParamsT,
        objective: Objective,
        *,
        lr: float,
        beta: float,
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
            methods.SOX,
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
    ``SOX``. Further arguments as for ``CompositionalOptimizer``.
    """

    def __init__(
        self,
        params: ParamsT,
        objective: Objective,
        *,
        version: int,
        lr: float,
        alpha: float,
        beta: float,
        gamma: Gamma = "age",
        single_point: bool = False,
        update: Update | None = None,
        snapshot_every: int | None = None,
        buffers: Iterable[Tensor] = (),
        initial: Tensor | float | None = None,
        weight_decay: float = 0.0,
        safeguard: ChangeBound | None = None,
        updated_slopes: bool = False,
        table_on: Place = None,
        ranks: Ranks | None = None,
    ) -> None:
        method = _version(_SINGLE_POINT if single_point else _MSVRM, version)
        super().__init__(
            params,
            objective,
            method.updated() if updated_slopes else method,
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


class FreshPair(CompositionalOptimizer):
    """For affine slopes of f: no table, an unbiased G from two independent samples a block.

        G(w) = (1/B1) sum_i grad f_i(g_i(w; xi'))^T grad g_i(w; xi)

    The closure's Probe carries ``pair``, the values under xi'. ``version`` as for ``MSVRM``.
    Further arguments as for ``CompositionalOptimizer``.
    """

    def __init__(
        self,
        params: ParamsT,
        objective: Objective,
        *,
        version: int,
        lr: float,
        alpha: float,
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
            _version(_FRESH_PAIR, version),
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
        params: ParamsT,
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
    """The paper's ablation (l.775): every row of u shrinks, sampled rows are scaled by m/B1.

    ``version`` as for ``MSVRM``; it is here to be compared with, not to be used. Further
    arguments as for ``CompositionalOptimizer``.
    """

    def __init__(
        self,
        params: ParamsT,
        objective: Objective,
        *,
        version: int,
        lr: float,
        alpha: float,
        beta: float,
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
            _version(_VARIANT, version),
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


def _version(versions: dict[int, Method], version: int) -> Method:
    if version not in versions:
        raise ValueError(f"version must be one of {sorted(versions)}, got {version!r}")
    return versions[version]
