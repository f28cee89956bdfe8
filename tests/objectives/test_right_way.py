"""One step from a random start moves the metric people look at the right way."""

import pytest
import torch
from torch import nn

import fcco
from fcco import data as D
from fcco import metrics as M
from fcco import objectives as O
from fcco.updates import Normalized

N = 240
GENERATOR = torch.Generator().manual_seed(1)
SIGNAL = torch.randn(N, generator=GENERATOR)
X = torch.randn((N, 6), generator=GENERATOR)
X[:, 0] += 1.5 * SIGNAL
Y = SIGNAL > 0.5
CLASSES = torch.bucketize(SIGNAL, torch.tensor([-0.5, 0.5]))
TIMES = torch.exp(-SIGNAL)
EVENTS = torch.rand(N, generator=GENERATOR) < 0.7
GRADES = CLASSES.clone()
LENGTHS = torch.full((12,), 20)
GROUPS = torch.arange(N) % 4
BAG_LABELS = Y.view(24, 10).sum(1) > 3
BAGS = torch.arange(N) // 10
NOISY = X + 0.3 * torch.randn(X.shape, generator=GENERATOR)
POSITIVES, NEGATIVES = int(Y.sum()), int((~Y).sum())


def score(model):
    return model(X)[:, 0]


def worst_loss(model):
    losses = nn.functional.cross_entropy(model(X), Y.long(), reduction="none")
    return -max(losses[g == GROUPS].mean().item() for g in range(4))


def bag_auc(pool):
    return lambda model: M.macro_auroc(pool(model(X).view(24, 10, -1)), BAG_LABELS)


CASES = {
    "auc": (O.MultiTaskAUC(3), D.TaskData.from_classes(X, CLASSES), 3,
            lambda model: M.macro_auroc(model(X), nn.functional.one_hot(CLASSES).bool())),
    "exponential auc": (O.ExponentialAUC(3, N), D.TaskData.from_classes(X, CLASSES), 3,
            lambda model: M.macro_auroc(model(X), nn.functional.one_hot(CLASSES).bool())),
    "gap": (O.MultiTaskGap(1), D.TaskData.binary(X, Y), 1,
            lambda model: M.macro_auroc(score(model), Y)),
    "ap": (O.AveragePrecision(POSITIVES, N), D.AnchorData.average_precision(X, Y), 1,
           lambda model: M.macro_average_precision(score(model), Y)),
    "one-way": (O.OneWayPartialAUC(POSITIVES, NEGATIVES), D.AnchorData.positives(X, Y), 1,
                lambda model: M.partial_auroc(score(model), Y, max_fpr=0.3)),
    "two-way": (O.TwoWayPartialAUC(POSITIVES, NEGATIVES), D.AnchorData.positives(X, Y), 1,
                lambda model: M.partial_auroc(score(model), Y, max_fpr=0.7, min_tpr=0.3)),
    "push": (O.PNormPush(NEGATIVES), D.AnchorData.negatives(X, Y), 1,
             lambda model: M.macro_auroc(score(model), Y)),
    "cox": (O.Cox(int(EVENTS.sum()), N), D.AnchorData.survival(X, TIMES, EVENTS), 1,
            lambda model: M.concordance_index(score(model), TIMES, EVENTS)),
    "ndcg": (O.NDCG(GRADES, LENGTHS), D.ListData(X, GRADES, LENGTHS), 1,
             lambda model: M.ndcg(score(model), GRADES, LENGTHS)),
    "list-net": (O.ListNet(GRADES, LENGTHS), D.ListData(X, GRADES, LENGTHS, relevant=False), 1,
                 lambda model: M.ndcg(score(model), GRADES, LENGTHS)),
    "nca": (O.NCA(N), D.AnchorData.neighbours(X, CLASSES), 2,
            lambda model: M.recall_at_k(model(X), CLASSES, 5, metric="euclidean")),
    "contrastive": (O.GlobalContrastive(N, two_way=True), D.ViewData(X, NOISY, two_way=True), 4,
                    lambda model: M.retrieval_recall(model(X), model(NOISY), 3)),
    "dro": (O.GroupDRO(4), D.GroupData(X, GROUPS, Y.long()), 2, worst_loss),
    "cvar": (O.GroupCVaR(4), D.GroupData(X, GROUPS, Y.long()), 2, worst_loss),
    "soft maximum": (O.SoftmaxPooling(BAG_LABELS, 10), D.GroupData(X, BAGS), 1,
                     bag_auc(lambda h: h[:, :, 0].logsumexp(1))),
    "attention": (O.AttentionPooling(BAG_LABELS, 10), D.GroupData(X, BAGS), 2,
                  bag_auc(lambda h: (h[:, :, 1].softmax(1) * h[:, :, 0]).sum(1))),
    "penalty": (O.ConstraintPenalty(4, lambda h, y, block: (h[:, 0] + 0.5).relu()),
                D.GroupData(X, GROUPS), 1,
                lambda model: -(score(model) + 0.5).relu().mean().item()),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_step_moves_the_metric_the_right_way(name, seed):
    objective, dataset, outputs, metric = CASES[name]
    torch.manual_seed(seed)
    model = nn.Linear(6, outputs)
    opt = fcco.SOX(model.parameters(), objective, lr=0.3, alpha=1.0, beta=1.0, update=Normalized())
    with torch.no_grad():
        before = metric(model)
    opt.step(fcco.data.exact_pass(model, dataset, objective, chunk_size=10_000)[0])
    with torch.no_grad():
        assert metric(model) > before
