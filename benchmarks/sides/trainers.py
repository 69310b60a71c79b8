"""Trainers above PyTorch: the MLP under Lightning or Accelerate, with one logged metric a batch and all else off.

Run as ``python -m benchmarks.sides.trainers NAME BATCHES FEED``, NAME being "lightning" or "accelerate" and FEED
"slices" or "DataLoader", with an interpreter that has the package.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from ..workloads import LEARNING_RATE, MOMENTUM, WORKLOADS, examples
from .plain_networks import NETWORKS, fill
from .serve import Clock, requests

__all__ = ["accelerate", "lightning", "main"]

BATCH_SIZE = WORKLOADS["mlp"].batch_size


class Slices:
    """Batches cut from tensors; trainers take any iterable, but a list would count as several loaders."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self._x, self._y = x, y

    def __len__(self) -> int:
        return len(self._y) // BATCH_SIZE

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for start in range(0, len(self._y), BATCH_SIZE):
            yield self._x[start : start + BATCH_SIZE], self._y[start : start + BATCH_SIZE]


def feed(batches: int, kind: str) -> Any:
    """Return the data as a DataLoader, or as slices."""
    images, classes = examples(WORKLOADS["mlp"], batches)
    x, y = torch.from_numpy(images), torch.from_numpy(classes)
    return DataLoader(TensorDataset(x, y), BATCH_SIZE) if kind == "DataLoader" else Slices(x, y)


def network() -> torch.nn.Module:
    """Return the MLP with its first weights."""
    return fill(NETWORKS["mlp"](WORKLOADS["mlp"].classes))


def sgd(net: torch.nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of the other sides."""
    return torch.optim.SGD(net.parameters(), LEARNING_RATE, MOMENTUM, fused=True)


def hits(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the accuracy of a batch."""
    return (scores.detach().argmax(1) == labels).float().mean()


def lightning(batches: int, kind: str) -> None:
    """Train under `lightning.Trainer`; each epoch waits for a request and answers with its time."""
    pl = importlib.import_module("lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    asked = requests()

    class Classifier(pl.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def training_step(self, batch: Any, number: int) -> torch.Tensor:
            x, y = batch
            scores = self.net(x)
            self.log("accuracy", hits(scores, y), on_step=False, on_epoch=True)
            return F.cross_entropy(scores, y)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return sgd(self)

    class Rounds(pl.Callback):  # type: ignore[misc, name-defined]
        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            request = next(asked, None)
            if request is None:
                sys.exit(0)
            self.send, self.clock = request[1], Clock()

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            self.send(self.clock.read(batches))

    trainer = pl.Trainer(
        max_epochs=1_000_000,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Rounds()],
    )
    trainer.fit(Classifier(), feed(batches, kind))


def accelerate(batches: int, kind: str) -> None:
    """Train by the loop of Accelerate's manual, with its trackers' `log` given the accuracy of every batch."""
    package = importlib.import_module("accelerate")
    tracking = importlib.import_module("accelerate.tracking")

    class Sums(tracking.GeneralTracker):  # type: ignore[misc, name-defined]
        """The least a tracker can do: add up."""

        name, requires_logging_directory = "sums", False

        def __init__(self) -> None:
            super().__init__()
            self.total = torch.zeros(())

        @property
        def tracker(self) -> torch.Tensor:
            return self.total

        def log(self, values: Any, step: Any = None, **_: Any) -> None:
            self.total += values["accuracy"]

    asked = requests()
    runner = package.Accelerator(cpu=True, log_with=Sums())
    runner.init_trackers("benchmark")
    net = network()
    net, optimizer, data = runner.prepare(net, sgd(net), feed(batches, kind))
    for _, send in asked:
        clock = Clock()
        for x, y in data:
            scores = net(x)
            loss = F.cross_entropy(scores, y)
            optimizer.zero_grad(set_to_none=True)
            runner.backward(loss)
            optimizer.step()
            runner.log({"accuracy": hits(scores, y)})
        send(clock.read(batches))


def main() -> None:
    """Train until the parent closes the pipe."""
    warnings.simplefilter("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    name, batches, kind = sys.argv[1:]
    {"lightning": lightning, "accelerate": accelerate}[name](int(batches), kind)


if __name__ == "__main__":
    main()
