"""The gain: it is that of a Kalman filter, and the noise behind it is the noise there is."""

import math
from dataclasses import replace

import pytest
import torch
from support import Toy, make_model

import fcco
from fcco.data.inputs import take
from fcco.losses import ContrastiveLoss, GroupDROLoss, TableLoss
from fcco.methods import RULES, chosen_gain, cosine_gain, next_gain
from fcco.methods.gain import learns, new_gain
from fcco.objectives import DRO, NCA, GlobalContrastive, GroupDRO, MultiTaskAUC, PartialAUC
from fcco.problem import Objective, Probe
from fcco.problem.batches import GroupBatch, PairBatch


class Walk(Objective):
    """Values that are given; f(u) = u."""

    num_blocks, inner_dim = 500, 1

    def outer(self, u, blocks):
        return u.squeeze(1)


@pytest.mark.parametrize(("drift", "noise"), [(0.1, 1.0), (0.5, 1.0), (1.0, 0.3)])
def test_it_finds_the_gain_of_a_kalman_filter(drift, noise):
    """A random walk seen through noise; P solves Riccati's equation P = (1 - beta) P + drift^2."""
    p = (drift**2 + (drift**4 + 4 * drift**2 * noise**2) ** 0.5) / 2
    generator = torch.Generator().manual_seed(0)
    criterion = TableLoss(Walk(), beta="auto").double()
    truth, blocks = torch.zeros(500, 1, dtype=torch.float64), torch.arange(500)

    def normal():
        return torch.randn(500, 1, generator=generator, dtype=torch.float64)

    gains = []
    for _ in range(300):
        truth = truth + drift * normal()
        values = (truth + noise * normal()).requires_grad_()
        criterion(Probe(blocks, values, noise=torch.full_like(truth, noise)))
        gains.append(chosen_gain(criterion.table.gain))
    # Each of 50 estimates, from 500 squares, has the deviation (1 - beta) sqrt(2 / 500) < 0.064.
    assert sum(gains[100:]) / 200 == pytest.approx(p / (p + noise**2), abs=3 * 0.064 / 50**0.5)


def test_a_gain_without_noise_is_one_half():
    model = make_model("linear", 1)
    problem = Toy()
    opt = fcco.SOX(model, problem, lr=0.1, beta="auto")
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        draw = problem.draw(3, 2, generator)
        opt.step(lambda: Probe(draw.blocks, problem.values(model, draw.blocks, draw.samples)))  # noqa: B023
    assert opt.table.gain.tolist() == [5, 0, 0, 0]
    assert opt._coefficients().beta == 0.5


def test_exact_values_are_taken_over_whole():
    """Without noise, beta = 1: the table is that of the batch."""
    memory = next_gain(new_gain(), (4.0, 2.0, 0.0))
    assert chosen_gain(memory) == 1.0


@pytest.mark.parametrize("seen", [(), (0.0, 0.0, 0.0)], ids=["not learned from", "no known rows"])
def test_a_step_without_known_rows_teaches_nothing(seen):
    memory = next_gain(new_gain(), (4.0, 2.0, 1.0))
    after = next_gain(memory, seen)
    assert after[0] == 2
    assert chosen_gain(after) == chosen_gain(memory) == 0.5


def test_all_rows_count_alike_until_three_hundred():
    """Then the last three hundred or so, with weights that fall by 1 - 30/300 per thirty rows."""
    generator = torch.Generator().manual_seed(0)
    seen = torch.rand(20, 2, generator=generator, dtype=torch.float64)
    memory = new_gain()
    for t in range(1, 21):
        memory = next_gain(memory, (30.0, *(30 * seen[t - 1]).tolist()))
        if t == 10:
            torch.testing.assert_close(memory[2:], seen[:10].mean(0), rtol=1e-12, atol=0)
    weights = 0.1 * 0.9 ** torch.arange(9, -1, -1, dtype=torch.float64)
    expected = 0.9**10 * seen[:10].mean(0) + (weights.unsqueeze(1) * seen[10:]).sum(0)
    torch.testing.assert_close(memory[2:], expected, rtol=1e-12, atol=0)
    assert memory[:2].tolist() == [20, 600]


@pytest.mark.parametrize(("rows", "learned"), [(4, 40), (16, 21), (64, 11)])
def test_few_rows_are_learned_from_in_every_step(rows, learned):
    """Eight per step, or every fourth step."""
    memory, steps = new_gain(), []
    for step in range(1, 41):
        seen = (rows, 1.0, 1.0) if learns(memory) else ()
        steps += [step] * bool(seen)
        memory = next_gain(memory, seen)
    assert len(steps) == learned
    assert set(range(4, 41, 4)) <= set(steps)


