"""Run by both of two ranks: what is exchanged, what is refused, and what an uneven cut weighs."""

import copy
import itertools
import sys
import warnings
from functools import partial

import torch
import torch.distributed as dist
from distributed.cluster import Run, join
from support import Draw, Toy, make_model
from support.job import assert_same, assert_unchanged, capture
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from fcco import MSVRM, SOX, Probe
from fcco.distributed import Ranks
from fcco.distributed.sharded import cut, global_norm


def raised(call):
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def one_reduction_a_step(rank):
    for case, passes in {"sox": 1, "v1": 1, "v2": 2, "v3": 3}.items():
        run = Run(case, "ddp")
        buckets = []

        def counted(state, bucket, buckets=buckets):
            buckets.append(bucket.index())
            return allreduce_hook(state, bucket)

        run.model.register_comm_hook(None, counted)
        run.run(1, 1)  # where the modules are noted
        before = len(buckets)
        run.run(2, 3)
        assert len(buckets) - before == 2, (case, passes, buckets)


def a_fault_on_one_rank_is_everyones(rank):
    run = Run("v2", "ddp").run(1, 3)
    draw = run.draw(4)

    def poisoned():
        probe = run.inner(draw)
        spoil = torch.tensor([1.0, float("nan") if rank else 1.0], dtype=torch.float64)
        return Probe(probe.blocks, probe.values * spoil, samples=probe.samples)

    before = capture(run.module, run.opt)
    error = raised(lambda: run.opt.step(poisoned))
    assert isinstance(error, FloatingPointError), error
    if rank:
        assert f"Probe.values at the current point of blocks {draw.blocks.tolist()}" in str(error)
    assert_unchanged(before, run.module, run.opt)
    run.run(4, 5)

    def twice():
        probe = run.inner(run.draw(6))
        blocks = probe.blocks if rank == 0 else probe.blocks[:1].expand(len(probe.blocks)).clone()
        return Probe(blocks, probe.values, samples=probe.samples)

    error = raised(lambda: run.opt.step(twice))
    expected = RuntimeError if rank == 0 else ValueError
    assert type(error) is expected, error
    assert ("another rank found a fault" if rank == 0 else "were probed twice") in str(error)
    run.run(6, 7)


def blocks_of_another_rank_are_refused(rank):
    run = Run("sox", "ddp").run(1, 2)
    draw = run.problem.everything(torch.tensor([1, 5]))
    error = raised(lambda: run.opt.step(lambda: run.inner(draw)))
    mine, other = (5, 1) if rank == 0 else (1, 0)
    assert str(error).startswith(
        f"blocks [{mine}] belong to ranks [{other}]; this is rank {rank}"
    ), error
    run.run(3, 4)


def unequal_counts_are_refused(rank):
    run = Run("sox", "ddp").run(1, 2)
    draw = run.problem.everything(torch.tensor([0, 1] if rank == 0 else [5]))
    error = raised(lambda: run.opt.step(lambda: run.inner(draw)))
    assert isinstance(error, ValueError)
    assert "every rank must probe equally many blocks" in str(error), error
    run = Run("v3", "ddp")
    closure = lambda: run.inner(run.problem.everything())  # noqa: E731
    error = raised(lambda: run.opt.snapshot([closure] * (1 + rank)))
    assert "equally many closures" in str(error), error


def ranks_may_have_unequal_numbers_of_micro_batches(rank):
    """One closure here and two there (DDP): what counts is how many blocks they probe."""
    for case in ("sox", "v2", "v3"):
        run, other = Run(case, "ddp").run(1, 3), Run(case, "ddp").run(1, 3)
        draw = run.draw(4)
        parts = [Draw(*(x[k : k + 1] for x in vars(draw).values())) for k in (0, 1)]
        many = [lambda part=part, run=run: run.inner(part) for part in parts]
        run.opt.step(many if rank else lambda run=run, draw=draw: run.inner(draw))
        other.opt.step(lambda other=other, draw=draw: other.inner(draw))
        found, expected = run.result(), other.result()
        for name in ("params", "z"):
            for a, b in zip(found[name], expected[name], strict=True):
                torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def unequal_numbers_are_refused_where_each_closure_is_collective(rank):
    """Under FSDP2, and where gradients are averaged closure by closure: they would wait."""

    def halves(run, draw):
        parts = [Draw(*(x[k : k + 1] for x in vars(draw).values())) for k in (0, 1)]
        return [lambda part=part: run.inner(part) for part in parts]

    def check(run, closures):
        before = capture(run.module, run.opt)
        for verb in (run.opt.step, run.opt.estimate):
            error = raised(lambda verb=verb: verb(closures))
            assert isinstance(error, ValueError), error
            assert "every rank must bring equally many closures" in str(error), error
            assert f"this one brought {1 + rank}, and all 2 together 3" in str(error), error
            assert_unchanged(before, run.module, run.opt)

    for case in ("sox", "v2 adam", "v3"):
        run, other = Run(case, "fsdp").run(1, 3), Run(case, "fsdp").run(1, 3)
        draw = run.draw(4)
        check(run, halves(run, draw) if rank else [lambda run=run, draw=draw: run.inner(draw)])
        run.opt.step(halves(run, draw))  # equal numbers: it goes on
        other.opt.step(lambda other=other, draw=draw: other.inner(draw))
        for name in ("params", "z"):
            for a, b in zip(run.result()[name], other.result()[name], strict=True):
                torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    for options in ({"dtype": torch.bfloat16}, {"ranks": Ranks(defer=False)}):
        run = Run("v2", "ddp", **options).run(1, 3)
        draw = run.draw(4)
        check(run, halves(run, draw) if rank else [lambda run=run, draw=draw: run.inner(draw)])
        run.run(4, 5)


