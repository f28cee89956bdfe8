"""What the methods become in special cases, against loops and optimizers that are not ours."""

from types import SimpleNamespace

import pytest
import torch
from support import CATALOGUE, Draw, Toy, flat, make_model
from support.reference import _beta as gain_of
from torch import nn

import fcco
from fcco import MSVRM, SOX
from fcco.methods.gain import START, chosen_gain


class Identity(Toy):
    """f = id, so that F is the mean of the g_i."""

    def outer(self, u, blocks):
        return u.sum(1)


def run(opt, model, problem, draws, *, snapshots=True):
    """Step through the draws, yielding after each."""
    for draw in draws:
        if snapshots and opt.snapshot_due:
            opt.snapshot(lambda: problem.inner(model, problem.everything()))
        opt.step(lambda: problem.inner(model, draw))  # noqa: B023
        yield draw


def draws_of(problem, blocks, steps=20, samples=2, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return [problem.draw(blocks, samples, generator) for _ in range(steps)]


def gradient(problem, model, draw, weights=None):
    """grad of (1/B1) sum_i w_i . g_i(w; xi), by plain autograd."""
    values = problem.values(model, draw.blocks, draw.samples)
    weights = torch.ones_like(values) if weights is None else weights
    return flat(torch.autograd.grad((weights * values).sum() / len(values), model.parameters()))


def assert_equal(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0)


def assert_close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("single_point", [False, True])
def test_gamma_zero_is_sox(single_point):
    problem = Toy()
    results = []
    for build in (
        lambda p: SOX(p, problem, lr=0.1, alpha=0.4, beta=0.3),
        lambda p: MSVRM(
            p,
            problem,
            version=1,
            lr=0.1,
            alpha=0.4,
            beta=0.3,
            gamma=0.0,
            single_point=single_point,
        ),
    ):
        model = make_model("network", 1)
        opt = build(model.parameters())
        for _ in run(opt, model, problem, draws_of(problem, 3)):
            pass
        results.append((flat(model.parameters()), opt.table.read(torch.arange(6)), opt.queries))
    assert_equal(results[0][0], results[1][0])
    assert_equal(results[0][1], results[1][1])
    assert results[0][2] == results[1][2]  # the previous point was not even looked at


def test_one_block_identity_v2_is_storm():
    problem, alpha, lr = Identity(1), 0.3, 0.1
    draws = draws_of(problem, 1, samples=1)
    model = make_model("network", 1)
    opt = MSVRM(model.parameters(), problem, version=2, lr=lr, alpha=alpha, beta=0.5)
    twin = make_model("network", 1)  # STORM as Cutkosky and Orabona write it
    before, d = None, None
    for draw in run(opt, model, problem, draws):
        here = [p.detach().clone() for p in twin.parameters()]
        now = gradient(problem, twin, draw)
        if d is None:
            d = now
        else:
            nn.utils.vector_to_parameters(flat(before), twin.parameters())
            d = now + (1 - alpha) * (d - gradient(problem, twin, draw))
        before = here
        nn.utils.vector_to_parameters(flat(here) - lr * d, twin.parameters())
        assert_close(flat(model.parameters()), flat(twin.parameters()))


@pytest.mark.parametrize("name", ["sox", "msvrm-v1-theory", "msvrm-v1-age", "bsgd"])
def test_one_block_identity_v1_is_sgd_with_dampened_momentum(name):
    problem, alpha = Identity(1), 0.3
    model, twin = make_model("network", 1), make_model("network", 1)
    opt = CATALOGUE[name].build(model.parameters(), problem, lr=0.1, alpha=alpha, beta=0.5)
    sgd = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=1 - alpha, dampening=1 - alpha)
    for draw in run(opt, model, problem, draws_of(problem, 1)):
        for p, g in zip(
            twin.parameters(),
            torch.autograd.grad(
                problem.values(twin, draw.blocks, draw.samples).sum(), twin.parameters()
            ),
            strict=True,
        ):
            p.grad = g
        sgd.step()
        assert_close(flat(model.parameters()), flat(twin.parameters()))


