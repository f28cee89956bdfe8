"""The settings of the coefficients that tuning tries."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from fcco.methods.coefficients import gamma_theory
from fcco_lab.entries import entry_of
from fcco_lab.training import Config

__all__ = ["HOLDOUT", "LRS", "WEIGHTS", "for_tuning", "grid", "refusal", "tuned_keys"]

LRS = (1e-4, 1e-3, 2e-3, 5e-3, 1e-2)
"""The paper's step sizes."""

WEIGHTS = (0.1, 0.5, 0.9, 1.0)
"""The paper's values of alpha and of beta."""

HOLDOUT = 0.2
"""The fraction of the training set that is held out for tuning."""


def for_tuning(config: Config) -> Config:
    """The config with a part of the training set held out: tuning never uses the test set.

    Examples:
        >>> for_tuning(Config()).holdout, for_tuning(Config(holdout=0.5)).holdout
        (0.2, 0.5)
    """
    return config if config.holdout else replace(config, holdout=HOLDOUT)


def tuned_keys(method: str) -> tuple[str, ...]:
    """The coefficients of a method that are searched; gamma is chosen, not searched.

    Examples:
        >>> tuned_keys("msvrm-v2"), tuned_keys("soap"), tuned_keys("cross-entropy")
        (('lr', 'alpha', 'beta'), ('lr', 'beta'), ('lr',))
    """
    return tuple(key for key in entry_of(method).coefficients if key != "gamma")


def refusal(config: Config, num_blocks: int | None = None) -> str:
    """The reason why the optimizer would refuse this setting, or an empty string.

    Without ``num_blocks`` it is assumed that a step probes only some of the blocks.

    Examples:
        >>> refusal(Config(gamma="theory", beta=1.0), num_blocks=10)[:36]
        'gamma="theory" is singular at beta=1'
        >>> refusal(Config(gamma="theory", beta=1.0, blocks_per_step=10), num_blocks=10)
        ''
    """
    if "gamma" not in entry_of(config.method).coefficients or config.gamma != "theory":
        return ""
    if isinstance(config.beta, str):
        return ""  # the optimizer itself says it
    probed = config.blocks_per_step
    total = 2 * probed if num_blocks is None else num_blocks
    try:
        gamma_theory(config.beta, total, min(probed, total))
    except ValueError as error:
        return str(error)
    return ""


def grid(
    config: Config,
    *,
    lrs: Sequence[float] = LRS,
    alphas: Sequence[float] = WEIGHTS,
    betas: Sequence[float] = WEIGHTS,
    num_blocks: int | None = None,
) -> list[Config]:
    """Every setting of the coefficients that the method has, the paper's grid by default.

    Settings that the optimizer would refuse are left out; ``refusal`` gives the reason.

    Args:
        config: the config of every run, except for the coefficients.
        lrs: step sizes.
        alphas: values of alpha.
        betas: values of beta.
        num_blocks: m, if known, see ``refusal``.

    Examples:
        >>> len(grid(Config())), len(grid(Config(method="cross-entropy")))
        (80, 5)
        >>> len(grid(Config(gamma="theory")))
        60
    """
    tried = {"lr": lrs, "alpha": alphas, "beta": betas}
    keys = tuned_keys(config.method)
    settings = (
        dict(zip(keys, values, strict=True)) for values in product(*(tried[key] for key in keys))
    )
    configs = (Config.of(config.as_record() | setting) for setting in settings)
    # A value that was given twice is tried once.
    return list({one.name: one for one in configs if not refusal(one, num_blocks)}.values())
