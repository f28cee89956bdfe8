"""What a loss with a table costs: forward, loss and backward of a small MLP, beside BCE's.

    python benchmarks/loss_cost.py --output docs/results/losses/cost.jsonl

The MLP is 784-256-256-1. For each number N of training samples and each batch size all losses run
in turn, and every time is divided by that of binary cross-entropy in the same round. The table is
full before the clock starts. Half of the samples have events (Cox); N/100 of them, at most 1000,
are positive (AP, partial AUC, push); lists have 20 items, 5 of them relevant (NDCG, ListNet).
LibAUC and torchsurv are timed where they are installed; they compare the batch with itself alone.
"""

import argparse
import json
import warnings
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
from networks import MLP
from timing import CLOCKS, interleave, milliseconds, ratio
from torch.nn.functional import binary_cross_entropy_with_logits

from fcco import losses

LENGTH = 20


def criteria(size):
    """Our losses of N samples, built one at a time: {name: build}."""
    times, events = torch.rand(size), torch.rand(size) < 0.5
    labels = torch.zeros(size, dtype=torch.int64)
    labels[torch.randperm(size)[: min(size // 100, 1000)]] = 1
    grades = torch.zeros(size // LENGTH, LENGTH, dtype=torch.int64)
    grades[:, :5] = torch.randint(1, 5, (size // LENGTH, 5))
    lists = grades.flatten(), torch.full((size // LENGTH,), LENGTH)
    return {
        "Cox": lambda: losses.CoxLoss(times, events),
        "AUC": lambda: losses.AUCLoss(labels),
        "AP": lambda: losses.APLoss(labels),
        "partial AUC": lambda: losses.PartialAUCLoss(labels, temperature=1.0),
        "push": lambda: losses.PushLoss(labels),
        "NDCG": lambda: losses.NDCGLoss(*lists),
        "ListNet": lambda: losses.ListNetLoss(*lists),
        "DRO": lambda: losses.DROLoss(size, temperature=1.0),
        "CVaR": lambda: losses.CVaRLoss(size, fraction=0.1),
    }


def peers(size, batch):
    """Losses of other libraries: {name: loss(scores)}. A batch has what they need: both classes."""
    found, index = {}, torch.arange(batch)
    labels = (index % 2).long()
    if find_spec("torchsurv") and batch > 1:
        from torchsurv.loss.cox import neg_partial_log_likelihood

        times, events = torch.rand(batch), index % 2 == 0
        found["torchsurv Cox"] = lambda h: neg_partial_log_likelihood(h[:, 0], events, times)
    if find_spec("libauc") and batch > 1:
        from libauc.losses import APLoss, AUCMLoss

        ap, auc = APLoss(size), AUCMLoss(version="v2")
        found["LibAUC AP"] = lambda h: ap(torch.sigmoid(h), labels, index)
        found["LibAUC AUCM"] = lambda h: auc(torch.sigmoid(h), labels)
    return found


def runs_of(criterion, own, batch, calls):
    """One run of a loss: ``calls`` training steps without an optimizer."""
    network, inputs = MLP.build(1), torch.randn(batch, *MLP.shape)
    if own:
        start, apart = criterion.scores.clone(), len(criterion.scores) // batch

    def run():
        for _ in range(calls):
            scores = network(inputs)
            if own:
                # Other samples in each step, whose scores have moved a little since the last time.
                index = torch.randint(apart, (batch,)) + torch.arange(batch) * apart
                loss = criterion(scores + start[index], index)
            else:
                loss = criterion(scores)
            loss.backward()
            network.zero_grad()

    return run


def bytes_of(criterion):
    """Bytes per sample of all buffers and running sums, and of those that are saved."""
    size, saved = len(criterion.scores), criterion.state_dict()
    parts = {name: buffer.nbytes for name, buffer in criterion.named_buffers()}
    kept = sum(parts[name] for name in parts if name in saved)
    cache = {} if criterion.sums is None else criterion.sums.cache
    total = sum(parts.values()) + sum(tensor.nbytes for tensor in cache.values())
    return {"bytes": round(total / size, 2), "saved": round(kept / size, 2)}


def fill(criterion, size):
    criterion(torch.randn(size), torch.arange(size))
    return criterion


def measure(size, batches, names, seconds, calls, clock):
    """Records of one N; all batch sizes share the tables."""
    torch.manual_seed(0)
    tables = {name: fill(make(), size) for name, make in criteria(size).items() if name in names}
    memory = {name: bytes_of(criterion) for name, criterion in tables.items()}
    for batch in batches:
        targets = (torch.arange(batch) % 2).float().unsqueeze(1)
        bce = partial(binary_cross_entropy_with_logits, target=targets)
        group = {
            name: runs_of(loss, False, batch, calls)
            for name, loss in ({"BCE": bce} | peers(size, batch)).items()
        } | {name: runs_of(loss, True, batch, calls) for name, loss in tables.items()}
        times = interleave({"": group}, seconds, clock=clock)[""]
        for name in group:
            best = {
                "ms": milliseconds(times, name) / calls,
                "least": min(times[name]) / calls * 1e3,
            }
            record = {"loss": name, "N": size, "batch": batch}
            record |= {key: round(value, 4) for key, value in best.items()}
            yield record | {"ratio": ratio(times, name, "BCE").json()} | memory.get(name, {})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32, 256])
    parser.add_argument("--losses", nargs="+", default=list(criteria(100)))
    parser.add_argument("--seconds", type=float, default=15, help="for each N and B")
    parser.add_argument("--calls", type=int, default=5, help="steps in one timed run")
    parser.add_argument("--clock", choices=CLOCKS, default="cpu", help="cpu: the machine is in use")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for size in options.sizes:
        rounds = options.seconds, options.calls, CLOCKS[options.clock]
        for record in measure(size, options.batches, options.losses, *rounds):
            line = json.dumps(record)
            print(line, flush=True)
            if options.output is not None:
                with options.output.open("a") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