@pytest.mark.parametrize("gamma", ["theory", "storm", "age"])
def test_all_blocks_is_two_level_storm(gamma):
    problem, alpha, beta, lr = Toy(4, 2), 0.3, 0.4, 0.1
    model, twin = make_model("network", 2), make_model("network", 2)
    opt = MSVRM(model.parameters(), problem, version=2, lr=lr, alpha=alpha, beta=beta, gamma=gamma)
    everything = torch.arange(4)

    def values(draw):
        return problem.values(twin, draw.blocks, draw.samples).detach()

    before = u = u_before = z = None
    for draw in run(opt, model, problem, draws_of(problem, 4)):
        here = flat(twin.parameters())
        now = values(draw)
        if u is None:
            u = u_before = torch.empty(4, 2, dtype=torch.float64)
            u[draw.blocks] = now
            z = gradient(problem, twin, draw, problem.slope(u[draw.blocks], draw.blocks))
            u_new = u.clone()
        else:
            g_now = gradient(problem, twin, draw, problem.slope(u[draw.blocks], draw.blocks))
            nn.utils.vector_to_parameters(before, twin.parameters())
            old = problem.slope(u_before[draw.blocks], draw.blocks)
            z = g_now + (1 - alpha) * (z - gradient(problem, twin, draw, old))
            u_new = u.clone()
            u_new[draw.blocks] = now + (1 - beta) * (u[draw.blocks] - values(draw))
        u_before, u, before = u, u_new, here
        nn.utils.vector_to_parameters(here - lr * z, twin.parameters())
        assert_close(flat(model.parameters()), flat(twin.parameters()))
        assert_close(opt.table.read(everything), u)


@pytest.mark.parametrize("name", [n for n in CATALOGUE if n != "soap"])
def test_identity_exact_values_alpha_one_is_gradient_descent(name):
    problem = Identity(4, affine=CATALOGUE[name].affine)
    exact = problem.everything()
    model, twin = make_model("network", 1), make_model("network", 1)
    opt = CATALOGUE[name].build(model.parameters(), problem, lr=0.1, alpha=1.0, beta=0.4)
    for _ in run(opt, model, problem, [exact] * 10):
        step = flat(twin.parameters()) - 0.1 * gradient(problem, twin, exact)
        nn.utils.vector_to_parameters(step, twin.parameters())
        assert_close(flat(model.parameters()), flat(twin.parameters()))


@pytest.mark.parametrize("name", ["msvrm-v3-theory", "msvrm-v3-age", "variant-v3"])
@pytest.mark.parametrize("identity", [True, False])
def test_snapshot_each_step_is_the_full_gradient_at_slopes_one_step_old(name, identity):
    """z_t = (1/m) sum_i grad g_i(w_t)^T grad f_i(u_{t-1}^i): for f = id, the full gradient."""
    problem = Identity(5, 2) if identity else Toy(5, 2)
    model = make_model("network", 2)
    opt = CATALOGUE[name].build(
        model.parameters(), problem, lr=0.1, alpha=1.0, beta=0.4, snapshot_every=1
    )
    everything, blocks = problem.everything(), torch.arange(5)
    for draw in draws_of(problem, 2, samples=1):
        opt.snapshot(lambda: problem.inner(model, everything))
        old = opt.table.read(blocks)
        slopes = torch.ones_like(old) if identity else problem.slope(old, blocks)
        expected = gradient(problem, model, everything, slopes)
        opt.step(lambda: problem.inner(model, draw))  # noqa: B023
        assert_close(flat(opt.state[p]["z"] for p in model.parameters()), expected)


def test_exact_values_beta_one_have_slopes_one_step_old():
    """alpha = beta = 1, B1 = m, exact values: z_t pairs grad g(w_t) with grad f(g(w_{t-1}))."""
    problem = Toy(4, 2)
    exact, blocks = problem.everything(), torch.arange(4)
    model = make_model("network", 2)
    opt = SOX(model.parameters(), problem, lr=0.1, alpha=1.0, beta=1.0)
    before = None
    for _ in range(10):
        inner = problem.values(model, exact.blocks, exact.samples).detach()
        slopes = problem.slope(inner if before is None else before, blocks)
        expected = gradient(problem, model, exact, slopes)
        opt.step(lambda: problem.inner(model, exact))
        assert_close(flat(opt.state[p]["z"] for p in model.parameters()), expected)
        before = inner


