"""Values of objectives against other libraries, on data larger than a plain loop would like."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from lifelines import CoxPHFitter
from lifelines.fitters.coxph_fitter import SemiParametricPHFitter
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score, ndcg_score, roc_auc_score
from torch import nn
from torch.nn.functional import cross_entropy

from fcco import objectives as O
from fcco.data import exact_pass, exact_value


class Linear(nn.Module):
    """x w, with given weights."""

    def __init__(self, *weight):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight, dtype=torch.float64))

    def forward(self, x):
        return x @ self.weight


class Step(O.Surrogate):
    """A step so steep that floating point sees 0 and 1 alone, with l(0) = 1 as in ranks."""

    def __call__(self, s):
        return torch.sigmoid((s + 0.1) / 1e-3)


def close(value, expected):
    assert value == pytest.approx(expected, abs=1e-10, rel=1e-10)


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# Survival ---------------------------------------------------------------------------------------


def patients(seed, count=60, times=7):
    """Heavy ties and much censoring."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn((count, 2), generator=generator, dtype=torch.float64)
    t = torch.randint(1, times, (count,), generator=generator).double()
    e = torch.rand(count, generator=generator) < 0.6
    return x, t, e


def cox(x, times, events, weight, ties):
    objective = O.Cox(times, events, ties=ties)
    return objective, exact_value(Linear(*weight), x, objective, chunk_size=7)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_efron_at_any_weights_is_lifelines(seed, weighted):
    """Of the model, and of the samples; those of weight 0 are absent."""
    x, times, events = patients(seed)
    weight = random(2, seed=seed)
    counts = torch.ones(len(x), dtype=torch.float64)
    if weighted:
        counts = random(len(x), seed=seed + 5).abs() * (torch.arange(len(x)) % 5 > 0)
        value = O.Cox(times, events).exact(x @ weight, counts).item()
        x, times, events = (part[counts > 0] for part in (x, times, events))
        counts = counts[counts > 0]
    else:
        _, value = cox(x, times, events, weight.tolist(), "efron")
    order = times.argsort(stable=True)  # as lifelines wants them
    fitter = SemiParametricPHFitter()
    _, _, log_likelihood = fitter._get_efron_values_single(
        pd.DataFrame(x[order].numpy()),
        pd.Series(times[order].numpy()),
        pd.Series(events[order].numpy()),
        pd.Series(counts[order].numpy()),
        None,
        weight.numpy(),
    )
    close(-value * float(counts[events].sum()), float(log_likelihood))


@pytest.mark.parametrize("seed", range(2))
def test_efron_at_the_maximum_is_lifelines(seed):
    x, times, events = patients(seed)
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "t": times, "e": events})
    fitter = CoxPHFitter().fit(frame, "t", "e", fit_options={"precision": 1e-12})
    objective, value = cox(x, times, events, fitter.params_.tolist(), "efron")
    close(-value * int(events.sum()), fitter.log_likelihood_)
    # It is a maximum: the gradients of the exact pass and of the exact value vanish there.
    model = Linear(*fitter.params_.tolist())
    probe = exact_pass(model, x, objective)[0]()
    slopes = 1 / probe.values.detach()
    (gradient,) = torch.autograd.grad((probe.values * slopes).mean(), [model.weight])
    assert gradient.abs().max() < 1e-8
    (gradient,) = torch.autograd.grad(objective.exact(model(x)), [model.weight])
    assert gradient.abs().max() < 1e-8


def test_breslow_without_ties_is_lifelines():
    x, _, events = patients(5)
    times = torch.arange(60.0, 0.0, -1.0)
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "t": times, "e": events})
    fitter = CoxPHFitter().fit(frame, "t", "e", fit_options={"precision": 1e-12})
    value = cox(x, times, events, fitter.params_.tolist(), "breslow")[1]
    close(-value * int(events.sum()), fitter.log_likelihood_)


@pytest.mark.parametrize("seed", range(3))
def test_breslow_with_ties_is_a_cumulative_sum(seed):
    """Sorted by time, latest first, the risk set of a time ends with its last tie."""
    x, times, events = patients(seed)
    weight = random(2, seed=seed + 10)
    value = cox(x, times, events, weight.tolist(), "breslow")[1]
    h = (x @ weight).numpy()
    order = np.argsort(-times.numpy(), kind="stable")
    running = np.logaddexp.accumulate(h[order])
    last = np.searchsorted(-times.numpy()[order], -times.numpy(), side="right") - 1
    terms = running[last] - h
    close(value, terms[events.numpy()].mean())


# AUC and its kin ----------------------------------------------------------------------------------


def scored(seed, count=50):
    x = random(count, 3, seed=seed)
    labels = torch.rand(count, generator=torch.Generator().manual_seed(seed + 1)) < 0.3
    return x, labels, Linear(*random(3, seed=seed + 2).tolist())


