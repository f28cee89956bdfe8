"""One step from a random start moves the metric people look at the right way."""

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

import fcco
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


def score(model):
    return model(X)[:, 0]


def worst_loss(model):
    losses = nn.functional.cross_entropy(model(X), Y.long(), reduction="none")
    return -max(losses[g == GROUPS].mean().item() for g in range(4))


def bag_auc(pool):
    return lambda model: roc_auc_score(BAG_LABELS, pool(model(X).view(24, 10, -1)))


def nearest_of_class(model):
    """The share of the 5 nearest others that have the point's class."""
    distances = torch.cdist(model(X), model(X)).fill_diagonal_(torch.inf)
    nearest = distances.topk(5, largest=False).indices
    return (CLASSES[nearest] == CLASSES[:, None]).double().mean().item()


def retrieved(model):
    """How often the own second view is among the 3 nearest, in both directions."""
    x, y = (nn.functional.normalize(model(view), dim=1) for view in (X, NOISY))
    own = torch.arange(N)[:, None]
    hits = [(cosines.topk(3).indices == own).any(1) for cosines in (x @ y.T, y @ x.T)]
    return torch.cat(hits).double().mean().item()


# Objective, outputs of the model, and the metric if it is not that of the objective.
CASES = {
    "multi-task auc": (O.MultiTaskAUC(CLASSES), 3, None),
    "auc": (O.AUC(nn.functional.one_hot(CLASSES)), 3, None),
    "gap": (O.MultiTaskGap(Y), 1, None),
    "ap": (O.AveragePrecision(Y), 1, None),
    "ap, hinge": (O.AveragePrecision(Y, surrogate=O.SquaredHinge()), 1, None),
    "one-way": (O.PartialAUC(Y, temperature=1.0, max_fpr=0.3), 1, None),
    "two-way": (O.PartialAUC(Y, temperature=1.0, two_way=1.0, max_fpr=0.7, min_tpr=0.3), 1, None),
    "sensitive": (O.PartialAUC(Y, temperature=1.0, min_tpr=0.7), 1, None),
    "push": (O.PNormPush(Y), 1, None),
    "cox": (O.Cox(TIMES, EVENTS), 1, None),
    "ndcg": (O.NDCG(GRADES, LENGTHS), 1, None),
    "list-net": (O.ListNet(GRADES, LENGTHS), 1, None),
    "nca": (O.NCA(CLASSES), 2, nearest_of_class),
    "contrastive": (O.GlobalContrastive(N, temperature=0.1), 4, retrieved),
    "group dro": (O.GroupDRO(GROUPS, Y.long(), temperature=1.0), 2, worst_loss),
    "group cvar": (O.GroupCVaR(GROUPS, Y.long(), fraction=0.5), 2, worst_loss),
    "dro": (O.DRO(N, temperature=0.2), 1, lambda model: -score(model).max().item()),
    "cvar": (O.CVaR(N, fraction=0.1), 1, lambda model: -score(model).topk(24).values.mean().item()),
    "soft maximum": (O.SoftmaxPooling(BAGS, BAG_LABELS), 1,
                     bag_auc(lambda h: h[:, :, 0].logsumexp(1))),
    "attention": (O.AttentionPooling(BAGS, BAG_LABELS), 2,
                  bag_auc(lambda h: (h[:, :, 1].softmax(1) * h[:, :, 0]).sum(1))),
    "penalty": (O.ConstraintPenalty(GROUPS, constraint=lambda h, y, block: (h[:, 0] + 0.5).relu()),
                1, lambda model: -(score(model) + 0.5).relu().mean().item()),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_step_moves_the_metric_the_right_way(name, seed):
    objective, outputs, own_metric = CASES[name]
    metric = own_metric or (lambda model: objective.metric(model(X)))
    inputs = (X, NOISY) if objective.num_views == 2 else X
    torch.manual_seed(seed)
    model = nn.Linear(6, outputs)
    opt = fcco.SOX(model.parameters(), objective, lr=0.3, alpha=1.0, beta=1.0, update=Normalized())
    with torch.no_grad():
        before = metric(model)
    opt.step(fcco.data.exact_pass(model, inputs, objective, chunk_size=10_000)[0])
    with torch.no_grad():
        assert metric(model) > before
