"""Local parts and global norms, with plain tensors and with those of a group of one rank."""

import math

import pytest
import torch
import torch.distributed as dist
from support import Toy, make_model
from torch import nn

import fcco
from fcco.distributed import Ranks
from fcco.distributed.sharded import global_norm, is_sharded, like, local, written
from fcco.distributed.share import Share
from fcco.problem.probe import Probe


@pytest.fixture
def mesh():
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def distribute(tensor, mesh, *placements):
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, mesh, placements)


def test_plain_tensors_are_their_own_parts():
    z = torch.ones(3)
    assert local(z) is z
    assert like(z, torch.zeros(3)) is z
    assert not is_sharded(z)
    assert global_norm([z, torch.zeros(0)]).item() == math.sqrt(3.0)


def test_norms_of_mixed_layouts(mesh):
    from torch.distributed.tensor import Replicate, Shard

    parts = [torch.randn(4, 3, dtype=torch.float64) for _ in range(4)] + [
        torch.zeros(0, 3).double()
    ]
    whole = [
        parts[0],
        distribute(parts[1], mesh, Shard(0)),
        distribute(parts[2], mesh, Shard(1)),
        distribute(parts[3], mesh, Replicate()),
        distribute(parts[4], mesh, Shard(0)),
    ]
    norm = global_norm(whole)
    assert type(norm) is torch.Tensor
    torch.testing.assert_close(norm, torch.cat([p.flatten() for p in parts]).norm())


@pytest.mark.parametrize(("total", "size"), [(7, 3), (10, 4), (6, 3), (2, 3)])
def test_the_weights_of_shares_make_the_mean_over_ranks_the_mean_over_all(total, size):
    x = torch.rand(total, dtype=torch.float64)
    shares = [Share(total, rank, size) for rank in range(size)]
    means = [s.weight * x[s.start : s.stop].mean() for s in shares if s.count]
    torch.testing.assert_close(sum(means) / size, x.mean())


def test_a_part_shares_memory_and_finds_back(mesh):
    from torch.distributed.tensor import Shard

    whole = distribute(torch.zeros(4, 2), mesh, Shard(0)).requires_grad_()
    part = local(whole)
    assert not part.requires_grad
    with torch.no_grad():
        part.fill_(2.0)
    assert torch.equal(whole.detach().full_tensor(), torch.full((4, 2), 2.0))
    back = like(part, whole)
    assert is_sharded(back)
    assert (back.shape, back.placements) == (whole.shape, whole.placements)
    assert local(back).data_ptr() == part.data_ptr()


def test_a_graph_across_a_write_raises(mesh):
    from torch.distributed.tensor import Shard

    whole = distribute(torch.ones(2), mesh, Shard(0)).requires_grad_()
    loss = whole.square().sum()
    with torch.no_grad():
        local(whole).zero_()
    written([whole])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_fsdp_computes_where_the_parameters_stand(mesh):
    """The root keeps gathered parameters after a forward pass without a graph."""
    from torch.distributed.fsdp import fully_shard

    model = nn.Linear(2, 1, bias=False)
    fully_shard(model)
    params, x = list(model.parameters()), torch.ones(1, 2)
    with torch.no_grad():
        model(x)
        local(params[0]).fill_(3.0)
        with Ranks().reduction.around(last=True):
            assert model(x).item() == 6.0
        local(params[0]).fill_(4.0)
        assert model(x).item() == 8.0


def test_single_point_with_sharded_parameters_is_refused(mesh):
    from torch.distributed.fsdp import fully_shard

    model = nn.Linear(2, 1)
    fully_shard(model)
    problem = Toy(4, 1)
    opt = fcco.MSVRM(
        model.parameters(), problem, version=1, single_point=True, lr=0.1, alpha=0.5, beta=0.5
    )
    blocks = torch.tensor([0])
    with pytest.raises(ValueError, match="single_point=True is not supported with sharded"):
        opt.step(lambda: Probe(blocks, model(torch.ones(1, 2))))
    assert opt.queries.values == 0


def test_a_second_sweep_finds_no_gradient_of_the_first(mesh):
    """Blocks in two chunks: the first sweep is given up after gradients were held back."""
    from torch.distributed.fsdp import fully_shard

    def anchor(shard):
        model, problem = make_model("network", 1), Toy(4, 1)
        if shard:
            fully_shard(model)
        opt = fcco.MSVRM(model.parameters(), problem, version=3, lr=0.1, alpha=0.5, beta=0.5)
        blocks = torch.arange(4)

        def chunk(samples):
            rows = torch.tensor(samples).expand(4, -1)
            return Probe(blocks, problem.values(model, blocks, rows), samples=len(samples))

        opt.snapshot([lambda: chunk([0, 1]), lambda: chunk([2, 3, 4])])
        return [local(opt.state[p]["anchor"]) for p in model.parameters()]

    for found, expected in zip(anchor(True), anchor(False), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