@pytest.mark.parametrize("seed", range(2))
def test_gap_and_auc_are_sums_over_pairs(seed):
    x, labels, model = scored(seed)
    with torch.no_grad():
        h = model(x).sigmoid()
    pairs = [n - p for p in h[labels].tolist() for n in h[~labels].tolist()]
    gap = math.fsum(pairs) / len(pairs)
    close(exact_value(model, x, O.MultiTaskGap(labels, surrogate=O.Squared())), (1 + gap) ** 2)
    # E over pairs of (1 + n - p)^2 is the two variances and the squared gap of the means.
    square = math.fsum((1 + d) ** 2 for d in pairs) / len(pairs)
    value = exact_value(model, x, O.MultiTaskAUC(labels), chunk_size=7)
    close(value + (1 + gap) ** 2 / 2, square)


@pytest.mark.parametrize("seed", range(2))
def test_push_with_a_step_is_the_area_under_the_curve(seed):
    x, labels, _ = scored(seed)
    ranks = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)).double()
    objective = O.PNormPush(labels, power=1.0, surrogate=O.Sigmoid(1e-3))
    value = exact_value(nn.Identity(), ranks, objective, chunk_size=7)
    close(value, 1 - roc_auc_score(labels, ranks))


def test_partial_auc_of_a_step_follows_from_shares_whose_mean_is_the_area():
    _, labels, _ = scored(3)
    ranks = torch.randperm(len(labels), generator=torch.Generator().manual_seed(3)).double()

    def value(temperature):
        objective = O.PartialAUC(labels, temperature=temperature, surrogate=O.Sigmoid(1e-3))
        return exact_value(nn.Identity(), ranks, objective)

    # Of a step, u is (1 - p) + p exp(1 / lambda), p the share of negatives above.
    above = [(ranks[~labels] > r).double().mean().item() for r in ranks[labels]]
    assert 1 - np.mean(above) == pytest.approx(roc_auc_score(labels, ranks), abs=1e-12)
    for t in (0.05, 1.0, 30.0):
        close(value(t), np.mean([t * math.log1p(p * math.expm1(1 / t)) for p in above]))


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("surrogate", [Step(), O.Sigmoid(1e-3)], ids=["step", "sigmoid"])
def test_average_precision_of_a_step_is_sklearns(tasks, surrogate):
    generator = torch.Generator().manual_seed(tasks)
    labels = torch.rand((40, tasks), generator=generator) < 0.3
    ranks = torch.stack([torch.randperm(40, generator=generator) for _ in range(tasks)], 1).double()
    given = labels[:, 0] if tasks == 1 else labels
    objective = O.AveragePrecision(given, surrogate=surrogate)
    value = exact_value(nn.Identity(), ranks, objective, chunk_size=7)
    close(-value, average_precision_score(labels.numpy(), ranks.numpy(), average="macro"))


# Lists --------------------------------------------------------------------------------------------


def lists(seed):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([5, 9, 2, 7])
    grades = torch.randint(0, 4, (int(lengths.sum()),), generator=generator)
    grades[lengths.cumsum(0) - 1] = 2  # every list has a relevant item
    ranks = torch.randperm(len(grades), generator=generator).double()
    return grades, lengths, ranks


@pytest.mark.parametrize("k", [None, 1, 3])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("surrogate", [Step(), O.Sigmoid(1e-3)], ids=["step", "sigmoid"])
def test_ndcg_of_a_step_is_sklearns(seed, k, surrogate):
    grades, lengths, ranks = lists(seed)
    objective = O.NDCG(grades, lengths, top_k=k, surrogate=surrogate, softness=1e-3)
    value = exact_value(nn.Identity(), ranks, objective, chunk_size=10)
    parts = zip(grades.split(lengths.tolist()), ranks.split(lengths.tolist()), strict=True)
    expected = [ndcg_score([(2.0**g - 1).numpy()], [r.numpy()], k=k) for g, r in parts]
    close(-value, np.mean(expected))


def test_smooth_ranks_of_a_steep_sigmoid_are_ranks():
    """All but the item's own half: sigmoid(0) = 1/2."""
    grades, lengths, ranks = lists(7)
    objective = O.NDCG(grades, lengths, surrogate=O.Sigmoid(1e-3))
    ours = []
    for call in exact_pass(nn.Identity(), ranks, objective, chunk_size=10):
        probe = call()
        ours.extend((probe.values[:, 0] * probe.samples).tolist())
    theirs = np.concatenate([rankdata(-r.numpy()) for r in ranks.split(lengths.tolist())])
    np.testing.assert_allclose(ours, theirs[grades.numpy() > 0] - 0.5, atol=1e-10)


def test_list_net_is_cross_entropy_with_soft_targets():
    grades, lengths, _ = lists(2)
    scores = random(len(grades), seed=3) * 5
    value = exact_value(nn.Identity(), scores, O.ListNet(grades, lengths), chunk_size=10)
    sizes = lengths.tolist()
    parts = zip(scores.split(sizes), grades.double().split(sizes), strict=True)
    close(value, np.mean([cross_entropy(s, g.softmax(0)).item() for s, g in parts]))


