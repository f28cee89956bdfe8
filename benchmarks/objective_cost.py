"""What an objective costs beside the network: everything but its forward and backward pass.

    make bench

Two costs are timed in turn with the bare forward and backward pass of a small MLP
(784-256-256-outputs, 640 samples). *Objective*: scores, means or pairs, slopes, and the gradient
back to the network's outputs. *Step*: all that and the optimizer, with given outputs plus a number
in the place of the network.

A second table has the time of an evaluation: ``exact_value`` on 10 000 samples whose scores are
given, and beside it the same value from the chunks of an exact pass, that is, from all pairs.
"""

from functools import partial

import cases
import torch
from networks import MLP, bare
from tables import arguments, markdown, save
from timing import Spread, interleave, milliseconds, ratio
from torch import nn

import fcco
from fcco import objectives as O
from fcco.data import exact_pass, exact_value
from fcco.kernel.rows import Rows

# The inputs stand for outputs, so their shape is (outputs,).
CASES = {
    "AUC, 10 tasks, shared batch": partial(cases.shared_batch, (10,), 10),
    "AUC, 100 tasks, shared batch": partial(cases.shared_batch, (100,), 100),
    "AUC, 50 of 100 tasks, shared batch": partial(cases.shared_batch, (100,), 100, 50),
    "AUC, 5 of 100 tasks, own samples": partial(cases.own_samples, (100,), 100),
    "AP, 64 positives": partial(cases.average_precision, (1,), 1, 64),
    "AP, 320 positives": partial(cases.average_precision, (1,), 1, 320),
    "mAP, 100 labels, 64 positives": partial(cases.average_precision, (100,), 100, 64),
    "partial AUC, 64 positives": partial(cases.partial_auc, (1,), 64),
    "NDCG, 32 x 20": partial(cases.ndcg, (1,), 32, 20),
}
EVALUATED = 10_000
EVALUATIONS = {
    "AP, squared hinge": partial(O.AveragePrecision, surrogate=O.SquaredHinge()),
    "AP, sigmoid": O.AveragePrecision,
    "partial AUC, squared hinge": partial(O.PartialAUC, temperature=1.0),
    "push, logistic": O.PNormPush,
}
COLUMNS = ("", "network ms", "objective / network", "step / network")


def whole_step(case):
    """A step of SOX; a number added to given outputs stands for the network."""
    shift = nn.Parameter(torch.zeros(()))
    opt = fcco.SOX([shift], case.objective, lr=0.0, alpha=0.5, beta=0.5)
    return lambda: opt.step(lambda: case.objective.inner(lambda inputs: inputs + shift, case.batch))


def objective_alone(case):
    outputs = case.batch.inputs.clone().requires_grad_()
    form = Rows(case.objective)

    def run():
        probe = case.objective.inner(lambda inputs: outputs, case.batch)
        rows = form.read(probe, probe.values.dtype)
        slopes = form.slopes(form.project(rows, probe.blocks), rows, probe.blocks, supported=True)
        probe.values.backward(slopes)
        outputs.grad = None

    return run


def runs_of(build):
    torch.manual_seed(0)
    case = build()
    inputs = torch.randn(cases.SAMPLES, *MLP.shape)
    targets = torch.rand(cases.SAMPLES, case.outputs).round()
    return {
        "objective": objective_alone(case),
        "step": whole_step(case),
        "network": bare(MLP.build(case.outputs), inputs, targets),
    }


def evaluations_of(build):
    """One in ten is a positive."""
    torch.manual_seed(0)
    labels = torch.rand(EVALUATED) < 0.1
    scores, objective = torch.randn(EVALUATED) + labels, build(labels)

    @torch.no_grad()
    def pairs():
        for closure in exact_pass(nn.Identity(), scores, objective):
            closure()

    return {"exact": lambda: exact_value(nn.Identity(), scores, objective), "pairs": pairs}


def evaluate(args):
    groups = {name: evaluations_of(build) for name, build in EVALUATIONS.items()}
    rows = [
        {"case": name} | {what: milliseconds(times, what) for what in ("exact", "pairs")}
        for name, times in interleave(groups, 3, warmup=1, clock=args.timer).items()
    ]
    cells = [(row["case"], f"{row['exact']:.1f}", f"{row['pairs']:.0f}") for row in rows]
    print(f"\n{markdown(('', 'exact value ms', 'all pairs ms'), cells)}", flush=True)
    return rows


def main():
    args = arguments(__doc__)
    groups = {name: runs_of(build) for name, build in CASES.items()}
    rows = []
    for name, times in interleave(groups, 8 if args.quick else 30, clock=args.timer).items():
        costs = {what: ratio(times, what, "network").json() for what in ("objective", "step")}
        rows.append({"case": name, "network_ms": milliseconds(times, "network")} | costs)
    cells = [
        (
            row["case"],
            f"{row['network_ms']:.2f}",
            Spread(**row["objective"]),
            Spread(**row["step"]),
        )
        for row in rows
    ]
    print(f"\n{markdown(COLUMNS, cells)}", flush=True)
    save(args, {"objective_cost": rows, "evaluations": evaluate(args)})


if __name__ == "__main__":
    main()
