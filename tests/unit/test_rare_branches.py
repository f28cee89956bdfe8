"""Branches that are rarely run: full rooms, roundings, absent noise, spoiled files."""

import copy
import logging
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from support import Toy, flat, make_model

import fcco
from fcco import Probe
from fcco import losses as L
from fcco.distributed import Share
from fcco.kernel.rows import Rows, _level, align
from fcco.kernel.table import Table
from fcco.losses.merge import merge
from fcco.methods import Point, next_gain
from fcco.objectives import AUC, DRO, NCA, Cox, GlobalContrastive, ListNet, PartialAUC
from fcco.objectives.curves import partial_area
from fcco.objectives.means import Means
from fcco.objectives.neighbours import _minus_squares
from fcco.objectives.sampling import standard_error
from fcco.objectives.sums import interpolated
from fcco_lab.datasets import load_own
from fcco_lab.datasets.arrays import _times
from fcco_lab.datasets.records import Ranked
from fcco_lab.datasets.splitting import split
from fcco_lab.datasets.tables import Table as File
from fcco_lab.training import checkpoints
from fcco_lab.training.checkpoints import Checkpoints


def test_an_overlay_that_is_full_to_its_last_place():
    """4,096 blocks fill the room that an overlay has at first."""
    table, blocks = Table(Share(4_096), 1, previous=True), torch.arange(4_096)
    table.write(blocks, table.gather(blocks), torch.ones(4_096, 1), step=1, beta=0.5)
    assert table.gather(blocks).equal(torch.ones(4_096, 1))
    assert table.gather(blocks, Point.PREVIOUS).equal(torch.zeros(4_096, 1))


@pytest.mark.parametrize("rank", range(3))
def test_an_overlay_has_room_on_the_rank_with_the_least(rank):
    """Of 4,096 places three ranks have 1,366, 1,366 and 1,364."""
    share = Share(30_000, rank, 3)
    table = Table(share, 1, previous=True)
    blocks = torch.arange(share.start, share.start + 1_365)
    table.overlay_blocks, table.overlay_rows = blocks, torch.ones(1_365, 1)
    table.keep_own_overlay()
    assert len(table.overlay_blocks) == Share(8_192, rank, 3).count
    assert table.gather(blocks, Point.PREVIOUS).equal(torch.ones(1_365, 1))


def test_a_table_that_is_filled_later_shrinks_from_then_on():
    table = Table(Share(2), 1, dtype=torch.float64, shrinks=True)
    first, both = torch.tensor([0]), torch.arange(2)
    for step in (1, 2):
        table.write(first, table.gather(first), torch.ones(1, 1).double(), step=step, beta=0.5)
    table.fill(torch.full((2, 1), 8.0), step=2)
    assert table.read(both).tolist() == [[8.0], [8.0]]


def test_nothing_is_left_of_a_row_after_a_gain_of_one():
    table, first = Table(Share(2), 1, dtype=torch.float64, shrinks=True), torch.tensor([0])
    table.fill(torch.ones(2, 1), step=0)
    table.write(first, table.gather(first), torch.ones(1, 1).double(), step=1, beta=1.0)
    assert table.read(torch.arange(2)).tolist() == [[1.0], [0.0]]


class Given(fcco.Objective):
    """Values that are given; f(u) = u."""

    num_blocks, inner_dim = 4, 1

    def outer(self, u, blocks):
        return u.squeeze(1)


def test_a_micro_batch_without_noise_hides_nothing_of_the_others():
    """Of two micro-batches the first does not know its noise: the second alone teaches."""
    w = torch.nn.Parameter(torch.ones(1, 1))
    opt = fcco.SOX([w], Given(), lr=0.0, beta="auto")
    noise = torch.full((1, 1), 0.5)
    for factor in (1.0, 3.0):
        opt.step([
            lambda: Probe(torch.tensor([0]), factor * w),  # noqa: B023
            lambda: Probe(torch.tensor([1]), factor * w, noise=noise),  # noqa: B023
        ])  # fmt: skip
    assert opt.table.gain.tolist() == [2.0, 1.0, (3.0 - 1.0) ** 2, 0.25]


