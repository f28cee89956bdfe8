"""The equivalences that sentence-transformers asks of its cached losses, asked of ours.

A cached loss (GradCache) gives the gradient of a large batch though the encoder sees only
mini-batches: it embeds without gradients, computes the loss and its slopes at the embeddings, and
embeds again to carry the slopes into the encoder. Its tests demand that nothing of this shows: not
the size of the mini-batches, not dropout, not a second forward pass before the backward pass. A
loss with a table has one more thing to hide: it is written once.
"""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.checkpoint import checkpoint

from fcco import losses as L

N, T = 12, 0.3
CLASSES = torch.arange(N) % 4


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


FIRST, SECOND = torch.randn(2, N, 5, generator=generator(), dtype=torch.float64)


def encoder(dropout=0.0):
    torch.manual_seed(0)
    layers = [nn.Linear(5, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 4)]
    return nn.Sequential(*layers).double()


def contrastive(**options):
    return L.ContrastiveLoss(N, **({"temperature": T, "beta": 1.0} | options)).double()


def call_contrastive(criterion, embed, index):
    return criterion(embed(FIRST[index]), embed(SECOND[index]), index)


def call_nca(criterion, embed, index):
    return criterion(embed(FIRST[index]), index)


LOSSES = {
    "contrastive": (contrastive, call_contrastive),
    "contrastive, auto": (lambda: contrastive(beta="auto"), call_contrastive),
    "contrastive, one-way": (lambda: contrastive(two_way=False), call_contrastive),
    "contrastive, learned": (lambda: contrastive(learned="individual"), call_contrastive),
    "nca": (lambda: L.NCALoss(CLASSES).double(), call_nca),
}
every_loss = pytest.mark.parametrize("name", LOSSES)
mini_batches = pytest.mark.parametrize("size", [1, 2, 5, N])


def warmed(criterion, call):
    """A criterion whose table has seen batches of another encoder."""
    other = nn.Linear(5, 4, dtype=torch.float64)
    for index in torch.randperm(N, generator=generator(1)).split(6):
        call(criterion, other, index)
    return criterion


def in_parts(model, size):
    """The encoder, applied to mini-batches."""
    return lambda x: torch.cat([model(part) for part in x.split(size)])


def recomputed(model, size, reentrant):
    """The same under activation checkpointing: every mini-batch is embedded twice."""

    def embed(x):
        parts = x.clone().requires_grad_().split(size)  # which reentrant checkpoints need
        return torch.cat([checkpoint(model, part, use_reentrant=reentrant) for part in parts])

    return embed


def outcome(loss, model, criterion):
    """The value, the gradients of encoder and criterion, and the table."""
    for p in (*model.parameters(), *criterion.parameters()):
        p.grad = None
    loss.backward()
    parts = {"value": loss.detach()}
    for kind, module in (("encoder", model), ("criterion", criterion)):
        parts |= {f"{kind} {k}": p.grad for k, p in module.named_parameters()}
    return parts | {f"table {k}": v.clone() for k, v in criterion.state_dict().items()}


