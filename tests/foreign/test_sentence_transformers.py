"""The adapter of the example, in sentence-transformers' own classes; where that is installed."""

import ast
import copy
import warnings
from pathlib import Path

import pytest
import torch

from fcco import losses as L

pytest.importorskip("datasets")
pytest.importorskip("sentence_transformers")

EXAMPLE = Path(__file__).parents[2] / "examples" / "loss_sentence_transformers.py"
SENTENCES = [
    ["add two numbers", "close a file", "sort a list", "read all lines", "open a socket"],
    ["the sum of both", "nothing can be read", "items in order", "a list of str", "a connection"],
]
N = len(SENTENCES[0])


@pytest.fixture(scope="module")
def example():
    """The imports and the classes of the example, without its program."""
    tree = ast.parse(EXAMPLE.read_text())
    kinds = (ast.Import, ast.ImportFrom, ast.ClassDef)
    tree.body = [node for node in tree.body if isinstance(node, kinds)]
    names = {"__name__": "example"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of imports
        exec(compile(tree, str(EXAMPLE), "exec"), names)
    return names


@pytest.fixture(scope="module")
def model(example, tmp_path_factory):
    """A tiny random BERT, with dropout."""
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = sorted({word for column in SENTENCES for line in column for word in line.split()})
    vocabulary = {word: k for k, word in enumerate(["[PAD]", "[UNK]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    directory = str(tmp_path_factory.mktemp("bert"))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=16
    )
    fast.save_pretrained(directory)
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    bert = BertModel(BertConfig(vocab_size=len(vocabulary), intermediate_size=16, **shape))
    bert.save_pretrained(directory)
    parts = [Transformer(directory), Pooling(16)]
    return example["SentenceTransformer"](modules=parts, device="cpu")


def features(model):
    return [model.preprocess(column) for column in SENTENCES]


def outcome(loss, model, seed=0):
    """The value of a call, the gradients and the table."""
    model.zero_grad()
    torch.manual_seed(seed)
    value = loss(features(model), torch.arange(N))
    value.backward()
    grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return value.detach(), grads, loss.criterion.table.rows.clone()


@pytest.mark.parametrize("size", [1, 2, N])
def test_with_grad_cache_it_is_the_same_loss(example, model, size):
    model.eval()  # dropout draws other masks for mini-batches
    plain = example["TableRankingLoss"](model, 9)
    cached = example["CachedTableRankingLoss"](model, 9)
    cached.mini_batch_size = size
    for step in range(2):  # the second time rows are remembered
        first, second = outcome(plain, model, step), outcome(cached, model, step)
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-6)
    assert plain.criterion.table.visited.sum() == 2 * N


def test_evaluation_compares_the_batch_and_leaves_the_table_alone(example, model):
    loss = example["TableRankingLoss"](model, 9)
    outcome(loss, model)
    before = copy.deepcopy(loss.criterion.state_dict())
    model.eval()
    with torch.no_grad():  # as the trainer does; positions of another set may be any
        found = loss(features(model), torch.arange(N) + 100)
        views = [model(part)["sentence_embedding"] for part in features(model)]
    expected = L.ContrastiveLoss(N, temperature=0.05).exact(*views)
    torch.testing.assert_close(found, expected)
    assert all(before[key].equal(value) for key, value in loss.criterion.state_dict().items())