@pytest.mark.parametrize("kind", ["optimizer", "loss"])
def test_many_rows_are_not_all_learned_from(kind):
    """Of 24 known rows per step about eight count, from steps that lie apart."""
    problem, model = Toy(24, 2), make_model("linear", 2)
    opt = fcco.SOX(model, problem, lr=0.01, beta="auto")
    criterion = TableLoss(problem, beta="auto").double()
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        draw = problem.draw(24, 3, generator)
        if kind == "optimizer":
            opt.step(lambda: problem.inner(model, draw))  # noqa: B023
        else:
            criterion(problem.inner(model, draw))
    memory = opt.table.gain if kind == "optimizer" else criterion.table.gain
    assert memory[0] == 40
    assert 8 * 40 <= memory[1] <= 8 * 40 + 2 * 24


def test_the_gain_is_chosen_where_nothing_is_said():
    model, problem = make_model("linear", 1), Toy()

    def beta(opt):
        return opt.param_groups[0]["beta"]

    assert beta(fcco.SOX(model, problem, lr=0.1)) == "auto"
    assert beta(fcco.SOAP(model, problem, lr=0.1)) == "auto"
    assert beta(fcco.MSVRM(model, problem, version=2, lr=0.1)) == 0.5
    assert TableLoss(problem).beta == "auto"
    assert GroupDROLoss(2, temperature=1.0).beta == "auto"


@pytest.mark.parametrize(("saved", "built"), [(0.5, "auto"), ("auto", 0.5)])
def test_a_state_of_another_kind_of_gain_is_refused_by_its_name(saved, built):
    problem = Toy()
    state = fcco.SOX(make_model("linear", 1), problem, lr=0.1, beta=saved).state_dict()
    opt = fcco.SOX(make_model("linear", 1), problem, lr=0.1, beta=built)
    with pytest.raises(ValueError, match=r'only one was built with beta="auto"'):
        opt.load_state_dict(state)


