"""Starting the ranks of a test, and the job they run: the toy problem, blocks spread over ranks."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from support import CATALOGUE, RULES, Toy, make_model, make_update
from support.toy import Draw
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from fcco.kernel.safeguard import ChangeBound

BLOCKS, SHARES, SAMPLES = 8, 4, 2

RECOVERING = ("ddp", "fsdp") if hasattr(FSDPModule, "reset_iter_state") else ("ddp",)
"""What goes on after an error within a pass: FSDP2 only since torch 2.13."""

TORCHS_OWN = ("-W", "ignore:TypedStorage is deprecated")
"""torch's own distributed checkpoints use what torch 2.8 deprecates."""

CASES = {
    "sox": ("sox", "plain", {}),
    "v1": ("msvrm-v1-age", "plain", {}),
    "v1 theory": ("msvrm-v1-theory", "plain", {}),
    "v2": ("msvrm-v2-age", "plain", {}),
    "v2 theory": ("msvrm-v2-theory", "plain", {}),
    "v3": ("msvrm-v3-age", "plain", {}),
    "v3 theory": ("msvrm-v3-theory", "plain", {}),
    "sox normalized": ("sox", "normalized", {}),
    "v1 normalized": ("msvrm-v1-age", "normalized", {}),
    "v2 normalized": ("msvrm-v2-age", "normalized", {}),
    "v3 normalized": ("msvrm-v3-age", "normalized", {}),
    "v2 projected": ("msvrm-v2-age", "projected", {}),
    "sox adam": ("sox", "adam", {}),
    "v1 adam": ("msvrm-v1-age", "adam", {}),
    "v2 adam": ("msvrm-v2-age", "adam", {}),
    "v3 adam": ("msvrm-v3-age", "adam", {}),
    "v2 amsgrad": ("msvrm-v2-age", "amsgrad", {}),
    "v2 updated": ("msvrm-v2-updated", "plain", {}),
    "v2 safeguard": ("msvrm-v2-age", "plain", {"safeguard": ChangeBound()}),
    "bsgd": ("bsgd", "plain", {}),
    "fresh pair v2": ("fresh-pair-v2", "plain", {}),
    "fresh pair v3": ("fresh-pair-v3", "plain", {}),
    "variant v2": ("variant-v2", "plain", {}),
    "variant v3": ("variant-v3", "plain", {}),
    "sox loose": ("sox", "plain", {"loose": 1}),
    "v2 adam loose": ("msvrm-v2-age", "adam", {"loose": 2}),
    "v3 loose": ("msvrm-v3-age", "plain", {"loose": 1}),
    "v2 safeguard loose": ("msvrm-v2-age", "plain", {"loose": 2, "safeguard": ChangeBound()}),
}
"""name: (entry of the catalogue, step rule, further options).

``loose`` is the number of parameters outside the distributed module, as in an objective that learns
a temperature. The second one takes part on one rank only.
"""

ALIGNED = [case for case, (_, _, options) in CASES.items() if options.get("loose", 0) < 2]
"""Cases in which all ranks carry out the same operations."""


