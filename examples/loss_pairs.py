"""Sentence pairs: contrastive training of a small text encoder with batches of 8.

Made-up questions and answers about 60 topics. An in-batch loss compares a question with the 7 other
answers of its batch; the table compares it with all answers it has met.

pip install fcco
python examples/loss_pairs.py [--quick]
"""

import sys

import torch
from torch.nn.functional import cross_entropy, normalize
from torch.utils.data import DataLoader, TensorDataset

import fcco

epochs, seeds = (3, 1) if "--quick" in sys.argv else (40, 5)
PAIRS, TOPICS, WORDS, LENGTH = 800, 60, 400, 8


def sentences(topic, words):
    """Half of the words of a sentence are its topic's own five, the others are any."""
    own = words * TOPICS * 5 + topic.unsqueeze(1) * 5 + torch.randint(5, (len(topic), LENGTH))
    other = torch.randint(WORDS, (len(topic), LENGTH)) + 2 * TOPICS * 5
    return own.where(torch.rand(len(topic), LENGTH) < 0.5, other)


class Encoder(torch.nn.Module):
    """The mean of the words' embeddings, and a layer on it."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.EmbeddingBag(2 * TOPICS * 5 + WORDS, 32)
        self.layer = torch.nn.Linear(32, 32)

    def forward(self, tokens):
        return self.layer(self.words(tokens))


def recall(encoder, questions, answers, topic):
    """How often the nearest answer is about the question's topic."""
    with torch.no_grad():
        a, b = (normalize(encoder(part), dim=1) for part in (questions, answers))
    return (topic[(a @ b.T).argmax(1)] == topic).float().mean().item()


def in_batch(first, second, index):
    """InfoNCE, both ways."""
    logits = normalize(first, dim=1) @ normalize(second, dim=1).T / 0.1
    own = torch.arange(len(index))
    return 0.1 * (cross_entropy(logits, own) + cross_entropy(logits.T, own)) / 2


def train(how, seed):
    torch.manual_seed(seed)
    topic = torch.randint(TOPICS, (2 * PAIRS,))
    questions, answers = sentences(topic, 0), sentences(topic, 1)
    encoder = Encoder()
    criterion = fcco.losses.ContrastiveLoss(PAIRS, temperature=0.1, beta=0.5)
    criterion = in_batch if how == "in-batch" else criterion
    opt = torch.optim.AdamW(encoder.parameters(), lr=3e-3)
    data = fcco.data.WithIndex(TensorDataset(questions[:PAIRS], answers[:PAIRS]))
    for _ in range(0 if how == "untrained" else epochs):
        for first, second, index in DataLoader(data, batch_size=8, shuffle=True):
            loss = criterion(encoder(first), encoder(second), index)
            opt.zero_grad()
            loss.backward()
            opt.step()
    test = slice(PAIRS, None)
    return 1 - recall(encoder, questions[test], answers[test], topic[test])


for how in ("untrained", "in-batch", "table"):
    found = torch.tensor([train(how, seed) for seed in range(seeds)])
    spread = f" ± {found.std():.3f}" if seeds > 1 else ""
    print(f"{how:<10} test retrieval error {found.mean():.3f}{spread}")