def test_a_loss_learns_the_gain_that_sox_learns():
    problem, model = Toy(6, 2), make_model("network", 2)
    opt = fcco.SOX(model, problem, lr=0.1, alpha=1.0, beta="auto", updated_slopes=True)
    criterion = TableLoss(problem, beta="auto").double()
    twin = make_model("network", 2)
    sgd = torch.optim.SGD(twin.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        draw = problem.draw(3, 3, generator)
        opt.step(lambda: problem.inner(model, draw))  # noqa: B023
        sgd.zero_grad()
        criterion(problem.inner(twin, draw)).backward()
        sgd.step()
    torch.testing.assert_close(criterion.table.gain, opt.table.gain, rtol=1e-12, atol=0)
    torch.testing.assert_close(criterion.table.rows, opt.table.rows, rtol=1e-12, atol=1e-14)


def partial_auc(x):
    weights = torch.full((1, 1, x.shape[1]), 1 / x.shape[1])
    objective = PartialAUC(torch.tensor([1, 0]), temperature=1.0)
    scores = torch.cat([torch.zeros(1, dtype=x.dtype), x.flatten()])
    batch = PairBatch(
        torch.arange(len(x)),
        scores,
        anchors=torch.zeros(len(x), dtype=torch.int64),
        partners=1 + torch.arange(x.numel()).view(x.shape),
        weights=weights,
        samples=x.shape[1],
    )
    probe = objective.inner(lambda inputs: inputs, batch)
    unit = probe.log_scale.exp().unsqueeze(1)
    return probe.values * unit, probe.noise * unit


def groups(x):
    owner = torch.arange(len(x)).repeat_interleave(x.shape[1])
    counts = torch.full((len(x),), x.shape[1])
    batch = GroupBatch(torch.arange(len(x)), x.flatten(), owner, counts, targets=owner)
    objective = GroupDRO(torch.arange(len(x)), temperature=1.0, loss=lambda outputs, _: outputs)
    probe = objective.inner(torch.nn.Identity(), batch)
    return probe.values, probe.noise


def means_of_tasks(x):
    """One task, of which the first half of a row are positives."""
    objective = MultiTaskAUC(torch.tensor([True, False]))
    count = x.shape[1]
    positive = torch.arange(count) < count // 2
    weights = torch.stack([positive / positive.sum(), ~positive / (~positive).sum()])
    probes = [
        objective.inner(
            torch.nn.Identity(),
            PairBatch(
                torch.tensor([0]),
                row[:, None],
                partners=torch.arange(count).unsqueeze(0),
                weights=weights.unsqueeze(1).to(row.dtype),
                samples=count,
                columns=torch.tensor([0]),
            ),
        )
        for row in x
    ]
    return (torch.cat([getattr(p, name)[:, :2] for p in probes]) for name in ("values", "noise"))


@pytest.mark.parametrize("inner", [partial_auc, groups, means_of_tasks])
def test_noise_is_the_standard_error(inner):
    """Over many draws of one block, the mean of its square is the variance of the values."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(2000, 6, generator=generator, dtype=torch.float64)
    values, noise = inner(x)
    measured = noise.square().mean(0)
    torch.testing.assert_close(measured, values.var(0), rtol=0.1, atol=0)


def test_one_sample_has_no_known_noise():
    criterion = GroupDROLoss(2, temperature=1.0, beta="auto")
    for _ in range(3):
        criterion(torch.rand(2, requires_grad=True), torch.tensor([0, 1]))
    assert criterion.table.gain.tolist() == [3, 0, 0, 0]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda m, p: fcco.SOX(m, p, lr=0.1, beta="atuo"), "beta must be .* got 'atuo'"),
        (lambda m, p: fcco.SOX(m, p, lr=0.1, beta=("scnt", 1.0)), "beta must be .*'scnt'"),
        (lambda m, p: fcco.SOX(m, p, lr=0.1, beta=("log", 2.0)), "beta must be .*'log', 2.0"),
        (lambda m, p: fcco.SOX(m, p, lr=0.1, beta=("scent", math.nan)), "beta must be .*nan"),
        (lambda m, p: fcco.SOX(m, p, lr=0.1, beta=([], 1.0)), "beta must be "),
        (lambda m, p: fcco.MSVRM(m, p, version=3, lr=0.1, beta="auto"), "msvrm-v3 needs a number"),
        (lambda m, p: fcco.Variant(m, p, version=1, lr=0.1, beta="auto"), "every row shrinks"),
        (
            lambda m, p: fcco.MSVRM(m, p, version=1, lr=0.1, beta="auto", gamma="theory"),
            'gamma="theory" is singular',
        ),
        (lambda m, p: fcco.MSVRM(m, p, version=1, lr=0.1, beta=("log", 0.5)), 'number or "auto"'),
        (
            lambda m, p: fcco.optim.CompositionalOptimizer(
                m, p, fcco.methods.BSGD, lr=0.1, beta="auto"
            ),
            "bsgd has no table",
        ),
        (lambda m, p: TableLoss(p, beta="atuo"), "beta must be .* got 'atuo'"),
    ],
)
def test_a_gain_that_makes_no_sense_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build(make_model("linear", 1), Toy())


def test_a_gain_cannot_become_auto_later():
    opt = fcco.SOX(make_model("linear", 1), problem := Toy(), lr=0.1, beta=0.5)
    opt.param_groups[0]["beta"] = "auto"
    with pytest.raises(ValueError, match="built with beta"):
        opt.step(lambda: problem.inner(None, None))


def test_a_logarithmic_row_is_a_geometric_mean():
    old, fresh = torch.tensor([[2.0], [5.0], [3.0]]), torch.tensor([[8.0], [0.1], [3.0]])
    keep, share = RULES["log"](0.25, old.log(), fresh.log())
    torch.testing.assert_close(keep * old + share * fresh, old**0.75 * fresh**0.25)


def test_a_logarithmic_row_falls_far():
    """1 minus the share would be rounded to 0, and the row would be the fresh value."""
    old, fresh = torch.tensor([[1.0]]), torch.tensor([[1e-30]])
    keep, share = RULES["log"](0.5, old.log(), fresh.log())
    torch.testing.assert_close(keep * old + share * fresh, torch.tensor([[1e-15]]))


def test_a_restart_is_exact():
    keep, share = RULES["restart"](0.2, *torch.zeros(2, 1, 1, dtype=torch.float64))
    assert (keep.item(), share.item()) == (0.8, 0.2)


def test_a_restart_takes_a_fresh_value_above_e_times_the_row():
    old, fresh = torch.full((2, 1), 2.0), torch.tensor([[2 * 2.71], [2 * 2.72]])
    keep, share = RULES["restart"](0.25, old.log(), fresh.log())
    assert share.flatten().tolist() == [0.25, 1.0]
    assert keep.flatten().tolist() == [0.75, 0.0]


def test_scent_gives_large_rows_a_large_gain():
    """beta = u e^shift / (1 + u e^shift), and the rest stays with the row."""
    u, shift = torch.tensor([[0.1], [1.0], [30.0]], dtype=torch.float64), 0.7
    keep, share = RULES["scent"](shift, u.log(), torch.zeros_like(u))
    torch.testing.assert_close(share, u * math.exp(shift) / (1 + u * math.exp(shift)))
    torch.testing.assert_close(keep, 1 / (1 + u * math.exp(shift)))


def test_a_bad_batch_passes():
    """Its surprises count ten times the remembered ones at most, and its noise alike."""
    memory = new_gain()
    for _ in range(20):
        memory = next_gain(memory, (30.0, 60.0, 30.0))
    after = next_gain(memory, (30.0, 6e7, 6e7))
    torch.testing.assert_close(after[2:], 0.9 * memory[2:] + 0.1 * 20, rtol=1e-12, atol=0)
    for _ in range(20):
        after = next_gain(after, (30.0, 60.0, 30.0))
    assert chosen_gain(after) == pytest.approx(chosen_gain(memory), abs=0.1)


def test_a_row_with_more_noise_than_surprise_still_notices_that_it_is_wrong():
    assert chosen_gain(torch.tensor([9.0, 40.0, 1.0, 3.0])) == 0.02


def test_an_outlier_counts_whole_until_the_window_is_full():
    """Up to three hundred rows the memory is a plain mean of all of them; later it forgets."""
    for calm in (1, 9, 10):
        memory = new_gain()
        for _ in range(calm):
            memory = next_gain(memory, (30.0, 60.0, 30.0))
        after = next_gain(memory, (30.0, 3e7, 6e7))
        share = 1 / min(calm + 1, 10)
        expected = [2 + share * (1e6 - 2), 1 + share * (2e6 - 1)]
        assert after[2:].tolist() == pytest.approx(expected, rel=1e-12)


class Square(Walk):
    """f(u) = u^2."""

    def outer(self, u, blocks):
        return u.squeeze(1).square()


@pytest.mark.parametrize("kind", ["square", "logarithm", "falling logarithm"])
def test_errors_are_measured_in_units_of_f_between_the_row_and_the_fresh_value(kind):
    """At 0.6 old + 0.4 fresh; for a logarithm in any units of its rows."""
    old, fresh, scales = {
        "square": (1.0, 2.0, (None, None)),
        "logarithm": (1.0, math.exp(2), (0.0, 2.0)),
        "falling logarithm": (math.exp(2), 1.0, (2.0, 0.0)),
    }[kind]
    objective = Square() if kind == "square" else DRO(4, temperature=1.0)
    criterion = TableLoss(objective, beta="auto").double()
    noise = torch.full((1, 1), 0.5, dtype=torch.float64)
    for value, scale in zip((old, fresh), scales, strict=True):
        unit = 1.0 if scale is None else math.exp(scale)
        values = torch.full((1, 1), value / unit, dtype=torch.float64, requires_grad=True)
        log_scale = None if scale is None else torch.tensor([scale], dtype=torch.float64)
        criterion(Probe(torch.tensor([0]), values, noise=noise, log_scale=log_scale))
    between = 0.6 * old + 0.4 * fresh
    slope = 2 * between if kind == "square" else 1 / between
    expected = [2, 1, (slope * (fresh - old)) ** 2, (slope * 0.5 * unit) ** 2]
    assert criterion.table.gain.tolist() == pytest.approx(expected, rel=1e-12)


def test_drift_that_the_correction_removes_is_no_surprise():
    """Values without noise: the row follows every change of w, however far w moves."""
    problem, model = Toy(), make_model("linear", 1)
    opt = fcco.MSVRM(model, problem, version=1, lr=0.3, beta="auto", gamma="storm")
    noise, moved = torch.full((6, 1), 0.1, dtype=torch.float64), []
    for _ in range(5):
        before = opt.table.read(torch.arange(6))
        opt.step(lambda: replace(problem.inner(model, problem.everything()), noise=noise))
        moved.append(float((opt.table.read(torch.arange(6)) - before).abs().max()))
    assert min(moved) > 0.01
    steps, rows, surprise, error = opt.table.gain.tolist()
    assert (steps, rows) == (5, 24)
    assert surprise < 1e-20 < error


@pytest.mark.parametrize(
    ("build", "changed"),
    [
        (lambda m, p: fcco.Variant(m, p, version=1, lr=0.1, beta=0.5), {"beta": ("scent", 3.0)}),
        (lambda m, p: fcco.MSVRM(m, p, version=1, lr=0.1, beta=0.5), {"beta": ("log", 0.5)}),
        (lambda m, p: fcco.MSVRM(m, p, version=1, lr=0.1, beta="auto"), {"gamma": "theory"}),
    ],
)
def test_what_the_constructor_refuses_is_refused_later_too(build, changed):
    model, problem = make_model("linear", 1), Toy()
    opt = build(model, problem)
    draw = problem.draw(3, 2, torch.Generator().manual_seed(0))
    opt.step(lambda: problem.inner(model, draw))
    before = opt.table.rows.clone()
    opt.param_groups[0].update(changed)
    with pytest.raises(ValueError, match="beta"):
        opt.step(lambda: problem.inner(model, draw))
    assert before.equal(opt.table.rows)


class Steep(Walk):
    """f(u) = u^4, whose squared errors overflow before its values do."""

    def outer(self, u, blocks):
        return u.squeeze(1) ** 4


def test_an_overflow_is_not_remembered():
    criterion = TableLoss(Steep(), beta="auto").double()
    for size in (1.0, 1e45, 1.0):
        values = torch.full((1, 1), size, dtype=torch.float64, requires_grad=True)
        criterion(Probe(torch.tensor([0]), values, noise=values.detach() / 2))
    assert criterion.table.gain.isfinite().all()


def test_a_small_spread_of_large_values_is_seen():
    """In float32, and in half precision, where a square would overflow."""
    x = torch.tensor([[1000.0, 1000.5, 1001.0], [1000.0, 1000.0, 1000.0]])
    for dtype in (torch.float32, torch.float16):
        _, noise = groups(x.to(dtype))
        torch.testing.assert_close(noise.flatten().float(), x.std(1) / 3**0.5)
    _, noise = means_of_tasks((torch.arange(6.0) / 6 + 10).repeat(2, 1))
    wanted = (torch.arange(6.0) / 6 + 10).double().sigmoid().view(2, 3).std(1) / 3**0.5
    torch.testing.assert_close(noise[0].double(), wanted, rtol=0.02, atol=0)


def test_a_sample_that_comes_twice_is_no_certainty():
    """Weights are fixed, so the gain is small, with replacement as without."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 40, 64, generator=generator)
    gains = []
    for twice in (False, True):
        criterion = ContrastiveLoss(40, temperature=1.0)
        for _ in range(80):
            drawn = torch.randint(40, (16,), generator=generator)
            index = drawn if twice else torch.randperm(40, generator=generator)[:16]
            criterion(x[index].requires_grad_(), y[index], index)
        gains.append(chosen_gain(criterion.table.gain))
    assert max(gains) < 0.1


@pytest.mark.parametrize("kind", ["pairs", "points"])
def test_an_anchor_is_no_sample_of_itself(kind):
    """Batches of one's own: equal values have no noise, and the noise is that of the others."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 5, generator=generator, dtype=torch.float64)
    if kind == "pairs":
        inputs, objective = (x, x.flip(1)), GlobalContrastive(8, temperature=1.0)
    else:
        inputs, objective = x, NCA(torch.tensor([0, 1] * 4))
    rows = torch.tensor([5, 2, 7, 0])
    probe = objective.inner(torch.nn.Identity(), objective.batch(take(inputs, rows), rows))
    for k, block in enumerate(probe.blocks.tolist()):
        others = [row for row in rows.tolist() if row != block % 8]
        if kind == "pairs":
            a, b = (torch.nn.functional.normalize(v, dim=1) for v in (x, x.flip(1)))
            a, b = (b, a) if block >= 8 else (a, b)
            i = block % 8
            values = torch.stack([(a[i] @ b[j] - a[i] @ b[i]).exp() for j in others])
        else:
            values = torch.stack([(-(x[block] - x[j]).square().sum()).exp() for j in others])
        wanted = values.std() / len(others) ** 0.5 / values.mean()
        found = probe.noise[k, -1] / probe.values[k, -1]
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=0)


def test_the_cosine_ends_at_its_least():
    assert cosine_gain(0, 10) == 1.0
    assert cosine_gain(99, 10, least=0.3) == pytest.approx(0.3)
