"""``exact`` against our objectives, R, lifelines and scikit-learn."""

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from lifelines.fitters.coxph_fitter import SemiParametricPHFitter
from losses import criteria
from sklearn.metrics import average_precision_score, ndcg_score, roc_auc_score

from fcco import losses as L
from fcco import objectives as O
from fcco.data import exact_value

H = criteria.CASES[0].scores()
X = H.unsqueeze(1)
R = json.loads(gzip.decompress((Path(__file__).parent / "r_coxph.json.gz").read_bytes()))["vectors"]


class Step(O.Surrogate):
    """A step so steep that floating point sees 0 and 1 alone, with l(0) = 1 as in ranks."""

    def __call__(self, s):
        return torch.sigmoid((s + 1e-4) / 1e-6)


def ours():
    times, events = criteria.survival()
    labels, lists = criteria.labels(), criteria.ranking()
    for ties in ("efron", "breslow"):
        yield L.CoxLoss(times, events, ties=ties), O.Cox(times, events, ties=ties)
    yield L.AUCLoss(labels, temperature=0.3), O.AUC(labels, temperature=0.3)
    yield L.APLoss(labels), O.AveragePrecision(labels)
    options = {"temperature": 0.1, "two_way": 0.4, "max_fpr": 0.3}
    yield L.PartialAUCLoss(labels, **options), O.PartialAUC(labels, **options)
    options = {"temperature": 0.1, "min_tpr": 0.8}
    yield L.PartialAUCLoss(labels, **options), O.PartialAUC(labels, **options)
    yield L.PushLoss(labels), O.PNormPush(labels)
    options = {"top_k": 4, "softness": 0.7}
    yield L.NDCGLoss(*lists, **options), O.NDCG(*lists, **options)
    yield L.ListNetLoss(*lists), O.ListNet(*lists)
    yield L.DROLoss(45, temperature=0.3), O.DRO(45, temperature=0.3)
    yield L.CVaRLoss(45, fraction=0.3), O.CVaR(45, fraction=0.3)


@pytest.mark.parametrize(("criterion", "objective"), list(ours()), ids=lambda x: type(x).__name__)
def test_a_loss_is_the_objective_of_its_name(criterion, objective):
    """With the same defaults: one definition, whatever the door."""
    assert type(criterion.objective) is type(objective)
    settings = [
        {
            k: v
            for k, v in vars(o).items()
            if k[0] != "_" and isinstance(v, float | int | str | O.Surrogate | None)
        }
        for o in (criterion.objective, objective)
    ]
    assert settings[0] == settings[1]
    assert criterion.exact(H).equal(objective.exact(H))
    value = exact_value(lambda x: x, X, objective)
    assert criterion.exact(H).item() == pytest.approx(value, rel=1e-12)
    assert criterion.double()(H, torch.arange(45)).item() == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("number", range(18))
def test_cox_is_that_of_r(number):
    """To the rounding of R's log hazards (4 decimals) and log likelihoods."""
    vector = R[number]
    criterion = L.CoxLoss(vector["times"], vector["events"], ties=vector["ties"])
    scores = torch.tensor(vector["log_hazards"], dtype=torch.float64, requires_grad=True)
    value = -sum(vector["events"]) * criterion.exact(scores)
    (slope,) = torch.autograd.grad(value, scores)
    bound = 0.5e-4 * (1 + slope.abs().sum().item())
    assert abs(value.item() - vector["log_likelihood"]) <= bound
    assert bound < 0.03


@pytest.mark.parametrize("seed", range(3))
def test_cox_is_that_of_lifelines(seed):
    times, events = criteria.survival()
    order = times.argsort(stable=True)
    x = torch.randn((45, 2), generator=criteria.generator(seed), dtype=torch.float64)
    w = torch.tensor([0.7, -1.3], dtype=torch.float64)
    _, _, likelihood = SemiParametricPHFitter()._get_efron_values_single(
        pd.DataFrame(x[order].numpy()),
        pd.Series(times[order].numpy()),
        pd.Series(events[order].numpy()),
        pd.Series(np.ones(45)),
        None,
        w.numpy(),
    )
    value = L.CoxLoss(times, events).exact(x @ w)
    assert value.item() == pytest.approx(-likelihood / int(events.sum()), rel=1e-10)


def test_a_steep_surrogate_gives_the_metrics():
    labels, (grades, lengths) = criteria.labels(), criteria.ranking()
    ap = L.APLoss(labels, surrogate=Step()).exact(H)
    assert -ap.item() == pytest.approx(average_precision_score(labels, H), rel=1e-9)
    parts = zip(grades.split(lengths.tolist()), H.split(lengths.tolist()), strict=True)
    gains = [(2.0**y - 1, h) for y, h in parts if y.any()]
    many = [ndcg_score(y[None], h[None]) for y, h in gains if len(y) > 1]
    expected = (sum(many) + (len(gains) - len(many))) / len(gains)
    ndcg = L.NDCGLoss(grades, lengths, surrogate=Step()).exact(H)
    assert -ndcg.item() == pytest.approx(expected, rel=1e-6)
    push = L.PushLoss(labels, power=1.0, surrogate=Step()).exact(H)
    assert 1 - push.item() == pytest.approx(roc_auc_score(labels, H), rel=1e-9)


def test_a_cold_auc_loss_is_the_worst_pair():
    labels = criteria.labels()
    worst = (H[labels == 0].max() - H[labels == 1].min()).item()
    assert L.AUCLoss(labels, temperature=1e-4).exact(H).item() == pytest.approx(worst, abs=2e-3)


def test_a_warm_partial_auc_is_the_mean_over_pairs():
    labels = criteria.labels()
    pairs = (1 + H[labels == 0] - H[labels == 1][:, None]).clamp(min=0).square().mean().item()
    criterion = L.PartialAUCLoss(labels, temperature=1e6)
    assert criterion.exact(H).item() == pytest.approx(pairs, rel=1e-4)


def test_many_pairs_go_in_parts(monkeypatch):
    labels = criteria.labels(3)
    scores = torch.randn(45, 3, dtype=torch.float64, generator=criteria.generator())
    whole = L.APLoss(labels).exact(scores)
    monkeypatch.setattr("fcco.objectives.pairs.PAIRS", 50)
    scores.requires_grad_()
    parts = L.APLoss(labels).exact(scores)
    torch.testing.assert_close(parts.detach(), whole)
    assert torch.autograd.grad(parts, scores)[0].isfinite().all()
    torch.testing.assert_close(L.APLoss(labels)(scores, torch.arange(45)).detach().double(), whole,
                               rtol=1e-5, atol=1e-6)  # fmt: skip