def test_split_blocks_of_a_second_snapshot_have_slopes_at_the_whole():
    """Slopes at updated rows: an exact pass takes them at the values of all chunks together."""
    problem, model = Toy(4, 1, inner_size=6), make_model("network", 1)
    opt = fcco.SVRG(model.parameters(), problem, lr=0.0)
    everything = problem.everything()

    def chunk(columns):
        samples = everything.samples[:, columns]
        return lambda: Probe(
            everything.blocks,
            problem.values(model, everything.blocks, samples),
            samples=len(columns),
        )

    exact = problem.outer(
        problem.values(model, everything.blocks, everything.samples), everything.blocks
    ).mean()
    expected = flat(torch.autograd.grad(exact, model.parameters()))
    for _ in range(2):
        opt.snapshot([chunk([0]), chunk([1, 2, 3, 4, 5])])
        anchor = flat(opt.state[p]["anchor"] for p in model.parameters())
        torch.testing.assert_close(anchor, expected, rtol=1e-10, atol=1e-12)


def test_surprises_count_after_many_rows_without_any():
    """400 rows stood still; a clip at ten times their mean of 0 would hide all that follows."""
    memory = torch.tensor([50.0, 400.0, 0.0, 0.0], dtype=torch.float64)
    after = next_gain(memory, (30.0, 60.0, 30.0))
    torch.testing.assert_close(after[2:], torch.tensor([0.2, 0.1]).double())  # a tenth of 2 and 1


@pytest.mark.parametrize("rule", ["log", "restart"])
def test_a_rule_that_never_moves_is_refused(rule):
    with pytest.raises(ValueError, match="beta must be"):
        L.TableLoss(Given(), beta=(rule, 0.0))


def test_before_all_are_seen_samples_count_by_their_weights():
    """Against the weighted mean of those seen: DRO at a high temperature."""
    weight, losses = torch.tensor([1.0, 3.0, 2.0]), torch.tensor([1.0, 2.0, 7.0]).double()
    criterion = L.ScoreLoss(DRO(3, temperature=0.5), sample_weight=weight).double()
    scores = losses[:2].clone().requires_grad_()
    value = criterion(scores, torch.tensor([0, 1]))
    expected = 0.5 * ((weight[:2] * (losses[:2] / 0.5).exp()).sum() / 4).log()
    torch.testing.assert_close(value.detach(), expected)


def test_a_fixed_gain_leaves_the_memory_of_auto_alone():
    criterion = L.TableLoss(Given(), beta="auto")
    values = torch.ones(1, 1, requires_grad=True)
    probe = Probe(torch.tensor([0]), values, noise=torch.ones(1, 1))
    for _ in range(2):
        criterion(probe)
    before = criterion.table.gain.clone()
    criterion.beta = 0.5
    criterion(probe)
    assert criterion.table.gain.equal(before)


class Bounded(Given):
    """f(u) = log u for u >= 1."""

    def outer(self, u, blocks):
        return u.squeeze(1).log()

    def feasible(self, u, blocks):
        return u.clamp(min=1)


def test_slopes_of_a_new_row_in_a_window_are_inside_the_domain():
    criterion = L.TableLoss(Bounded(), beta=0.5)
    criterion.accumulate = True
    values = torch.full((1, 1), 0.25, requires_grad=True)
    criterion(Probe(torch.tensor([0]), values)).backward()
    assert values.grad.item() == 1.0  # at u = 1, not at 1/4


def test_an_index_may_be_a_view():
    grades, lengths = torch.tensor([0, 1, 2, 1]), torch.tensor([2, 2])
    criterion, scores = L.ScoreLoss(ListNet(grades, lengths)), torch.arange(4.0).requires_grad_()
    criterion(scores, torch.arange(4)).backward()
    index = torch.arange(8)[::2] // 2
    assert not index[::2].is_contiguous()
    criterion(scores[::2], index[::2]).backward()


