"""Lightning's side: the MLP under `lightning.Trainer`, with one logged metric a batch and everything else off.

Run by fit.py as ``lightning_loop.py BATCHES FEED``, with an interpreter that has the package lightning.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import lightning
import torch
import torch.nn.functional as F
from plain import NETWORKS, fill
from side import Clock, requests
from torch.utils.data import DataLoader, TensorDataset
from workloads import BATCH_SIZE, LEARNING_RATE, MOMENTUM, WORKLOADS, examples

__all__ = ["main"]


class Classifier(lightning.LightningModule):
    """The MLP with accuracy as its logged metric."""

    def __init__(self) -> None:
        super().__init__()
        self.net = fill(NETWORKS["mlp"]())

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        """Return a batch's loss."""
        x, y = batch
        scores = self.net(x)
        self.log("accuracy", (scores.detach().argmax(1) == y).float().mean(), on_step=False, on_epoch=True)
        return F.cross_entropy(scores, y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer of the other sides."""
        return torch.optim.SGD(self.parameters(), LEARNING_RATE, MOMENTUM, fused=True)


class Rounds(lightning.Callback):
    """Makes every epoch wait for a request of the parent, and answers with its time."""

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._requests = requests()
        self._clock = Clock()
        self._send: Any = None

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the clock when the parent asks, or end training when it asks no more."""
        request = next(self._requests, None)
        if request is None:
            sys.exit(0)
        self._send = request[1]
        self._clock = Clock()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Send the time of a batch."""
        self._send(self._clock.read(self._batches))


class Slices:
    """Batches cut from tensors; Lightning takes any iterable, but a list would count as several loaders."""

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


def main() -> None:
    """Train until the parent closes the pipe."""
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    batches, kind = int(sys.argv[1]), sys.argv[2]
    trainer = lightning.Trainer(
        max_epochs=1_000_000,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Rounds(batches)],
    )
    trainer.fit(Classifier(), feed(batches, kind))


if __name__ == "__main__":
    main()
