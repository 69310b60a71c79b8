"""The plain PyTorch side: the same networks and loops without any framework, in every variant a careful user tries.

Run as ``python -m benchmarks.sides.plain WORKLOAD BATCHES``; a request names a variant as "LAYOUT/UPDATE/FEED".
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from ..workloads import LEARNING_RATE, MOMENTUM, WORKLOADS, examples
from .plain_networks import NETWORKS, fill, named_values
from .serve import Clock, limit_threads, serve

__all__ = ["Plain", "prepare"]


class Plain:
    """One variant of the loop.

    Args:
        workload: name of the workload.
        batches: batches in an epoch.
        variant: "LAYOUT/UPDATE/FEED": "NCHW" or "channels_last", to which data and weights are brought beforehand;
            "foreach" or "fused" SGD; "slices" of a tensor, or a "DataLoader".
    """

    def __init__(self, workload: str, batches: int, variant: str) -> None:
        layout, update, feed = variant.split("/")
        self.workload, self.count = WORKLOADS[workload], batches
        images, classes = examples(self.workload, batches)
        self.x, self.y = torch.from_numpy(images), torch.from_numpy(classes)
        self.net = fill(NETWORKS[self.workload.network](self.workload.classes))
        if layout == "channels_last":
            self.x = self.x.contiguous(memory_format=torch.channels_last)
            self.net = self.net.to(memory_format=torch.channels_last)
        # the symbol's loss adds over steps, cross_entropy takes their mean
        rate = LEARNING_RATE * math.prod(self.workload.labels)
        self.optimizer = torch.optim.SGD(self.net.parameters(), rate, MOMENTUM, **{update: True})
        self._compiled: Any = None
        self.loader: Any = None
        if feed == "DataLoader":
            self.loader = DataLoader(TensorDataset(self.x, self.y), self.workload.batch_size)

    def batches(self) -> Iterator[Any]:
        """Yield (images, classes) once through."""
        if self.loader is not None:
            yield from self.loader
            return
        size = self.workload.batch_size
        for start in range(0, len(self.y), size):
            yield self.x[start : start + size], self.y[start : start + size]

    def train(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Train on a batch; return its scores, labels and loss."""
        scores, labels = self.net(x), y.reshape(-1)
        loss = F.cross_entropy(scores, labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return scores.detach(), labels, loss

    def fit(self, metric: bool = True) -> dict[str, float]:
        """Train on every batch; with the metric, count hits on the device and read the number at the end."""
        clock = Clock()
        hits = torch.zeros((), dtype=torch.int64)
        for x, y in self.batches():
            scores, labels, _ = self.train(x, y)
            if metric:
                hits += (scores.argmax(1) == labels).sum()
        hits.item()
        return clock.read(self.count)

    def step(self) -> dict[str, float]:
        """Return the time of a step on one batch, over as many as an epoch has."""
        x, y = next(self.batches())
        clock = Clock()
        for _ in range(self.count):
            self.train(x, y)
        self.net.zero_grad()
        return clock.read(self.count)

    def predict(self, backend: str = "") -> dict[str, float]:
        """Predict every batch and put the results together.

        Args:
            backend: of `torch.compile`, which makes the network at the first call; "" = it runs as it is.
        """
        clock = Clock()
        self.predictions(self.count, backend).sum().item()
        return clock.read(self.count)

    def predictions(self, count: int, backend: str = "") -> torch.Tensor:
        """Return the probabilities for the first batches."""
        net = self.compiled(backend) if backend else self.net
        self.net.eval()
        with torch.inference_mode():
            few = itertools.islice(self.batches(), count)
            found = torch.cat([torch.softmax(net(x), 1) for x, _ in few])
        self.net.train()
        return found

    def compiled(self, backend: str) -> Any:
        """Return the network as `torch.compile` runs it."""
        if self._compiled is None:
            self._compiled = torch.compile(self.net, backend=backend, dynamic=False)
        return self._compiled

    def apart(self, backend: str) -> float:
        """Return the difference of the compiled network's first predictions from the original ones."""
        own, compiled = self.predictions(1), self.predictions(1, backend)
        return float((own - compiled).abs().max())

    def check(self, path: str) -> list[float]:
        """Predict, then train on the first batches; save predictions and parameters, return losses before updates."""
        checked = self.workload.checked
        saved = {"predictions": self.predictions(max(1, checked)).numpy()}
        losses = [self.train(x, y)[2].item() for x, y in itertools.islice(self.batches(), checked)]
        if checked:
            values = named_values(self.net).items()
            saved.update({k: v.detach().numpy() for k, v in values if "_moving_" not in k})
        np.savez(path, **saved)
        return losses


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make; every request names its variant."""
    limit_threads(torch)
    workload, batches = sys.argv[1], int(sys.argv[2])
    made: dict[str, Plain] = {}

    def ask(what: str) -> Any:
        def answer(variant: str, **options: Any) -> Any:
            if variant not in made:
                made[variant] = Plain(workload, batches, variant)
            return getattr(made[variant], what)(**options)

        return answer

    return {what: ask(what) for what in ("check", "fit", "predict", "apart", "step")}


if __name__ == "__main__":
    serve(prepare)