# Exponentials -------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.3, 2.0])
def test_group_risk_is_logsumexp(temperature):
    x, groups = random(40, 3), torch.arange(40) % 6
    targets = torch.randint(0, 4, (40,), generator=torch.Generator().manual_seed(0))
    model = nn.Linear(3, 4).double()
    objective = O.GroupDRO(groups, targets, temperature=temperature, cap=100.0)
    value = exact_value(model, x, objective, chunk_size=7)
    with torch.no_grad():
        losses = torch.stack(
            [cross_entropy(model(x[groups == g]), targets[groups == g]) for g in range(6)]
        )
    soft = temperature * (torch.logsumexp(losses / temperature, 0) - math.log(6))
    close(objective.risk(value), soft.item())


def test_soft_maximum_pooling_is_logsumexp():
    scores, bags = 50 * random(40), torch.arange(40) % 6
    labels = torch.tensor([0, 1, 1, 0, 1, 0])
    objective = O.SoftmaxPooling(bags, labels, temperature=0.3)
    value = exact_value(nn.Identity(), scores, objective, chunk_size=7)
    counts = torch.bincount(bags)
    logits = torch.stack([torch.logsumexp(scores[bags == b] / 0.3, 0) for b in range(6)])
    logits = 0.3 * (logits - counts.double().log())
    close(value, nn.functional.binary_cross_entropy_with_logits(logits, labels.double()).item())


@pytest.mark.parametrize("two_way", [False, True])
@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_contrastive_is_cross_entropy_over_the_whole_set(temperature, two_way):
    """With cosines s, cross-entropy is log(1 + (n - 1) u), so u = expm1(it) / (n - 1)."""
    n = 30
    first, second = random(n, 5, seed=1), random(n, 5, seed=2)
    objective = O.GlobalContrastive(n, temperature=temperature, two_way=two_way)
    value = exact_value(nn.Identity(), (first, second), objective, chunk_size=7)
    cosines = nn.functional.cosine_similarity(first[:, None], second[None], dim=2)
    ways = [cosines, cosines.T] if two_way else [cosines]
    losses = [cross_entropy(c / temperature, torch.arange(n), reduction="none") for c in ways]
    u = torch.cat(losses).expm1() / (n - 1)
    close(value, (temperature * (u + 1e-14).log()).mean().item())


# Latent variables ---------------------------------------------------------------------------------


class Discrete(nn.Module):
    """x ~ N(mean of state z, 1), z one of K states, q(z | x) any table; z is what it is told."""

    def __init__(self, q, states):
        super().__init__()
        self.prior = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64).log()
        self.means = nn.Parameter(torch.tensor([-2.0, 0.5, 3.0], dtype=torch.float64))
        self.q, self.states = q, states

    def joint(self, x):
        """log p(x, z) of all z, (B, K)."""
        return self.prior + torch.distributions.Normal(self.means, 1.0).log_prob(x)

    def forward(self, x, samples):
        z = self.states.expand(len(x), -1)
        assert z.shape[1] == samples
        return (self.joint(x) - self.q(self, x)).gather(1, z)


def posterior(model, x):
    return model.joint(x).log_softmax(1)


def skewed(model, x):
    return torch.stack([x[:, 0], -x[:, 0], 0.3 * x[:, 0] ** 2], 1).log_softmax(1)


def uniform(model, x):
    return torch.full((len(x), 3), 1 / 3, dtype=torch.float64).log()


@pytest.mark.parametrize("share", [0.0, -1.0, 3.0])
def test_a_share_is_at_most_one(share):
    with pytest.raises(ValueError, match=r"least_share must lie in \(0, 1\]"):
        O.IWAE(3, least_share=share)


@pytest.mark.parametrize("q", [posterior, skewed, uniform])
def test_importance_weights_average_to_the_likelihood(q):
    x = 3 * random(8, 1)
    objective, blocks = O.IWAE(8), torch.arange(8)
    expectation = 0.0
    for z in range(3):
        model = Discrete(q, torch.tensor([[z]]))
        batch = objective.batch(x, blocks, samples=1)
        probe = objective.inner(model, batch)
        u = probe.values[:, 0] * probe.log_scale.exp()
        expectation = expectation + q(model, x)[:, z].exp() * u
    likelihood = model.joint(x).exp().sum(1)
    torch.testing.assert_close(expectation, likelihood, rtol=1e-12, atol=0)
    value = objective.outer(expectation.unsqueeze(1), blocks)
    torch.testing.assert_close(value, -model.joint(x).logsumexp(1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("q", "states"), [(posterior, [1]), (posterior, [2, 2]), (uniform, [0, 1, 2])]
)
def test_the_bound_is_the_likelihood_where_it_is_tight(q, states):
    """At the exact posterior with any sample, and at a uniform q with each state once."""
    x = 30 * random(8, 1)  # log-likelihoods of hundreds
    model = Discrete(q, torch.tensor([states]))
    objective = O.IWAE(8, exact_samples=len(states))
    with torch.no_grad():
        expected = -model.joint(x).logsumexp(1).mean().item()
    close(exact_value(model, x, objective, chunk_size=3), expected)