def an_error_leaves_no_gradient_behind(rank):
    """One that all ranks meet between two points, when the first gradient is held back."""
    for parallel in ("ddp", "fsdp"):
        run, other = Run("v2", parallel).run(1, 3), Run("v2", parallel).run(1, 3)
        calls = []

        def broken(run=run, calls=calls):
            calls.append(1)
            if len(calls) == 2:
                raise KeyError("lost")
            return run.inner(run.draw(4))

        assert isinstance(raised(lambda run=run: run.opt.step(broken)), KeyError)
        for a, b in zip(run.run(4, 6).result()["z"], other.run(4, 6).result()["z"], strict=True):
            assert torch.equal(a, b), parallel


def a_large_number_is_no_fault(rank):
    """Its square overflows, which makes ranks look; there is nothing to see."""
    problem = Toy(4, 1, dtype=torch.float32)
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    opt = SOX(model.parameters(), problem, lr=0.0, alpha=1.0, beta=0.5)
    blocks = torch.tensor([2 * rank])
    problem.c = torch.full((4, 1), 1e22)
    opt.step(lambda: Probe(blocks, model(torch.ones(1, 3))))
    assert all(opt.state[p]["z"].isfinite().all() for p in model.parameters())


def a_fault_in_an_exact_pass_is_everyones(rank):
    run = Run("v3", "ddp")

    def poisoned():
        probe = run.inner(run.problem.everything(torch.arange(4) + 4 * rank))
        return Probe(probe.blocks, probe.values * (float("nan") if rank else 1.0), probe.samples)

    error = raised(lambda: run.opt.snapshot(poisoned))
    assert type(error) is (FloatingPointError if rank else RuntimeError), error
    error = raised(lambda: run.opt.snapshot([] if rank else [poisoned]))
    assert type(error) is (ValueError if rank else RuntimeError), error
    run.run(1, 3)


def a_state_of_one_process_is_cut(rank):
    for parallel in ("ddp", "fsdp"):
        alone = Run("v2 adam", "alone", ranks=Ranks.alone()).run(1, 5)
        state = copy.deepcopy(alone.opt.state_dict())
        weights = [p.detach().clone() for p in alone.module.parameters()]
        run = Run("v2 adam", parallel)
        run.opt.load_state_dict(state)
        with torch.no_grad():
            for p, whole in zip(run.module.parameters(), weights, strict=True):
                p.copy_(cut(whole, p))
        expected, found = alone.run(6, 8).result(), run.run(6, 8).result()
        for name in ("params", "z"):
            for a, b in zip(found[name], expected[name], strict=True):
                torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def nothing_that_averages_is_told(rank):
    problem, model = Toy(4, 1), make_model("linear", 1)
    opt = SOX(model.parameters(), problem, lr=0.1, alpha=0.5, beta=0.5)
    draw = problem.everything(torch.tensor([2 * rank]))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        opt.step(lambda: problem.inner(model, draw))
    assert "no module of DDP or FSDP2 was called" in str(said[0].message)


