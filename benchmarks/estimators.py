"""Estimators against scikit-learn, LightGBM, lifelines and scikit-survival, paired over splits.

    python -m venv bench && bench/bin/pip install -c constraints.txt -e '.[lab]' \\
        lightgbm scikit-survival lifelines
    bench/bin/python -m benchmarks.estimators --data-dir DIR --output docs/results/estimators

Every model sees the same splits (70 % for training) and has its default settings; LR is logistic
regression on standardized features, a pipeline; "hidden 64" is the estimator of fcco with a hidden
layer. Seconds are CPU seconds of ``fit`` on one thread.
A split is written to splits.json as soon as it is measured and not measured again; table.md has
the means, and wins and losses beyond two standard errors of the paired differences.
"""

import argparse
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import sklearn.datasets
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, ndcg_score, roc_auc_score
from sklearn.model_selection import GroupShuffleSplit, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fcco.estimators import APClassifier, AUCClassifier, CoxRegressor, Ranker

SPLITS = 5
METRICS = {"AUC": roc_auc_score, "AP": average_precision_score}
HIDDEN = {"fcco": (), "fcco, hidden 64": (64,)}


def embedded(name: str, label: int | None = None) -> Callable[[Path], Any]:
    """A data set of scikit-learn's, or one of its classes against the rest."""

    def load(_: Path) -> Any:
        X, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
        return X, y if label is None else (y == label).astype(int)

    return load


def diabetes(_: Path) -> Any:
    X, y = sklearn.datasets.load_diabetes(return_X_y=True)
    return X, (y > np.quantile(y, 0.75)).astype(int)


def whole(name: str, *keys: str) -> Callable[[Path], list[Any]]:
    """Both parts of a file, for other splits than its own."""

    def load(place: Path) -> list[Any]:
        parts = np.load(place / f"{name}.npz")
        return [np.concatenate([parts[f"{k}_train"], parts[f"{k}_test"]]) for k in keys]

    return load


def a9a(place: Path) -> Any:
    X, y = whole("a9a", "x", "y")(place)
    return X.astype(float), y.astype(int)


def tox21(task: int) -> Callable[[Path], Any]:
    def load(place: Path) -> Any:
        X, y = whole("tox21", "x", "y")(place)
        known = y[:, task] >= 0
        return np.unpackbits(X[known], axis=1).astype(float), y[known, task].astype(int)

    return load


def survival(name: str) -> Callable[[Path], Any]:
    def load(place: Path) -> Any:
        X, times, events = whole(f"surv_{name}", "x", "t", "e")(place)
        return X.astype(float), np.column_stack([times, events]).astype(float)

    return load


def rossi(_: Path) -> Any:
    from lifelines.datasets import load_rossi

    frame = load_rossi().to_numpy(dtype=float)
    return frame[:, 2:], frame[:, :2]


def whas500(_: Path) -> Any:
    from sksurv.datasets import load_whas500

    X, y = load_whas500()
    return X.to_numpy(dtype=float), np.column_stack([y["lenfol"], y["fstat"]]).astype(float)


def ranking(place: Path) -> Any:
    X, y, lengths = whole("lgb_lambdarank", "x", "y", "q")(place)
    return X.astype(float), y.astype(int), np.repeat(np.arange(len(lengths)), lengths)


CLASSES = {
    "iris": embedded("iris"),
    "wine": embedded("wine"),
    "breast cancer": embedded("breast_cancer"),
    "digits": embedded("digits"),
    "digits, 8": embedded("digits", 8),
    "diabetes, upper quarter": diabetes,
    "a9a": a9a,
    "tox21 NR-AhR": tox21(2),
    "tox21 SR-MMP": tox21(10),
}
SURVIVAL = {
    "metabric": survival("metabric"),
    "gbsg": survival("gbsg"),
    "support": survival("support"),
    "rossi": rossi,
    "whas500": whas500,
}
RANKING = {"lambdarank": ranking}