@pytest.mark.parametrize("gamma", ["theory", "storm", "age", 3.0])
@pytest.mark.parametrize("version", [1, 2])
def test_without_moving_every_gamma_gives_the_table_of_sox(gamma, version):
    problem = Toy()
    tables = []
    for build in (
        lambda p, b: SOX(p, problem, lr=0.0, alpha=0.4, beta=0.3, buffers=b),
        lambda p, b: MSVRM(
            p, problem, version=version, lr=0.0, alpha=0.4, beta=0.3, gamma=gamma, buffers=b
        ),
    ):
        torch.manual_seed(0)  # dropout
        model = make_model("batchnorm", 1)
        opt = build(model.parameters(), list(model.buffers()))
        for _ in run(opt, model, problem, draws_of(problem, 3)):
            pass
        tables.append(opt.table.read(torch.arange(6)))
    assert_equal(*tables)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", CATALOGUE)
def test_relabelling_blocks_changes_nothing(name):
    entry = CATALOGUE[name]
    problem = Toy(affine=entry.affine)
    relabelled = Toy(affine=entry.affine)
    new_name = torch.tensor([3, 0, 5, 1, 4, 2])
    relabelled.x = torch.empty_like(problem.x).index_copy_(0, new_name, problem.x)
    relabelled.c = torch.empty_like(problem.c).index_copy_(0, new_name, problem.c)
    draws = draws_of(problem, 3)
    moved = [Draw(new_name[d.blocks], d.samples, d.pair) for d in draws]
    runs = []
    for objective, stream in ((problem, draws), (relabelled, moved)):
        model = make_model("network", 1)
        opt = entry.build(model.parameters(), objective, snapshot_every=7)
        for _ in run(opt, model, objective, stream):
            pass
        runs.append((flat(model.parameters()), opt))
    # The exact pass sums blocks in the order of their names: equal up to rounding there alone.
    (assert_close if entry.anchored else assert_equal)(runs[0][0], runs[1][0])
    if entry.has_table:
        (assert_close if entry.anchored else assert_equal)(
            runs[0][1].table.read(torch.arange(6)), runs[1][1].table.read(new_name)
        )


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", CATALOGUE)
@pytest.mark.parametrize("update", [fcco.updates.Plain(), fcco.updates.Normalized()])
def test_splitting_parameters_into_groups_changes_nothing(name, update):
    entry = CATALOGUE[name]
    problem = Toy(affine=entry.affine)
    ends = []
    for split in (False, True):
        model = make_model("network", 1)
        params = list(model.parameters())
        groups = [{"params": params[:1]}, {"params": params[1:]}] if split else params
        opt = entry.build(groups, problem, snapshot_every=7, update=update)
        for _ in run(opt, model, problem, draws_of(problem, 3)):
            pass
        ends.append(flat(params))
    assert_equal(*ends)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", CATALOGUE)
@pytest.mark.parametrize("with_loss", [False, True])
def test_micro_batches_change_nothing(name, with_loss):
    entry = CATALOGUE[name]
    problem = Toy(affine=entry.affine)
    targets = torch.linspace(-1, 1, 6, dtype=torch.float64)

    def closure(model, draw):
        def call():
            probe = problem.inner(model, draw)
            if not with_loss:
                return probe
            x = problem.x[draw.blocks].flatten(0, 1)
            y = targets[draw.blocks].repeat_interleave(problem.inner_size)
            loss = (model(x).squeeze(1) - y).square().mean()
            return fcco.Probe(probe.blocks, probe.values, probe.samples, probe.pair, loss)

        return call

    def parts(draw, size):
        pieces = (t.split(size) for t in (draw.blocks, draw.samples, draw.pair))
        return [Draw(*piece) for piece in zip(*pieces, strict=True)]

    ends = []
    for size in (6, 2):
        model = make_model("network", 1)
        opt = entry.build(model.parameters(), problem, snapshot_every=7)
        for draw in draws_of(problem, 4):
            if opt.snapshot_due:
                opt.snapshot([closure(model, d) for d in parts(problem.everything(), size)])
            opt.step([closure(model, d) for d in parts(draw, size)])
        ends.append((flat(model.parameters()), opt.queries.work))
    assert_close(ends[0][0], ends[1][0])
    if not (entry.anchored and with_loss):  # there the chunks' losses cost a second sweep
        assert ends[0][1] == ends[1][1]


