"""sentence-transformers: a loss with a table in SentenceTransformerTrainer(loss=...).

Pairs are functions of the standard library and the first lines of their docstrings; the embeddings
are static and start from random ones. The position of a pair is in the column "label", which the
trainer passes to the loss. Batches have 16 pairs.

pip install fcco 'sentence-transformers>=5.7' datasets accelerate
python examples/loss_sentence_transformers.py [--quick]
"""

import importlib
import inspect
import re
import sys
import tempfile

import torch
import transformers
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.losses.gradcache import CachedLossMixin
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

import fcco

MODULES = (
    "argparse ast asyncio calendar cmath codecs collections csv datetime decimal difflib dis email "
    "fractions functools glob gzip heapq html inspect itertools json locale logging math mimetypes "
    "operator os os.path pathlib pickle platform random re shutil signal socket sqlite3 ssl stat "
    "statistics string subprocess sys tarfile tempfile textwrap threading time tokenize traceback "
    "types typing unicodedata unittest urllib.parse uuid warnings weakref xml.dom zipfile zlib"
)


class TableRankingLoss(torch.nn.Module):
    """In place of MultipleNegativesRankingLoss(model), for (anchor, positive) pairs."""

    def __init__(self, model, num_pairs, temperature=0.05):
        super().__init__()
        self.model = model
        # The own pair is among the partners, as in MultipleNegativesRankingLoss.
        self.criterion = fcco.losses.ContrastiveLoss(
            num_pairs, temperature=temperature, eps=1 / (num_pairs - 1)
        )

    def forward(self, sentence_features, labels):
        embeddings = [self.model(part)["sentence_embedding"] for part in sentence_features]
        return self.compute_loss_from_embeddings(embeddings, labels)

    def compute_loss_from_embeddings(self, embeddings, labels):
        if len(embeddings) != 2:
            raise ValueError("explicit negatives are not supported: give anchors and positives")
        first, second = embeddings
        if torch.is_grad_enabled():
            return self.criterion(first, second, labels)
        # Evaluation: the pairs of the batch, compared with one another.
        return self.criterion.objective.on(len(first)).exact(first, second)


class CachedTableRankingLoss(CachedLossMixin, TableRankingLoss):
    """The same with GradCache: large batches in the memory of small ones, for transformers."""

    mini_batch_size = 8
    forward = CachedLossMixin.forward_cached

    def calculate_loss(self, reps, labels=None, *, with_backward=False):
        loss = self.compute_loss_from_embeddings([torch.cat(part) for part in reps], labels)
        if with_backward:
            loss.backward()
        return loss.detach() if with_backward else loss


def pairs():
    """(name of a function, first line of its docstring), each name and each line once."""
    found = {}
    for module in map(importlib.import_module, MODULES.split()):
        for name, thing in inspect.getmembers(module, inspect.isroutine):
            line = (inspect.getdoc(thing) or "").partition("\n")[0]
            if not name.startswith("_") and len(line.split()) > 3:
                found.setdefault(line, f"{module.__name__} {name}".replace("_", " "))
    return sorted({name: line for line, name in found.items()}.items())


def error(model, names, lines):
    """How often the nearest of all lines is not the function's own."""
    a, b = (model.encode(list(part), convert_to_tensor=True) for part in (names, lines))
    a, b = (torch.nn.functional.normalize(part, dim=1) for part in (a, b))
    return ((a @ b.T).argmax(1) != torch.arange(len(a))).float().mean().item()


transformers.logging.set_verbosity_error()
torch.manual_seed(0)
data = pairs()
order = torch.randperm(len(data)).tolist()
test, train = ([data[i] for i in part] for part in (order[:200], order[200:]))
words = set(re.findall(r"\w+", " ".join(map(" ".join, data))))
tokenizer = Tokenizer(models.WordLevel({w: k for k, w in enumerate(["?", *sorted(words)])}, "?"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=64)], device="cpu")
dataset = Dataset.from_dict({"anchor": [a for a, _ in train], "positive": [b for _, b in train]})
dataset = dataset.map(lambda _, i: {"label": i}, with_indices=True)
loss = TableRankingLoss(model, len(dataset))
print(f"step 0: test error {error(model, *zip(*test, strict=True)):.4f}")
with tempfile.TemporaryDirectory() as directory:
    arguments = SentenceTransformerTrainingArguments(
        directory,
        num_train_epochs=2 if "--quick" in sys.argv else 20,
        per_device_train_batch_size=16,
        dataloader_drop_last=True,  # a single pair would have nothing to be compared with
        learning_rate=2e-2,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = SentenceTransformerTrainer(model, arguments, train_dataset=dataset, loss=loss)
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
print(f"step {trainer.state.global_step}: test error {error(model, *zip(*test, strict=True)):.4f}")