def timed(fit: Callable[[], Any]) -> tuple[Any, float]:
    started = time.process_time()
    model = fit()
    return model, time.process_time() - started


def classification(data: Any, seed: int) -> dict[str, Any]:
    """AUC and AP of every classifier; of ours, each has its own metric."""
    from lightgbm import LGBMClassifier

    X, y = data
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
    ours = {"AUC": AUCClassifier, "AP": APClassifier}
    models: dict[str, Any] = {
        (name, metric): make(hidden, random_state=seed)
        for name, hidden in HIDDEN.items()
        for metric, make in ours.items()
    } | {
        "LR": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "HistGradientBoosting": HistGradientBoostingClassifier(random_state=seed),
        "LightGBM": LGBMClassifier(random_state=seed, n_jobs=1, verbose=-1),
    }
    found = {}
    for name, model in models.items():
        fitted, seconds = timed(lambda model=model: model.fit(X, y))
        chances = fitted.predict_proba(X_test)
        columns = range(1, 2) if chances.shape[1] == 2 else range(chances.shape[1])
        found[name] = {
            metric: fmean(of(y_test == k, chances[:, k]) for k in columns)
            for metric, of in METRICS.items()
        } | {"seconds": seconds}
    return {
        metric: {
            name if isinstance(name, str) else name[0]: (values[metric], values["seconds"])
            for name, values in found.items()
            if isinstance(name, str) or name[1] == metric
        }
        for metric in METRICS
    }


def concordance(data: Any, seed: int) -> dict[str, Any]:
    """Harrell's C, by lifelines, of Cox regressions."""
    import pandas as pd
    from lifelines import CoxPHFitter
    from lifelines.utils import concordance_index
    from sksurv.linear_model import CoxPHSurvivalAnalysis

    X, y = data
    X, X_test, y, y_test = train_test_split(
        X, y, test_size=0.3, random_state=seed, stratify=y[:, 1]
    )
    pairs = list(zip(y[:, 1] == 1, y[:, 0], strict=True))
    fields = np.array(pairs, dtype=[("event", bool), ("time", float)])
    table, test = (
        pd.DataFrame(part, columns=[f"x{k}" for k in range(X.shape[1])]) for part in (X, X_test)
    )
    table = table.assign(t=y[:, 0], e=y[:, 1])
    fits: dict[str, Callable[[], Any]] = {
        name: lambda hidden=hidden: CoxRegressor(hidden, random_state=seed).fit(X, y).predict
        for name, hidden in HIDDEN.items()
    } | {
        "lifelines": lambda: CoxPHFitter().fit(table, "t", "e").predict_log_partial_hazard,
        "scikit-survival": lambda: CoxPHSurvivalAnalysis(ties="efron").fit(X, fields).predict,
    }
    found = {}
    for name, fit in fits.items():
        predict, seconds = timed(fit)
        risk = np.asarray(predict(test if name == "lifelines" else X_test))
        found[name] = (concordance_index(y_test[:, 0], -risk, y_test[:, 1]), seconds)
    return {"C": found}


def gain(data: Any, seed: int) -> dict[str, Any]:
    """NDCG at 10, by scikit-learn."""
    from lightgbm import LGBMRanker

    X, y, qid = data
    (rows, rest), *_ = GroupShuffleSplit(1, test_size=0.3, random_state=seed).split(X, y, qid)

    def lambdarank() -> Any:
        lengths = np.unique(qid[rows], return_counts=True)[1]
        model = LGBMRanker(random_state=seed, n_jobs=1, verbose=-1)
        return model.fit(X[rows], y[rows], group=lengths).predict

    pointwise = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    fits: dict[str, Callable[[], Any]] = {
        name: lambda hidden=hidden: (
            Ranker(hidden, top_k=10, random_state=seed).fit(X[rows], y[rows], qid=qid[rows]).predict
        )
        for name, hidden in HIDDEN.items()
    } | {
        "LR": lambda: pointwise.fit(X[rows], y[rows] > 0).decision_function,
        "LightGBM": lambdarank,
    }
    found = {}
    for name, fit in fits.items():
        predict, seconds = timed(fit)
        scores = predict(X[rest])
        lists = [qid[rest] == q for q in np.unique(qid[rest])]
        values = [
            ndcg_score([2.0 ** y[rest][one] - 1], [scores[one]], k=10)
            for one in lists
            if one.sum() > 1 and y[rest][one].any()
        ]
        found[name] = (fmean(values), seconds)
    return {"NDCG": found}