def test_chunks_of_an_exact_pass_may_split_blocks_unevenly():
    problem = Toy(4, 2, inner_size=5)
    pieces = [
        Draw(torch.tensor(b), torch.tensor(j), torch.tensor(j))
        for b, j in (
            ([0, 1], [[0, 1, 2], [0, 1, 2]]),
            ([2, 3, 0], [[0, 1], [0, 1], [3, 4]]),
            ([1, 2, 3], [[3], [4], [4]]),
            ([1, 2, 3], [[4], [2], [2]]),
            ([2, 3], [[3], [3]]),
        )
    ]
    ends = []
    for chunks in ([problem.everything()], pieces):
        model = make_model("network", 2)
        opt = CATALOGUE["msvrm-v3-theory"].build(model.parameters(), problem, snapshot_every=3)
        for draw in draws_of(problem, 2, steps=9):
            if opt.snapshot_due:
                opt.snapshot([lambda c=c, m=model: problem.inner(m, c) for c in chunks])
            opt.step(lambda: problem.inner(model, draw))  # noqa: B023
        ends.append(flat(model.parameters()))
    assert_close(*ends)


def test_an_exact_pass_may_hold_other_samples_than_the_one_before():
    """A second snapshot of 3 samples per block, in two chunks, where the first one had 5 in one.

    H is the gradient of (1/m) sum_i slope_i g_i with the slopes at the table, by autograd.
    """
    problem, model = Toy(4, 2, inner_size=5), make_model("network", 2)
    opt = CATALOGUE["msvrm-v3-theory"].build(model.parameters(), problem, snapshot_every=None)
    opt.snapshot(lambda: problem.inner(model, problem.everything()))
    opt.step(lambda: problem.inner(model, draws_of(problem, 2, steps=1)[0]))
    blocks, three = torch.arange(4), torch.tensor([[0, 1, 2]]).expand(4, -1)
    chunks = [Draw(blocks, part, part) for part in (three[:, :2], three[:, 2:])]
    opt.snapshot([lambda c=c: problem.inner(model, c) for c in chunks])
    slopes = problem.slope(opt.table.read(blocks), blocks)
    value = (slopes * problem.values(model, blocks, three)).sum() / 4
    expected = flat(torch.autograd.grad(value, model.parameters()))
    assert_close(flat(opt.state[p]["anchor"] for p in model.parameters()), expected)


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_restart_forgets_the_previous_point_and_keeps_u_and_z(name):
    """w_0 = w_1 and u_{-1} = u_0: corrections vanish, u and z go on from where they were."""
    entry = CATALOGUE[name]
    problem = Toy(affine=entry.affine)
    model = make_model("network", 1)
    alpha, beta = (1.0 if entry.method == "soap" else 0.4), 0.3
    opt = entry.build(model.parameters(), problem, alpha=alpha, beta=beta, snapshot_every=7)
    for _ in run(opt, model, problem, draws_of(problem, 3, steps=9)):
        pass
    blocks = torch.arange(6)
    z = flat(opt.state[p]["z"] for p in model.parameters())
    u = None if opt.table is None else opt.table.read(blocks)
    # A stage that starts from an earlier iterate: the parameters are set by hand.
    nn.utils.vector_to_parameters(flat(model.parameters()) + 0.1, model.parameters())
    opt.restart()
    assert_equal(flat(opt.state[p]["z"] for p in model.parameters()), z)
    draw = draws_of(problem, 3, seed=11)[0]
    now = problem.values(model, draw.blocks, draw.samples).detach()
    if entry.equations.get("slope") == "pair":
        at = problem.values(model, draw.blocks, draw.pair).detach()
    else:
        at = now if u is None else u[draw.blocks]
    own = entry.options.get("beta")
    if own == "auto":  # what was learned is kept
        beta = chosen_gain(opt.table.gain)
        assert beta != START
    elif own is not None:
        beta = gain_of(SimpleNamespace(beta=own), (), u[draw.blocks], now)
    if entry.anchored:
        there = [opt.state[p]["snapshot"] for p in model.parameters()]
        anchor = flat(opt.state[p]["anchor"] for p in model.parameters())
        twin = make_model("network", 1)
        nn.utils.vector_to_parameters(flat(there), twin.parameters())
        then = problem.values(twin, draw.blocks, draw.samples).detach()
    if name == "svrg":
        beta, at = 1.0, now - then + opt.table.recall(draw.blocks).anchor
    elif entry.equations.get("slope") == "updated":
        at = (1 - beta) * at + beta * now
    sample = gradient(problem, model, draw, problem.slope(at, draw.blocks))
    if entry.anchored:
        if u is None:
            slopes = problem.slope(problem.values(twin, draw.blocks, draw.pair), draw.blocks)
        elif name == "svrg":
            slopes = problem.slope(opt.table.recall(draw.blocks).anchor, draw.blocks)
        else:
            slopes = problem.slope(opt.table.gather(draw.blocks, fcco.Point.SNAPSHOT), draw.blocks)
        sample = sample - gradient(problem, twin, draw, slopes.detach()) + anchor
        if u is not None:
            now = now - then + opt.table.recall(draw.blocks).anchor
    opt.step(lambda: problem.inner(model, draw))
    z_new = flat(opt.state[p]["z"] for p in model.parameters())
    assert_close(z_new, (1 - alpha) * z + alpha * sample)
    if u is not None:
        scale = 6 / 3 if "variant" in name else 1.0
        expected = (1 - beta) * u if "variant" in name else u.clone()
        expected[draw.blocks] = (1 - beta) * u[draw.blocks] + scale * beta * now
        assert_close(opt.table.read(blocks), expected)