def test_merging_a_row_that_is_zero_in_one_column():
    """(0, 2) e^50 and (1, 1): the mean is (e^-50, 2 + e^-50) e^50 / 2."""
    probe = Probe(
        torch.tensor([3, 3]),
        torch.tensor([[0.0, 2.0], [1.0, 1.0]], dtype=torch.float64),
        log_scale=torch.tensor([50.0, 0.0]).double(),
    )
    merged = merge(probe, 2)
    plain = merged.values * merged.log_scale.exp()
    torch.testing.assert_close(
        plain, torch.tensor([[0.5, 0.5 * (2 * torch.tensor(50.0).double().exp() + 1)]]).double()
    )


def test_errors_of_merged_values_are_in_the_units_of_the_merged_scale():
    """1 e^2 +- 0.5 e^2 and 1 e^0 +- 0.5 e^0."""
    probe = Probe(
        torch.tensor([3, 3]),
        torch.ones(2, 1).double(),
        noise=torch.full((2, 1), 0.5).double(),
        log_scale=torch.tensor([2.0, 0.0]).double(),
    )
    merged = merge(probe, 1)
    plain = merged.noise * merged.log_scale.exp()
    large = torch.tensor(2.0).double().exp()
    torch.testing.assert_close(plain, (0.25 * (large.square() + 1).sqrt()).view(1, 1))


def test_the_first_batch_of_means_is_no_surprise():
    criterion = L.MeansLoss(lambda u: u[..., 0], 1)
    criterion(torch.tensor([[1.0], [3.0]], requires_grad=True))
    assert criterion.table.gain.tolist() == [1.0, 0.0, 0.0, 0.0]


def test_all_moments_of_correlations_are_float64():
    criterion = L.CorrelationLoss().float()
    names = ("shift", "centre", "variance", "last")
    assert {getattr(criterion, name).dtype for name in names} == {torch.float64}


def test_an_exact_group_loss_of_many_samples_does_not_round():
    """A million losses of 1/10 or 1/5: their mean in float32 would have three digits."""
    losses = torch.tensor([0.1, 0.2]).repeat(500_000)
    exact = L.GroupDROLoss(1, temperature=1.0).exact(losses, torch.zeros(len(losses)).long())
    assert exact.item() == pytest.approx(torch.tensor(0.15).double().expm1().item(), rel=1e-6)


def test_two_draws_of_a_neighbour_saw_the_same_samples():
    """Both draws of sample 0 are compared with the samples 1 and 2, so its noise is that of one."""
    classes, e = torch.tensor([0, 0, 1]), torch.tensor([[0.0], [1.0], [2.0]])
    found = []
    for index in ([0, 1, 2], [0, 0, 1, 2]):
        criterion = L.NCALoss(classes)
        probes, take = [], criterion._take
        criterion._take = lambda probe, take=take, probes=probes: (
            probes.append(probe) or take(probe)
        )
        criterion(e[index].requires_grad_(), torch.tensor(index))
        found.append((probes[0].noise[0], probes[0].samples_per_row()[0]))
    torch.testing.assert_close(found[0], found[1])


def test_a_state_without_learned_parameters_has_its_whole_table():
    """strict=False leaves the threshold as it is and loads the table."""
    first, second = (L.GroupCVaRLoss(2, fraction=0.5) for _ in range(2))
    first(torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([0, 1]))
    state = {k: v for k, v in first.state_dict().items() if "threshold" not in k}
    assert len(state) == len(first.state_dict()) - 1
    second.load_state_dict(state, strict=False)
    assert second.table.rows.equal(first.table.rows)