class Run:
    """One case on this rank, or on a single process that sees all blocks.

    Args:
        case: of ``CASES``.
        parallel: "ddp", "fsdp" or "alone".
        num_blocks: m; a multiple of the shares.
        frozen: how many parameters are, the first ones.
        dtype: of data and parameters.
    """

    def __init__(
        self,
        case,
        parallel,
        *,
        num_blocks=BLOCKS,
        chunks=1,
        loss=False,
        ranks=None,
        frozen=0,
        dtype=torch.float64,
    ):
        name, rule, options = CASES[case]
        options = dict(options)
        entry = CATALOGUE[name]
        torch.manual_seed(0)
        self.problem = Toy(num_blocks, 2, affine=entry.affine, dtype=dtype)
        self.chunks, self.loss = chunks, loss
        self.rank, self.size = (0, 1)
        if parallel != "alone":
            self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.model = self.module = make_model("network", 2).to(dtype)
        for p in list(self.module.parameters())[:frozen]:
            p.requires_grad_(False)
        if parallel == "ddp":
            self.model = DistributedDataParallel(self.module)
        elif parallel == "fsdp":
            fully_shard(self.module[0])
            fully_shard(self.module)
        self.loose = [
            torch.nn.Parameter(torch.ones(2, dtype=dtype)) for _ in range(options.pop("loose", 0))
        ]
        self.opt = entry.build(
            [*self.model.parameters(), *self.loose],
            self.problem,
            lr=0.05,
            alpha=0.4,
            beta=0.3,
            snapshot_every=4 if entry.anchored else None,
            update=make_update(RULES[rule]),
            weight_decay=0.1,
            ranks=ranks,
            **options,
        )
        self.objectives = []

    def draw(self, t):
        """A block of each share, and samples for it; this rank's part."""
        generator = torch.Generator().manual_seed(1000 + t)
        each = self.problem.num_blocks // SHARES
        blocks = torch.arange(SHARES) * each + torch.randint(each, (SHARES,), generator=generator)
        size = (2, SHARES, SAMPLES)
        first, second = torch.randint(self.problem.inner_size, size, generator=generator)
        mine = torch.arange(SHARES).chunk(self.size)[self.rank]
        return Draw(blocks[mine], first[mine], second[mine])

    def inner(self, draw):
        probe = self.problem.inner(self.model, draw)
        values = probe.values
        for k, factor in enumerate(self.loose):
            if k == 0:
                values = values * factor
            elif (probe.blocks == 1).any():
                values = torch.where((probe.blocks == 1)[:, None], values * factor, values)
        probe = replace(probe, values=values)
        if not self.loss:
            return probe
        # Of the blocks probed, so that it is another number on every rank.
        return replace(probe, loss=probe.values.square().mean() / 3)

    def snapshot(self):
        ids = torch.arange(self.problem.num_blocks).chunk(self.size)[self.rank].chunk(self.chunks)
        self.opt.snapshot([lambda b=b: self.inner(self.problem.everything(b)) for b in ids])

    def run(self, first, last):
        for t in range(first, last + 1):
            if self.opt.snapshot_due:
                self.snapshot()
            draw = self.draw(t)
            self.objectives.append(float(self.opt.step(lambda draw=draw: self.inner(draw))))
        return self

    def result(self):
        """Everything there is to compare, of all ranks."""

        def whole(tensor):
            return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach()

        params = [*self.module.parameters(), *self.loose]
        table = None
        if self.opt.table is not None:
            share = self.opt.table.share
            rows = self.opt.table.read(torch.arange(share.start, share.stop))
            table = self.opt.ranks.whole(rows, share.total).clone()
        return {
            "params": [whole(p).clone() for p in params],
            "z": [whole(self.opt.state[p]["z"]).clone() for p in params],
            "table": table,
            "objectives": list(self.objectives),
            "queries": (self.opt.queries.values, self.opt.queries.gradients),
        }


def start(script, world, directory, *arguments):
    """The processes of a job, each with its rank; they meet through a file."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
    common = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path, "WORLD_SIZE": str(world)}
    python = [sys.executable, "-W", "error", *TORCHS_OWN]
    return [
        subprocess.Popen(
            [*python, str(script), str(directory), *map(str, arguments)],
            env=common | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world)
    ]


def finish(processes, timeout=300):
    """Wait for them; a failure shows what every rank said."""
    try:
        said = [process.communicate(timeout=timeout)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    codes = [process.returncode for process in processes]
    assert codes == [0] * len(codes), "\n".join(f"rank {r}:\n{s}" for r, s in enumerate(said))
    return said


def join(directory):
    """Set up the process group from within a rank."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{directory}/meeting", rank=rank, world_size=world
    )
    return rank, world
