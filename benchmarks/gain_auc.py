"""beta = "auto" against tuned beta for AUC of many tasks: exact objective and test AUC.

    python -m benchmarks.gain_auc --data-dir DIR --output docs/results/gain/auc.json

SOX with Adam's rule and slopes at u_t, a network with one hidden layer of 64, a fifth of the tasks
per step, 16 samples of each, step sizes that decay to zero. For every gain the step size, and among
the fixed gains beta, is chosen on a seed of its own. A result is written as soon as it is known.
"""

from functools import partial
from statistics import fmean, stdev

import torch
from benchmarks.known import arguments
from torch.nn.functional import one_hot

import fcco
from fcco.data import TaskData, exact_value
from fcco.metrics import macro_auroc
from fcco.objectives import MultiTaskAUC
from fcco_lab.datasets import load_classes
from fcco_lab.studies.fitting import compositional, fit
from fcco_lab.studies.workloads import make_mlp

SETS, STEPS = ("digits", "usps", "tinyimagenet100"), 400
BETAS = (0.1, 0.2, 0.5, 0.9, 1.0, "auto")
LRS = (0.003, 0.01)
TUNING, SEEDS = 100, range(5)


def run(data, beta, lr, seed):
    """The exact objective and the test AUC after training."""
    (inputs, classes), (test_inputs, test_classes) = data
    tasks = int(classes.max()) + 1
    model = make_mlp(inputs.shape[1], 64, tasks)(seed)
    objective, blocks = MultiTaskAUC(tasks), TaskData.from_classes(inputs, classes)
    opt = fcco.SOX(
        model, objective, lr=lr, beta=beta, updated_slopes=True, update=fcco.updates.Adam()
    )
    sizes = {"steps": STEPS, "blocks": tasks // 5, "samples": 16}
    made = compositional(model, objective, blocks, **sizes, seed=seed, opt=opt)
    fit(model, *made, STEPS, None)
    with torch.no_grad():
        value = exact_value(model, blocks, objective)
        labels = one_hot(test_classes, tasks).bool()
        return value, macro_auroc(model(test_inputs), labels)


def main() -> None:
    """Run what is not known yet, then print a table."""
    args = arguments(__doc__)
    print("| data | gain | lr | objective | test AUC |\n|---|---|---|---|---|")
    for name in SETS:
        pair = load_classes(name, args.data_dir)
        data = [(part.inputs.flatten(1).float(), part.classes) for part in pair]

        def result(*setting):
            key = " ".join(map(str, (name, *setting)))  # noqa: B023
            return args.known.of(key, partial(run, data, *setting))  # noqa: B023

        for beta in BETAS:
            best = min(LRS, key=lambda lr: result(beta, lr, TUNING)[0])
            found = [result(beta, best, seed) for seed in SEEDS]
            cells = [f"{fmean(x):.4f} ± {stdev(x):.4f}" for x in zip(*found, strict=True)]
            print(f"| {name} | {beta} | {best} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
