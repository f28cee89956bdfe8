"""Whether neighbours of an embedding belong together."""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from fcco.metrics.arguments import check_finite, check_integers, check_shape, check_top

__all__ = ["Metric", "knn_accuracy", "recall_at_k", "retrieval_recall"]

Metric = Literal["cosine", "euclidean"]

# Distances held at a time: 128 MB in float64, plus masks.
_PAIRS = 1 << 24


def knn_accuracy(
    train_embeddings: Tensor,
    train_classes: Tensor,
    embeddings: Tensor,
    classes: Tensor,
    k: int = 5,
    *,
    metric: Metric = "cosine",
) -> float:
    """Accuracy of a vote of the k nearest training points, computed by scikit-learn.

    Args:
        train_embeddings: (n, d).
        train_classes: (n,) integers.
        embeddings: (N, d), the points to classify.
        classes: (N,) integers, their true classes.
        k: the number of neighbours that vote; among classes with equal votes the lowest wins.
        metric: the distance that makes a neighbour.

    Examples:
        >>> corners, names = torch.eye(2), torch.tensor([0, 1])
        >>> points = torch.tensor([[3.0, 1.0], [1.0, 3.0], [2.0, 1.0]])
        >>> knn_accuracy(corners, names, points, torch.tensor([0, 1, 0]), k=1)
        1.0
    """
    from sklearn.neighbors import KNeighborsClassifier

    train = _points("train_embeddings", train_embeddings, metric)
    points = _points("embeddings", embeddings, metric)
    check_shape("train_classes", train_classes, len(train))
    check_shape("embeddings", points, "N", train.shape[1])
    check_shape("classes", classes, len(points))
    check_integers("train_classes", train_classes)
    check_integers("classes", classes)
    check_top(k, len(train))
    model = KNeighborsClassifier(n_neighbors=k, metric=metric)
    model.fit(train.cpu().numpy(), train_classes.cpu().numpy())
    return float(model.score(points.cpu().numpy(), classes.cpu().numpy()))


def recall_at_k(embeddings: Tensor, classes: Tensor, k: int, *, metric: Metric = "cosine") -> float:
    """Share of points with a point of their class among their k nearest others.

    Points at equal distance are in random order, and the result is the expectation over it: a
    network that maps all inputs to one point gets the value of chance. A point that is the only one
    of its class is a miss.

    Args:
        embeddings: (N, d).
        classes: (N,) integers.
        k: the number of neighbours, at most N - 1.
        metric: the distance that makes a neighbour.

    Examples:
        >>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
        >>> recall_at_k(embeddings, torch.tensor([0, 0, 1, 1]), k=1)
        1.0
        >>> recall_at_k(embeddings, torch.tensor([0, 1, 0, 1]), k=1)
        0.0
    """
    points = _points("embeddings", embeddings, metric)
    check_shape("classes", classes, len(points))
    check_integers("classes", classes)
    if len(points) < 2:
        raise ValueError("embeddings must hold at least 2 points, got 1")
    check_top(k, len(points) - 1)
    hits = 0.0
    for rows, distance in _distances(points, points):
        others = rows[:, None] != torch.arange(len(points), device=points.device)
        same = (classes[rows, None] == classes) & others
        nearest = distance.where(same, torch.inf).amin(1, keepdim=True)
        before = ((distance < nearest) & others).sum(1)
        tied = (distance == nearest) & others
        missed = _missed((tied & same).sum(1), tied.sum(1), k - before)
        hits += float((1 - missed).where(same.any(1), 0).sum())
    return hits / len(points)


def retrieval_recall(
    queries: Tensor, gallery: Tensor, k: int, *, metric: Metric = "cosine"
) -> float:
    """Share of queries whose match, the gallery point of the same number, is among the k nearest.

    Points at equal distance are in random order, and the result is the expectation over it.

    Args:
        queries: (N, d), embeddings of one tower.
        gallery: (M, d), embeddings of the other, M at least N; those past N are distractors.
        k: the number of neighbours, at most M.
        metric: the distance that makes a neighbour.

    Examples:
        >>> retrieval_recall(torch.eye(3), torch.eye(3).roll(1, 0), k=1)
        0.0
        >>> retrieval_recall(torch.ones(4, 2), torch.ones(4, 2), k=1)
        0.25
    """
    points = _points("queries", queries, metric)
    targets = _points("gallery", gallery, metric)
    check_shape("gallery", targets, "M", points.shape[1])
    if len(targets) < len(points):
        raise ValueError(f"gallery must hold the {len(points)} matches, got {len(targets)} points")
    check_top(k, len(targets))
    hits = 0.0
    for rows, distance in _distances(points, targets):
        match = distance.gather(1, rows[:, None])
        before, tied = (distance < match).sum(1), (distance == match).sum(1)
        # the match has one of the tied places, each with the same probability
        hits += float(((k - before) / tied.double()).clamp(0, 1).sum())
    return hits / len(points)


def _missed(wanted: Tensor, tied: Tensor, places: Tensor) -> Tensor:
    """C(tied - wanted, places) / C(tied, places): no wanted point gets one of the places."""
    unwanted = tied - wanted
    room = places.clamp(min=0)
    fits = room <= unwanted
    room = room.where(fits, 0)
    total, part, drawn = tied.double(), unwanted.double(), room.double()
    log = (
        torch.lgamma(part + 1)
        - torch.lgamma(part - drawn + 1)
        - torch.lgamma(total + 1)
        + torch.lgamma(total - drawn + 1)
    )
    return log.exp().where(fits, 0)


def _points(name: str, embeddings: Tensor, metric: Metric) -> Tensor:
    """Check embeddings; in float64, and on the unit sphere if only directions count."""
    if metric not in ("cosine", "euclidean"):
        raise ValueError(f'metric must be "cosine" or "euclidean", got {metric!r}')
    check_shape(name, embeddings, "N", "d")
    check_finite(name, embeddings)
    points = embeddings.detach().double()
    if metric == "euclidean":
        return points
    norms: Tensor = torch.linalg.vector_norm(points, dim=1, keepdim=True)
    zero = (norms[:, 0] == 0).nonzero().flatten().tolist()
    if zero:
        raise ValueError(f"{name}: rows {zero} are zero and have no cosine with anything")
    return points / norms


def _distances(points: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Row numbers and their euclidean distances to all targets, one chunk at a time.

    On the unit sphere this is the order of the cosines. A matrix product rounds equal columns
    differently, so each distinct target is computed once: equal points are equally far.
    """
    distinct, place = targets.unique(dim=0, return_inverse=True)
    repeated = len(distinct) < len(targets)
    chunk = max(_PAIRS // len(targets), 1)
    for rows in torch.arange(len(points), device=points.device).split(chunk):
        distance = torch.cdist(points[rows], distinct if repeated else targets)
        yield rows, distance[:, place] if repeated else distance