def test_a_fingerprint_is_the_same_in_every_process():
    """The order of a set of names depends on the seed of their hashes."""
    code = (
        "import torch; from fcco.losses import AUCLoss; "
        "print(int(AUCLoss(torch.tensor([1, 0])).fingerprint))"
    )
    seeds = ({**os.environ, "PYTHONHASHSEED": seed} for seed in ("1", "2"))
    run = lambda env: subprocess.run(  # noqa: E731
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert len({run(env).stdout for env in seeds}) == 1


def test_nothing_has_happened_before_the_first_whole_time():
    objective = Cox(torch.tensor([0, 2]), torch.tensor([1, 1]))
    hazard = objective.baseline_hazard(torch.zeros(2), at=[-0.5, 0.0, 0.5])[1]
    assert hazard.tolist() == [0.0, 0.5, 0.5]


def test_sums_of_cox_that_are_denormal_are_not_trusted():
    """A shift of all scores changes nothing, and exp(-735) has a handful of bits."""
    objective = Cox(torch.arange(6.0), torch.tensor([1, 1, 0, 1, 1, 1]))
    scores = torch.tensor([0.3, -0.2, 0.5, 0.1, -0.4, 0.2]).double()
    criterion, everyone = L.ScoreLoss(objective).double(), torch.arange(6)
    far = (scores - 735).requires_grad_()
    value = criterion(far, everyone)
    torch.testing.assert_close(value.detach(), objective.exact(scores), rtol=1e-12, atol=0)


def test_costs_of_rounded_scores_count_the_partners_seen():
    """Only task 1 is in the last batch; the cost of task 0 is that of the rounded scores."""
    labels = torch.tensor([[1, 1], [0, 0], [0, 0], [-1, 0]])
    objective = PartialAUC(labels, temperature=0.5)
    criterion = L.ScoreLoss(objective).double()
    scores = torch.tensor([[0.3, 0.2], [0.5, -0.25], [0.0, 0.0], [0.0, 1.0]]).double()
    criterion(scores[:2].requires_grad_(), torch.tensor([0, 1]))
    criterion = criterion.float()
    value = criterion(scores[3:].float().requires_grad_(), torch.tensor([3]))
    seen = torch.tensor([1.0, 1.0, 0.0, 1.0])
    torch.testing.assert_close(value.detach(), objective.exact(scores.float(), seen).detach())


def test_far_partners_keep_their_size():
    """sigmoid(-35) is 6e-16, not 0."""
    found = interpolated(
        torch.sigmoid, lambda count, total: count, torch.tensor([-35.0]), torch.zeros(1)
    )
    torch.testing.assert_close(found, torch.tensor([-35.0]).double().sigmoid(), rtol=1e-12, atol=0)


def test_an_unbounded_auc_of_pairs_far_in_order():
    """log E exp((h- - h+) / T) of one pair at a distance of 1,000 is -1,000."""
    criterion = L.ScoreLoss(AUC(torch.tensor([1, 0]), bounded=False)).double()
    scores = torch.tensor([500.0, -500.0]).double().requires_grad_()
    assert criterion(scores, torch.arange(2)).item() == pytest.approx(-1000, rel=1e-12)


def test_auc_of_tiny_weights_that_differ():
    """Of the weights of the positives only the ratio counts."""
    objective, scores = AUC(torch.tensor([1, 1, 0])), torch.tensor([2.0, -1.0, 0.5]).double()
    large = objective.exact(scores, torch.tensor([1.0, 3.0, 1.0]).double())
    small = objective.exact(scores, torch.tensor([1e-60, 3e-60, 1.0], dtype=torch.float64))
    torch.testing.assert_close(large, small)


def test_a_single_neighbour_has_no_one():
    assert NCA(torch.tensor([0])).exact(torch.zeros(1, 2)).item() == 0


def test_noise_of_means_is_the_standard_error():
    lines = torch.tensor([[1.0], [2.0], [6.0]]).double()
    noise = Means(lambda u: u[..., 0], 1).probe(lines).noise
    torch.testing.assert_close(noise, (lines.std(0) / 3**0.5).view(1, 1))


def test_rows_of_dro_are_positive():
    objective, row = DRO(3, temperature=1.0), torch.zeros(1, 1)
    found = objective.scaled_feasible(row, torch.zeros(1), torch.tensor([0]))
    assert found.log().isfinite().all()


def test_a_state_with_an_empty_parameter_is_loaded():
    problem, model = Toy(), make_model("network", 1)
    empty = torch.nn.Parameter(torch.zeros(0).double())
    opt = fcco.SOX([*model.parameters(), empty], problem, lr=0.1, beta=0.5)
    draw = problem.draw(3, 2, torch.Generator().manual_seed(0))
    opt.step(lambda: problem.inner(model, draw))
    opt.load_state_dict(copy.deepcopy(opt.state_dict()))
    assert opt.queries.values > 0


def test_a_row_of_zeros_at_a_large_scale_stays_zero():
    """The scale of a row of zeros has no meaning: e^1000 times 0 is 0."""
    zero, one = torch.tensor([[0.0, 1000.0]]), torch.tensor([[2.0, 0.0]])
    (first, second), scale = align(zero, one)
    assert (first.item(), second.item(), scale.item()) == (0.0, 2.0, 0.0)


def test_a_scale_that_rounds_by_more_than_the_shift():
    """At 2^31 float32 steps by 256: a shift of 80 rounds to 0, one beyond 128 would be 256."""
    for scale in (2.0**30, 2.0**31, 2.0**32):
        for power in (-80, -70, 70, 80):
            row = _level(torch.tensor([[2.0]]) * 2.7182817**power, torch.tensor([[scale]]), 1)
            assert row.isfinite().all()
            assert row[0, 0] > 0


def test_the_error_of_equal_terms_with_padding_is_zero():
    """Seven times 0.9 and five zeros: what rounding leaves below 0 has no root."""
    terms = torch.zeros(1, 12, dtype=torch.float64)
    terms[0, :7] = 0.9
    assert standard_error(terms, torch.tensor([7])).item() == pytest.approx(0, abs=1e-6)


def test_a_perfect_order_has_no_more_than_the_whole_area():
    """One positive above seven negatives; rounding alone would make it 1 + 2e-16."""
    positives = torch.tensor([0.0] + [1.0] * 8, dtype=torch.float64)
    negatives = torch.tensor([0.0, *range(8)], dtype=torch.float64)
    assert partial_area(0.6, 0.7)(positives, negatives) == 1.0


def test_a_backup_of_a_checkpoint_is_the_users_own(tmp_path):
    (tmp_path / "step-0000000099.pt.bak").write_bytes(b"the user's own")
    for step in (1, 2, 3):
        Checkpoints(tmp_path).save({"step": step}, step=step)
    assert (tmp_path / "step-0000000099.pt.bak").exists()
    assert Checkpoints(tmp_path).load() == {"step": 3}


def test_too_little_memory_is_no_spoiled_checkpoint(tmp_path, monkeypatch):
    """Going back to an older one, which needs as much, would lose steps."""
    Checkpoints(tmp_path).save({"step": 1}, step=1)

    def load(*arguments, **named):
        raise MemoryError

    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(MemoryError):
        Checkpoints(tmp_path).load()


def test_shards_replace_spoiled_ones_of_the_same_step(tmp_path):
    path = tmp_path / "step-0000000007"
    path.mkdir()
    (path / "index.pt").write_bytes(b"spoiled")
    with pytest.warns(UserWarning, match="in a single process"):
        checkpoints._write_shards(path, {"weights": torch.ones(3)})
    assert Checkpoints(tmp_path).load()["weights"].tolist() == [1.0, 1.0, 1.0]


def test_the_clock_and_the_gain_of_few_blocks_are_whole_on_every_rank():
    """The gain has 4 numbers, as many as there are blocks here."""
    table = Table(Share(4, 1, 2), 1, gain=True)
    saved = torch.arange(4.0, dtype=torch.float64)
    assert table.select("gain", saved).equal(saved)
    assert table.select("visited", torch.tensor([0, 0, 1, 1]).bool()).tolist() == [True, True]


class Roots(fcco.Objective):
    """f(u) = sqrt(u) for u >= 1, where its slope is at most 1/2."""

    num_blocks, inner_dim = 1, 1

    def outer(self, u, blocks):
        return u.squeeze(1).sqrt()

    def feasible(self, u, blocks):
        return u.clamp(min=1)


def test_errors_are_measured_by_a_slope_inside_the_domain():
    """Between the row 1 and the fresh value 0 there is no slope but that at 1."""
    one, zero = torch.ones(1, 1), torch.zeros(1, 1)
    surprise, noise = Rows(Roots()).surprise(one, zero, one, torch.tensor([0]))
    assert (surprise.item(), noise.item()) == (-0.5, 0.5)


def test_the_bound_of_a_list_is_finite_at_any_scale():
    """exp(200) does not fit into float32."""
    objective = ListNet(torch.tensor([1.0, 0.0]), torch.tensor([2]))
    row = objective.scaled_feasible(torch.ones(1, 1), torch.tensor([-200.0]), torch.tensor([0]))
    assert row.isfinite().all()


def test_an_item_alone_in_its_list_is_a_block():
    """It is compared with itself, whatever else is in the batch."""
    objective = ListNet(torch.tensor([1.0, 1.0, 5.0]), torch.tensor([2, 1]))
    assert objective.among(torch.tensor([0, 2])).blocks.tolist() == [2]


def test_fresh_values_do_not_bound_a_learned_temperature():
    objective = GlobalContrastive(9, temperature=1.0, learned="common")
    u, fresh = torch.tensor([[0.1, 0.2]]), torch.tensor([[1.0, 1.0]])
    assert objective.supported(u, fresh, 0.5).tolist() == [[0.5, pytest.approx(0.2)]]


def test_near_neighbours_far_from_the_centre():
    """At 30,000 squares are 9e8, where the fast formula has seven digits after the point."""
    points = torch.tensor([[3e4]], dtype=torch.float64)
    others = points + 1e-3
    assert _minus_squares(points, others).item() == -(((others - points).item()) ** 2)


def test_a_long_overlay_is_copied_when_it_is_loaded():
    problem, model = Toy(5_000, 1, inner_size=2), make_model("network", 1)
    first, second = (
        fcco.MSVRM(model.parameters(), problem, version=2, lr=0.0, alpha=0.5, beta=0.5)
        for _ in range(2)
    )
    generator = torch.Generator().manual_seed(0)
    draw = problem.draw(4_500, 2, generator)
    first.step(lambda: problem.inner(model, draw))
    saved = first.state_dict()
    before = first.table.overlay_rows.clone(), first.table.overlay_blocks.clone()
    second.load_state_dict(saved)
    other = problem.draw(7, 2, generator)
    second.step(lambda: problem.inner(model, other))
    assert first.table.overlay_rows.equal(before[0])
    assert first.table.overlay_blocks.equal(before[1])


def test_whole_times_that_float64_would_round_stay_apart():
    times = _times(np.array([2**53, 2**53 + 1, 2**60 + 1]))
    assert times.tolist() == [2**53, 2**53 + 1, 2**60 + 1]


def test_the_first_whole_number_that_float64_rounds(tmp_path):
    """2^53 + 1 becomes 2^53 as a float."""
    path = tmp_path / "my.csv"
    path.write_text(f"time,x\n{2**53 + 1},0\n1,0\n")
    assert File(path, names=[]).numbers("time", exact=True).tolist() == [2**53 + 1, 1]


def test_the_words_of_a_split_may_be_capitals(tmp_path):
    path = tmp_path / "my.csv"
    path.write_text("x,label,split\n1,a,Train\n2,b,TRAIN\n3,a,Test\n4,b,test\n")
    train, test = load_own(path)
    assert (train.inputs.flatten().tolist(), test.inputs.flatten().tolist()) == ([1, 2], [3, 4])


def test_a_feature_that_loses_a_hundredth_of_its_spread_is_named(tmp_path, caplog):
    """Near 10^6 float32 steps by 1/16, so that it loses 1/32 of a spread of 3."""
    path = tmp_path / "my.csv"
    rows = [f"{1e6 + k / 2 + 1 / 32},{k % 2}" for k in range(20)]
    path.write_text("x,label\n" + "\n".join(rows) + "\n")
    with caplog.at_level(logging.WARNING, logger="fcco"):
        load_own(path)
    assert "float32 blurs it" in caplog.text


def test_a_query_is_left_for_the_second_part():
    data = Ranked(torch.zeros(6, 1), torch.arange(6), torch.tensor([3, 3]))
    assert [len(part) for part in split(data, 6, seed=0)] == [3, 3]


def test_a_pair_that_is_not_finite_is_named_where_slopes_do_not_show_it():
    """The slope of f(u) = u is 1 at any u, NaN included."""
    w = torch.nn.Parameter(torch.ones(1, 1))
    opt = fcco.FreshPair([w], Given(), version=1, lr=0.1, alpha=0.5)
    with pytest.raises(FloatingPointError, match=r"Probe\.pair .* of blocks \[2\]"):
        opt.step(lambda: Probe(torch.tensor([2]), 2 * w, pair=torch.full((1, 1), torch.nan)))