KINDS = ((classification, CLASSES), (concordance, SURVIVAL), (gain, RANKING))


def verdict(ours: list[float], theirs: list[float]) -> str:
    """Beyond two standard errors of the mean of the paired differences."""
    gaps = [a - b for a, b in zip(ours, theirs, strict=True)]
    bound = 2 * stdev(gaps) / len(gaps) ** 0.5
    mean = fmean(gaps)
    return "tie" if abs(mean) <= max(bound, 1e-9) else "win" if mean > 0 else "loss"


def table(results: dict[str, Any]) -> str:
    """A table for each metric, and how often each rival is beaten.

    The words beside a rival are of the linear model; beside the network, against the first rival.
    """
    text = ""
    for metric in ("AUC", "AP", "C", "NDCG"):
        rows: dict[str, dict[str, list[tuple[float, float]]]] = {}
        for key, found in results.items():
            name = key.rsplit(" ", 1)[0]
            for model, pair in found.get(metric, {}).items():
                rows.setdefault(name, {}).setdefault(model, []).append(pair)
        if not rows:
            continue
        models = list(next(iter(rows.values())))
        rivals = [model for model in models if model not in HIDDEN]
        counts = {(own, rival): Counter() for own in HIDDEN for rival in rivals}
        text += f"\n**{metric}**\n\n| | splits | {' | '.join(models)} |\n|---|"
        text += "---|" * (1 + len(models)) + "\n"
        for name, found in rows.items():
            values = {model: [value for value, _ in found[model]] for model in models}
            words = {pair: verdict(*(values[model] for model in pair)) for pair in counts}
            for pair, word in words.items():
                counts[pair][word] += 1
            cells = []
            for model in models:
                seconds = fmean(spent for _, spent in found[model])
                pair = ("fcco", model) if model in rivals else (model, rivals[0])
                word = "tie" if model == "fcco" else words[pair]
                told = word if model in rivals else f"{word} against {rivals[0]}"
                cell = f"{fmean(values[model]):.4f} ({seconds:.2g} s)"
                cells.append(cell if word == "tie" else f"{cell} {told}")
            text += f"| {name} | {len(values['fcco'])} | {' | '.join(cells)} |\n"
        for own in HIDDEN:
            told = [
                " / ".join(str(counts[own, rival][word]) for word in ("win", "tie", "loss"))
                if rival in rivals
                else ""
                for rival in models
            ]
            text += f"| win / tie / loss of {own} | | {' | '.join(told)} |\n"
    return text.lstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", help="only these data sets, by name")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    store = given.output / "splits.json"
    results = json.loads(store.read_text()) if store.exists() else {}
    warnings.simplefilter("ignore")  # of the rivals: convergence, names of features
    for seed in range(SPLITS):  # the first splits of every set come first
        for measure, sets in KINDS:
            for name, load in sets.items():
                if (given.sets and name not in given.sets) or f"{name} {seed}" in results:
                    continue
                data = load(given.data_dir)
                results[f"{name} {seed}"] = measure(data, seed)
                store.write_text(json.dumps(results, indent=1) + "\n")
                print(name, seed, flush=True)
    (given.output / "table.md").write_text(table(results))


if __name__ == "__main__":
    main()