def an_ordinary_loss_of_an_uneven_cut_is_unbiased(rank):
    """The mean over seven blocks of w, as a loss of the one block that each of two ranks probes."""
    problem = Toy(7, 1)
    scale = torch.arange(1.0, 8.0, dtype=torch.float64)
    total = 0
    for pair in itertools.product((0, 1, 2, 3), (4, 5, 6)):
        model = DistributedDataParallel(make_model("linear", 1))
        opt = SOX(model.parameters(), problem, lr=0.1, alpha=1.0, beta=0.5, initial=0.0)

        def closure(model=model, block=pair[rank]):
            output = model(torch.ones(1, 3, dtype=torch.float64))
            return Probe(torch.tensor([block]), 0 * output, loss=scale[block] * output.sum())

        opt.step(closure)
        total = total + opt.state[model.module[0].bias]["z"]
    torch.testing.assert_close(total / 12, scale.mean()[None], rtol=1e-12, atol=1e-12)


def an_uneven_cut_is_unbiased(rank):
    problem = Toy(7, 2)
    table = torch.randn(7, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    mine = [(0, 1, 2, 3), (4, 5, 6)]
    mean, count = 0, 0
    for pair in itertools.product(*mine):
        model = DistributedDataParallel(make_model("network", 2))
        opt = SOX(model.parameters(), problem, lr=0.1, alpha=1.0, beta=0.5, initial=table)
        draw = problem.everything(torch.tensor([pair[rank]]))
        opt.step(lambda model=model, draw=draw: problem.inner(model, draw))
        z = torch.cat([opt.state[p]["z"].flatten() for p in model.parameters()])
        mean, count = mean + z, count + 1
    model = make_model("network", 2)
    alone = Ranks.alone()
    opt = SOX(model.parameters(), problem, lr=0.1, alpha=1.0, beta=0.5, initial=table, ranks=alone)
    opt.step(lambda: problem.inner(model, problem.everything()))
    z = torch.cat([opt.state[p]["z"].flatten() for p in model.parameters()])
    torch.testing.assert_close(mean / count, z, rtol=1e-12, atol=1e-12)


def exact_passes_may_be_split_in_any_way(rank):
    """By blocks, by samples, in several chunks, with an ordinary loss: H and g are the same."""
    problem = Toy(6, 2)

    def anchors(ranks, closures):
        model = make_model("network", 2)
        wrapped = model if ranks is not None else DistributedDataParallel(model)
        opt = MSVRM(
            wrapped.parameters(), problem, version=3, lr=0.1, alpha=0.5, beta=0.5, ranks=ranks
        )
        seen = []
        for _ in range(2):  # the second time the samples of every block are known
            opt.snapshot(closures(wrapped))
            seen += [opt.state[p]["anchor"].flatten().clone() for p in model.parameters()]
            seen.append(opt.ranks.whole(opt.table.anchor, 6).flatten())
        return torch.cat(seen)

    def chunk(model, blocks, samples, loss):
        values = problem.values(model, blocks, samples)
        extra = model(problem.x[blocks[:, None], samples].flatten(0, 1)).square().mean()
        return Probe(blocks, values, samples=samples.shape[1], loss=extra if loss else None)

    everything = torch.arange(6)
    for loss in (False, True):
        alone = anchors(
            Ranks.alone(),
            lambda model, loss=loss: (
                lambda: chunk(model, everything, torch.arange(5).expand(6, -1), loss)
            ),
        )
        mine = everything[rank::2].tensor_split([1 + rank])  # 1 + 2 blocks, and 2 + 1
        by_blocks = anchors(
            None,
            lambda model, loss=loss, mine=mine: [
                lambda b=b: chunk(model, b, torch.arange(5).expand(len(b), -1), loss) for b in mine
            ],
        )
        by_samples = anchors(
            None,
            lambda model, loss=loss: (
                lambda: chunk(model, everything, torch.arange(5)[rank::2].expand(6, -1), loss)
            ),
        )
        torch.testing.assert_close(by_samples, alone, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(by_blocks, alone, rtol=1e-12, atol=1e-12)


def whole_states_travel(rank):
    """A full state dict holds the rows of all ranks, and is cut anew when it is loaded."""
    for parallel in ("ddp", "fsdp"):
        run = Run("v2 adam", parallel).run(1, 5)
        expected = run.result()
        options = StateDictOptions(full_state_dict=True)
        full = get_optimizer_state_dict(run.model, run.opt, options=options)
        held = full["param_groups"][-1]["shared"]["table"]
        torch.testing.assert_close(held["rows"], expected["table"], rtol=0, atol=0)
        other = Run("v2 adam", parallel)
        set_optimizer_state_dict(other.model, other.opt, full, options=options)
        with torch.no_grad():
            for p, q in zip(other.module.parameters(), run.module.parameters(), strict=True):
                p.copy_(q)
        one, two = run.run(6, 8).result(), other.run(6, 8).result()
        for name in ("params", "z"):
            for a, b in zip(one[name], two[name], strict=True):
                assert torch.equal(a, b), (parallel, name)
        assert torch.equal(one["table"], two["table"])


def states_travel_whoever_is_frozen(rank, every):
    """However torch carries the state, and on every rank; of a frozen layer its own is dropped."""
    ways = [
        {},
        {"flatten_optimizer_state_dict": True},
        {"full_state_dict": True},
        {"full_state_dict": True, "broadcast_from_rank0": True},
    ]
    journeys = itertools.product(
        ("ddp", "fsdp"), ("v2 adam", "fresh pair v3"), ((0, 2), (2, 0), (2, 2)), ways
    )
    for parallel, case, (before, after), way in itertools.islice(journeys, 0, None, every):
        options = StateDictOptions(**way)
        run = Run(case, parallel, frozen=before).run(1, 5)
        try:
            state = get_optimizer_state_dict(run.model, run.opt, options=options)
        except NotImplementedError:  # older releases flatten tensors and numbers only, and say so
            assert torch.__version__ < (2, 13)
            assert "flatten_optimizer_state_dict" in way
            continue
        if rank and "broadcast_from_rank0" in way:
            state = {}
        other = Run(case, parallel, frozen=after)
        set_optimizer_state_dict(other.model, other.opt, state, options=options)
        with torch.no_grad():
            for p, q in zip(other.module.parameters(), run.module.parameters(), strict=True):
                p.copy_(q)
        assert_same(other.opt._progress, run.opt._progress)
        if run.opt.table is not None:
            ours, theirs = (dict(o.table.named_buffers()) for o in (other.opt, run.opt))
            assert_same(ours, theirs)
        late = list(other.module.parameters())[2:]
        for p, q in zip(late, list(run.module.parameters())[2:], strict=True):
            assert_same(other.opt.state[p], run.opt.state[q])
        other.run(6, 8)
        if before == after:
            run.run(6, 8)
            for p, q in zip(other.module.parameters(), run.module.parameters(), strict=True):
                assert_same(p.detach(), q.detach())


def an_unused_parameter_is_named_before_anything_is_committed(rank):
    """DDP waits for its gradient, and averages nothing of its bucket until then."""
    problem, module = Toy(4, 1), make_model("network", 1)
    module.register_parameter("idle", torch.nn.Parameter(torch.ones(2, dtype=torch.float64)))
    draw = problem.everything(torch.tensor([2 * rank]))
    model = DistributedDataParallel(module)
    opt = SOX(model.parameters(), problem, lr=0.1, alpha=0.5, beta=0.5)
    before = capture(module, opt)
    error = raised(lambda: opt.step(lambda: problem.inner(model, draw)))
    assert isinstance(error, ValueError), error
    assert "['idle'] took no part" in str(error), error
    assert_unchanged(before, module, opt)
    model = DistributedDataParallel(module, find_unused_parameters=True)
    for p in module.parameters():
        dist.broadcast(p.detach(), 0)
    opt.step(lambda: problem.inner(model, draw))
    for p in module.parameters():
        ours, theirs = p.detach().clone(), p.detach().clone()
        dist.broadcast(theirs, 0)
        assert torch.equal(ours, theirs)


def norms_add_up_what_is_divided_and_nothing_else(rank):
    mesh, whole = init_device_mesh("cpu", (2,)), torch.arange(6.0)
    for placement in (Replicate(), Shard(0)):
        norm = global_norm([distribute_tensor(whole, mesh, [placement])])
        torch.testing.assert_close(norm, whole.double().norm())


def main(directory, every):
    rank, _ = join(directory)
    for check in (
        one_reduction_a_step,
        a_fault_on_one_rank_is_everyones,
        blocks_of_another_rank_are_refused,
        unequal_counts_are_refused,
        ranks_may_have_unequal_numbers_of_micro_batches,
        unequal_numbers_are_refused_where_each_closure_is_collective,
        an_error_leaves_no_gradient_behind,
        an_unused_parameter_is_named_before_anything_is_committed,
        a_large_number_is_no_fault,
        a_fault_in_an_exact_pass_is_everyones,
        a_state_of_one_process_is_cut,
        nothing_that_averages_is_told,
        an_ordinary_loss_of_an_uneven_cut_is_unbiased,
        an_uneven_cut_is_unbiased,
        exact_passes_may_be_split_in_any_way,
        whole_states_travel,
        partial(states_travel_whoever_is_frozen, every=int(every)),
        norms_add_up_what_is_divided_and_nothing_else,
    ):
        check(rank)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
