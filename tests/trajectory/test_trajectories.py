"""Each method with each step rule equals the plain reference loop, at every step."""

import itertools

import pytest
import torch
from support import CATALOGUE, RULES, Toy, flat, make_model, make_update, reference

STEPS, FAST_STEPS = 50, 22
"""With a snapshot every seven steps."""
CASES = list(itertools.product(("linear", "network"), (1, 4), (1, 3, 6), (False, True)))
# Every method with every rule; what differs in gamma alone, or in a rule's setting, with fewer.
COMBINATIONS = [
    (name, rule)
    for name, entry in CATALOGUE.items()
    for rule in RULES
    if (not entry.extra or rule in ("plain", "adam")) and (rule != "adam-paper" or name == "sox")
]


def every_case():
    """The full product; a seventeenth of it, which rotates over methods, rules and cases, is in the
    fast suite with fewer steps, the rest in the slow one."""
    for k, combination in enumerate(COMBINATIONS):
        for j, case in enumerate(CASES):
            if case[-1] and not CATALOGUE[combination[0]].has_table:
                continue  # no table, nothing to initialise
            fast = (j + k) % 17 == 0
            if fast:
                yield pytest.param(*combination, *case, FAST_STEPS)
            else:
                yield pytest.param(*combination, *case, STEPS, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "rule", "kind", "inner_dim", "blocks", "with_initial", "steps"), list(every_case())
)
def test_equals_reference(name, rule, kind, inner_dim, blocks, with_initial, steps):
    entry, step_rule = CATALOGUE[name], RULES[rule]
    problem = Toy(6, inner_dim, affine=entry.affine, box=1.5)
    generator = torch.Generator().manual_seed(1)
    draws = [problem.draw(blocks, 2, generator) for _ in range(steps)]
    initial = None
    if with_initial:
        initial = torch.rand((6, inner_dim), generator=generator, dtype=torch.float64)
    coefficients = {"lr": 0.05, "alpha": 0.4, "beta": 0.3, "snapshot_every": 7}

    expected = reference(
        problem,
        make_model(kind, inner_dim),
        draws,
        entry.settings(**coefficients, initial=initial, rule=step_rule),
    )

    model = make_model(kind, inner_dim)
    opt = entry.build(
        model.parameters(),
        problem,
        **coefficients,
        initial=initial,
        update=make_update(step_rule),
        weight_decay=step_rule.weight_decay,
    )
    everything, ws, us, zs = torch.arange(6), [], [], []
    for draw in draws:
        if opt.snapshot_due:
            opt.snapshot(lambda: problem.inner(model, problem.everything()))
        opt.step(lambda: problem.inner(model, draw))  # noqa: B023
        ws.append(flat(model.parameters()))
        zs.append(flat(opt.state[p]["z"] for p in model.parameters()))
        if opt.table is not None:
            us.append(opt.table.read(everything))
    close(ws, expected.w)
    close(zs, expected.z)
    if us:
        close(us, expected.u)


def close(actual, expected):
    """At every step."""
    torch.testing.assert_close(torch.stack(actual), torch.stack(expected), rtol=1e-12, atol=1e-12)