@pytest.mark.parametrize("options", [{"updated_slopes": True}, {"one_slope": True}])
@pytest.mark.parametrize("gamma", [0.0, "age"])
def test_a_jump_of_the_table_does_not_enter_z(options, gamma):
    """Without moving, G(w_t) - G(w_{t-1}) is zero, and version 2 is version 1, rare rows or not."""
    problem, zs = Toy(6, 2), []
    for version in (1, 2):
        model = make_model("network", 2)
        slopes = options if version == 2 or "one_slope" not in options else {}
        opt = MSVRM(model, problem, version=version, lr=0.0, alpha=0.3, gamma=gamma, **slopes)
        run_zs = []
        for _ in run(opt, model, problem, draws_of(problem, 2)):
            run_zs.append(flat(opt.state[p]["z"] for p in model.parameters()))  # noqa: PERF401
        zs.append(torch.stack(run_zs))
    assert_close(*zs)


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_scaled_storm_is_sox_or_storm(scale):
    problem, ends = Toy(6, 2), []
    twin = {0.0: fcco.methods.SOX, 1.0: fcco.methods.MSVRM_V2}[scale]
    for method in (fcco.methods.mars(scale), twin):
        model = make_model("network", 2)
        opt = fcco.CompositionalOptimizer(
            model, problem, method, lr=0.1, alpha=0.3, beta=0.4, gamma=0.0
        )
        for _ in run(opt, model, problem, draws_of(problem, 3)):
            pass
        ends.append(flat(model.parameters()))
    assert_close(*ends)


@pytest.mark.parametrize("theta", [0.0, 0.7])
def test_alexr_is_the_row_of_msvr_with_gamma_beta_theta(theta):
    problem, ends, beta = Toy(6, 2), [], 0.4
    for alexr in (True, False):
        model = make_model("network", 2)
        if alexr:
            opt = fcco.CompositionalOptimizer(
                model, problem, fcco.methods.alexr(theta), lr=0.1, alpha=0.3, beta=beta
            )
        else:
            opt = MSVRM(
                model,
                problem,
                version=1,
                lr=0.1,
                alpha=0.3,
                beta=beta,
                gamma=beta * theta,
                updated_slopes=True,
            )
        for _ in run(opt, model, problem, draws_of(problem, 3)):
            pass
        ends.append(flat(model.parameters()))
    assert_close(*ends)
