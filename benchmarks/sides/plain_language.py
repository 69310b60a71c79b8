"""The plain PyTorch side of the language model: nn.LSTM and cross-entropy on the same padded batches.

Run as ``python -m benchmarks.sides.plain_language BATCHES UPDATE``, UPDATE being "fused" or "foreach".
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from ..corpus import (
    BUCKETS,
    LAYERS,
    LEARNING_RATE,
    MOMENTUM,
    PADDING,
    VOCABULARY,
    WIDTH,
    first_weights,
    padded,
)
from .serve import Clock, limit_threads, rss_mb, serve

__all__ = ["LanguageModel", "Trainer", "prepare"]


class LanguageModel(nn.Module):
    """Embedding, LSTM and scores of the next word."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, LAYERS, batch_first=True)
        self.scores = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return scores, (N * T, VOCABULARY)."""
        hidden, _ = self.lstm(self.embed(words))
        return self.scores(hidden.reshape(-1, WIDTH))


def symbol_name(name: str) -> str:
    """Return the name that the symbol gives a parameter."""
    if not name.startswith("lstm."):
        return name.replace(".", "_")
    kind, part, layer = name.removeprefix("lstm.").split("_")
    return f"lstm_{layer}_{'i2h' if part == 'ih' else 'h2h'}_{kind}"


class Trainer:
    """The network, its optimizer and data.

    Args:
        batches: batches in each bucket.
        update: "fused" or "foreach" SGD.
    """

    def __init__(self, batches: int, update: str) -> None:
        self.batches = {
            bucket: [(torch.from_numpy(x), torch.from_numpy(y.ravel())) for x, y in pairs]
            for bucket, pairs in padded(batches).items()
        }
        self.update = update

    def start(self) -> None:
        """Make network and optimizer."""
        self.net = LanguageModel()
        values = first_weights()
        with torch.no_grad():
            for name, value in self.net.named_parameters():
                value.copy_(torch.from_numpy(values[symbol_name(name)]))
        self.optimizer = torch.optim.SGD(
            self.net.parameters(), LEARNING_RATE, MOMENTUM, **{self.update: True}
        )

    def train(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Make one step and return the loss before it."""
        words, following = batch
        loss = F.cross_entropy(self.net(words), following, ignore_index=PADDING)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def step(self, bucket: int, count: int) -> dict[str, float]:
        """Return the time of a step of one bucket; a first one is not timed."""
        self.train(self.batches[bucket][0])
        clock = Clock()
        for number in range(count):
            self.train(self.batches[bucket][number % len(self.batches[bucket])])
        return clock.read(count)

    def fit(self) -> dict[str, float]:
        """Train one epoch of all buckets in random order, keep the perplexity, and return the time of a batch."""
        clock = Clock()
        every = [batch for part in self.batches.values() for batch in part]
        total, words = torch.zeros(()), torch.zeros((), dtype=torch.int64)
        for number in torch.randperm(len(every)).tolist():
            loss = self.train(every[number])
            count = (every[number][1] != PADDING).sum()
            total += loss * count
            words += count
        (total / words).exp().item()
        return clock.read(len(every))

    def check(self, path: str) -> list[float]:
        """Train on each bucket's first batch, save the parameters, and return each batch's loss before its update."""
        losses = [self.train(self.batches[bucket][0]).item() for bucket in BUCKETS]
        np.savez(path, **{symbol_name(k): v.detach().numpy() for k, v in self.net.named_parameters()})
        return losses

    def visit(self, order: list[int], rounds: int) -> dict[str, float]:
        """Train on two batches of each bucket in turn, and return the memory after that, in MB."""
        self.start()
        for _ in range(rounds):
            for bucket in order:
                for batch in self.batches[bucket][:2]:
                    self.train(batch)
        return {"after": rss_mb()}


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    limit_threads(torch)
    trainer = Trainer(int(sys.argv[1]), sys.argv[2])
    return {name: getattr(trainer, name) for name in ("start", "check", "step", "fit", "visit")}


if __name__ == "__main__":
    serve(prepare)
