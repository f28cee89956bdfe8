"""What a contrastive loss with a table costs beside those of other libraries, in one run.

    python benchmarks/row_loss_cost.py --output docs/results/losses/row_cost.jsonl

Forward and backward of the loss alone, embeddings of 128 numbers; N training samples. Losses run
in turn, and every time is divided by that of in-batch InfoNCE in the same round. LibAUC and
pytorch-metric-learning are timed where they are installed
(``pip install --no-deps --target DIR libauc pytorch-metric-learning``, and DIR in PYTHONPATH).
"""

import argparse
import json
import warnings
from importlib.util import find_spec
from pathlib import Path

import torch
from timing import CLOCKS, interleave, milliseconds, ratio
from torch.nn.functional import cross_entropy, normalize

from fcco import losses

DIM, TEMPERATURE = 128, 0.1


def info_nce(first, second):
    logits = normalize(first, dim=1) @ normalize(second, dim=1).T / TEMPERATURE
    own = torch.arange(len(first))
    return (cross_entropy(logits, own) + cross_entropy(logits.T, own)) / 2


def candidates(size, batch):
    """{name: (loss of two views, the criterion or None)}."""
    index = torch.arange(batch)
    classes = torch.arange(size) % 10
    table = losses.ContrastiveLoss(size, temperature=TEMPERATURE)
    nca = losses.NCALoss(classes)
    found = {
        "in-batch InfoNCE": (info_nce, None),
        "ContrastiveLoss": (lambda a, b: table(a, b, index), table),
        "NCALoss": (lambda a, b: nca(normalize(a, dim=1), index), nca),
    }
    if find_spec("libauc"):
        from libauc.losses.contrastive import GCLoss

        gcl = GCLoss("bimodal", N=size, tau=TEMPERATURE)
        found["LibAUC GCLoss"] = (lambda a, b: gcl(a, b, index), None)
    if find_spec("pytorch_metric_learning"):
        from pytorch_metric_learning.losses import NCALoss, NTXentLoss

        nt_xent, their_nca = NTXentLoss(TEMPERATURE), NCALoss()
        labels = index.repeat(2)
        found["pml NTXentLoss"] = (lambda a, b: nt_xent(torch.cat([a, b]), labels), None)
        found["pml NCALoss"] = (lambda a, b: their_nca(a, classes[:batch]), None)
    return found


def runs_of(loss, batch, calls):
    def run():
        for _ in range(calls):
            first, second = (torch.randn(batch, DIM, requires_grad=True) for _ in range(2))
            value = loss(first, second)
            value = value[0] if isinstance(value, tuple) else value
            value.backward()

    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 32, 64, 256])
    parser.add_argument("--seconds", type=float, default=10, help="for each batch size")
    parser.add_argument("--calls", type=int, default=3, help="losses in one timed run")
    parser.add_argument("--clock", choices=CLOCKS, default="cpu", help="cpu: the machine is in use")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    for batch in options.batches:
        found = candidates(options.size, batch)
        group = {name: runs_of(loss, batch, options.calls) for name, (loss, _) in found.items()}
        times = interleave({"": group}, options.seconds, clock=CLOCKS[options.clock])[""]
        for name, (_, criterion) in found.items():
            record = {"loss": name, "N": options.size, "batch": batch}
            record["ms"] = round(milliseconds(times, name) / options.calls, 4)
            record["ratio"] = ratio(times, name, "in-batch InfoNCE").json()
            if criterion is not None:
                tensors = criterion.state_dict().values()
                total = sum(t.numel() * t.element_size() for t in tensors)
                record["bytes"] = round(total / options.size, 2)
            line = json.dumps(record)
            print(line, flush=True)
            if options.output is not None:
                with options.output.open("a") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