def assert_same(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


# In one batch -------------------------------------------------------------------------------------


@pytest.mark.parametrize("two_way", [False, True])
@mini_batches
def test_a_batch_of_all_samples_has_the_value_and_gradient_of_info_nce(two_way, size):
    """Up to the factor T and the constant log(N - 1), in which the mean and the sum differ."""
    model, index = encoder(), torch.randperm(N, generator=generator(2))
    criterion = contrastive(two_way=two_way, eps=1 / (N - 1))
    found = outcome(call_contrastive(criterion, in_parts(model, size), index), model, criterion)
    first, second = (normalize(model(x[index]), dim=1) for x in (FIRST, SECOND))
    logits, own = first @ second.T / T, torch.arange(N)
    ways = [logits, logits.T] if two_way else [logits]
    mean = sum(cross_entropy(way, own) for way in ways) / len(ways)
    value = T * (mean - math.log(N - 1))
    expected = outcome(value, model, nn.Module())
    assert_same({k: found[k] for k in expected}, expected)


@every_loss
@mini_batches
@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_mini_batches_are_one_batch(name, size, reentrant):
    build, call = LOSSES[name]
    model, index = encoder(), torch.randperm(N, generator=generator(2))[:8]
    first = warmed(build(), call)
    second = copy.deepcopy(first)
    embed = recomputed(model, size, reentrant)
    found = outcome(call(first, embed, index), model, first)
    assert_same(found, outcome(call(second, model, index), model, second))


@every_loss
@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_draws_the_same_dropout_masks(name, reentrant):
    build, call = LOSSES[name]
    model, index = encoder(dropout=0.5), torch.arange(8)
    first = warmed(build(), call)
    second = copy.deepcopy(first)
    outcomes = []
    for criterion, embed in (
        (first, in_parts(model, 3)),
        (second, recomputed(model, 3, reentrant)),
    ):
        torch.manual_seed(7)
        outcomes.append(outcome(call(criterion, embed, index), model, criterion))
    assert_same(*outcomes)
    torch.manual_seed(8)
    other = call(copy.deepcopy(first), in_parts(model, 3), index)
    assert not torch.isclose(other, outcomes[0]["value"])  # the masks do matter


@every_loss
@pytest.mark.parametrize("reentrant", [False, True])
def test_encoder_and_loss_within_one_checkpoint(name, reentrant):
    build, call = LOSSES[name]
    model, index = encoder(dropout=0.5), torch.arange(8)
    first = warmed(build(), call)
    second = copy.deepcopy(first)
    torch.manual_seed(7)
    found = outcome(
        checkpoint(
            lambda unused: call(first, model, index),
            torch.zeros(1, requires_grad=True),
            use_reentrant=reentrant,
        ),
        model,
        first,
    )
    torch.manual_seed(7)
    assert_same(found, outcome(call(second, model, index), model, second))


@every_loss
@mini_batches
def test_grad_cache_around_a_loss_is_the_loss(name, size):
    """Embed without gradients, take the slopes at the embeddings, embed again: a table is
    written by the call in between alone."""
    build, call = LOSSES[name]
    model, index = encoder(), torch.arange(8)
    first = warmed(build(), call)
    second = copy.deepcopy(first)
    expected = outcome(call(second, model, index), model, second)

    cache = []

    def embed_without_graph(x):
        with torch.no_grad():
            embeddings = in_parts(model, size)(x)
        cache.append((x, embeddings.requires_grad_()))
        return embeddings

    loss = call(first, embed_without_graph, index)
    found = outcome(loss, model, first)  # no gradient reaches the encoder
    for x, embeddings in cache:
        for part, slopes in zip(x.split(size), embeddings.grad.split(size), strict=True):
            model(part).backward(slopes)
    found |= {f"encoder {k}": p.grad for k, p in model.named_parameters()}
    assert_same(found, expected)


@every_loss
def test_a_scaled_loss_has_scaled_gradients(name):
    build, call = LOSSES[name]
    model, index = encoder(), torch.arange(8)
    first = warmed(build(), call)
    second = copy.deepcopy(first)
    plain = outcome(call(first, model, index), model, first)
    scaled = outcome(call(second, model, index) * 1000, model, second)
    for key, tensor in plain.items():
        expected = tensor if key.startswith("table") else 1000 * tensor
        torch.testing.assert_close(scaled[key], expected, rtol=1e-10, atol=1e-9)


@every_loss
@pytest.mark.parametrize("reentrant", [False, True])
def test_two_forward_passes_before_one_backward_pass(name, reentrant):
    """Each has its own gradient, also where both are recomputed."""
    build, call = LOSSES[name]
    model, halves = encoder(dropout=0.5), (torch.arange(6), torch.arange(4, N))
    criteria = [warmed(build(), call)]
    criteria += [copy.deepcopy(criteria[0]) for _ in range(2)]
    embeds = [in_parts(model, 3), recomputed(model, 3, reentrant)]
    outcomes = []
    for criterion, embed in zip(criteria, embeds, strict=False):
        torch.manual_seed(7)
        loss = sum(call(criterion, embed, index) for index in halves)
        outcomes.append(outcome(loss, model, criterion))
    assert_same(*outcomes)
    torch.manual_seed(7)
    single = [outcome(call(criteria[2], embeds[0], index), model, criteria[2]) for index in halves]
    for key, tensor in outcomes[0].items():
        together = single[1][key] if key.startswith("table") else single[0][key] + single[1][key]
        torch.testing.assert_close(tensor, together, rtol=1e-10, atol=1e-12)


@every_loss
@pytest.mark.filterwarnings("ignore:.*it is not a validation loss")
def test_a_value_without_gradients_is_the_same_and_writes_nothing(name):
    build, call = LOSSES[name]
    model, index = encoder(), torch.arange(8)
    criterion = warmed(build(), call)
    before = copy.deepcopy(criterion.state_dict())
    with torch.no_grad():
        value = call(criterion, in_parts(model, 3), index)
    torch.testing.assert_close(dict(criterion.state_dict()), dict(before), rtol=0, atol=0)
    torch.testing.assert_close(value, call(criterion, model, index).detach())


# Over the data set: a table of scores is the cache -----------------------------------------------

SCORE_LOSSES = {
    "cox": lambda: L.CoxLoss(torch.arange(N) // 2, torch.arange(N) % 3 > 0),
    "auc": lambda: L.AUCLoss(CLASSES % 2),
    "ap": lambda: L.APLoss(CLASSES % 2),
    "partial auc": lambda: L.PartialAUCLoss(CLASSES % 2, temperature=1.0),
    "push": lambda: L.PushLoss(CLASSES % 2),
    "ndcg": lambda: L.NDCGLoss(CLASSES, torch.tensor([8, 4])),
    "listnet": lambda: L.ListNetLoss(CLASSES.double(), torch.tensor([8, 4])),
    "dro": lambda: L.DROLoss(N, temperature=0.5),
    "cvar": lambda: L.CVaRLoss(N, fraction=0.4),
}


@pytest.mark.parametrize("name", SCORE_LOSSES)
@mini_batches
def test_mini_batches_against_a_table_have_the_gradient_of_all_samples(name, size):
    """A pass without gradients fills the table; then gradients of mini-batches add up."""
    criterion, model = SCORE_LOSSES[name]().double(), encoder()
    head = nn.Sequential(model, nn.Linear(4, 1, dtype=torch.float64))
    with torch.no_grad():
        criterion.refresh(head(FIRST))
    for index in torch.randperm(N, generator=generator(3)).split(size):
        loss = criterion(head(FIRST[index]), index) * len(index) / N
        loss.backward()
    found = [p.grad.clone() for p in head.parameters()]
    exact = criterion.exact(head(FIRST))
    expected = torch.autograd.grad(exact, [*head.parameters()])
    torch.testing.assert_close(found, list(expected), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(loss * N / len(index), exact, rtol=1e-10, atol=1e-12)
