"""The plain PyTorch side: the same networks and loop without any framework, in every variant a careful user tries.

Run by fit.py as ``plain.py WORKLOAD BATCHES VARIANT``, a process for each variant.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from side import Clock, serve
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from workloads import BATCH_SIZE, LEARNING_RATE, MOMENTUM, WORKLOADS, examples, first_value

__all__ = ["NETWORKS", "fill", "main", "named_values"]


def mlp() -> nn.Module:
    """Return 784-128-64-10 with ReLU."""
    net = nn.Sequential()
    for name, width, size in (("fc1", 784, 128), ("fc2", 128, 64)):
        net.add_module(name, nn.Linear(width, size))
        net.append(nn.ReLU())
    net.add_module("fc3", nn.Linear(64, 10))
    return net


def lenet() -> nn.Module:
    """Return LeNet: two 5x5 convolutions of 20 and 50 filters, each with tanh and max pooling; 500 hidden units."""
    net = nn.Sequential()
    for name, width, size in (("conv1", 1, 20), ("conv2", 20, 50)):
        net.add_module(name, nn.Conv2d(width, size, 5))
        net.append(nn.Tanh())
        net.append(nn.MaxPool2d(2, 2))
    net.append(nn.Flatten())
    net.add_module("fc1", nn.Linear(800, 500))
    net.append(nn.Tanh())
    net.add_module("fc2", nn.Linear(500, 10))
    return net


class Unit(nn.Module):
    """A residual unit of two 3x3 convolutions, with a 1x1 convolution beside them where the size changes."""

    def __init__(self, width: int, size: int, stride: int) -> None:
        super().__init__()
        self.a, self.a_bn = nn.Conv2d(width, size, 3, stride, 1, bias=False), nn.BatchNorm2d(size)
        self.b, self.b_bn = nn.Conv2d(size, size, 3, 1, 1, bias=False), nn.BatchNorm2d(size)
        self.short: nn.Module | None = None
        if stride != 1:
            self.short, self.short_bn = nn.Conv2d(width, size, 1, stride, bias=False), nn.BatchNorm2d(size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return an image batch of the same or half the size."""
        y = F.relu(self.a_bn(self.a(x)))
        y = self.b_bn(self.b(y))
        if self.short is not None:
            x = self.short_bn(self.short(x))
        return F.relu(x + y)


class ResNet20(nn.Module):
    """The residual network of 20 layers for 32x32 images."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stem_bn = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.units = nn.ModuleDict()
        width = 16
        for stage, size in enumerate((16, 32, 64)):
            for unit in range(3):
                self.units[f"s{stage}u{unit}"] = Unit(width, size, 2 if stage and not unit else 1)
                width = size
        self.fc = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores."""
        x = F.relu(self.stem_bn(self.stem(x)))
        for unit in self.units.values():
            x = unit(x)
        return self.fc(x.mean((2, 3)))


NETWORKS = {"mlp": mlp, "lenet": lenet, "resnet20": ResNet20}


def named_values(net: nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters under the names that the symbol gives them."""
    found = {}
    for path, module in net.named_modules():
        name = path.removeprefix("units.").replace(".", "_")
        endings = ("gamma", "beta") if isinstance(module, nn.BatchNorm2d) else ("weight", "bias")
        for ending, own in zip(endings, ("weight", "bias"), strict=True):
            value = module._parameters.get(own)
            if value is not None:
                found[f"{name}_{ending}"] = value
    return found


def fill(net: nn.Module) -> nn.Module:
    """Give a network the first weights."""
    with torch.no_grad():
        for name, value in named_values(net).items():
            value.copy_(torch.from_numpy(first_value(name, value.shape)))
    return net


class Variant:
    """One way of writing the loop.

    Args:
        workload: name of the workload.
        batches: batches in an epoch.
        layout: "NCHW" or "channels_last"; data and weights are brought to it beforehand.
        update: "foreach" or "fused" SGD.
        feed: "slices" of a tensor, or a "DataLoader".
    """

    def __init__(self, workload: str, batches: int, layout: str, update: str, feed: str) -> None:
        images, classes = examples(WORKLOADS[workload], batches)
        self.x, self.y = torch.from_numpy(images), torch.from_numpy(classes)
        self.net = fill(NETWORKS[workload]())
        if layout == "channels_last":
            self.x = self.x.contiguous(memory_format=torch.channels_last)
            self.net = self.net.to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.net.parameters(), LEARNING_RATE, MOMENTUM, **{update: True})
        self.loader = DataLoader(TensorDataset(self.x, self.y), BATCH_SIZE) if feed == "DataLoader" else None

    def batches(self) -> Iterator[Any]:
        """Yield (images, classes) once through."""
        if self.loader is not None:
            yield from self.loader
            return
        for start in range(0, len(self.y), BATCH_SIZE):
            yield self.x[start : start + BATCH_SIZE], self.y[start : start + BATCH_SIZE]

    def epoch(self, metric: bool) -> None:
        """Train on every batch; with the metric, count hits on the device and read the number at the end."""
        net, optimizer = self.net, self.optimizer
        hits = torch.zeros((), dtype=torch.int64)
        for x, y in self.batches():
            scores = net(x)
            loss = F.cross_entropy(scores, y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if metric:
                hits += (scores.detach().argmax(1) == y).sum()
        hits.item()

    def losses(self, count: int) -> list[float]:
        """Train on the first batches and return each one's loss before its update."""
        found = []
        for x, y in itertools.islice(self.batches(), count):
            loss = F.cross_entropy(self.net(x), y)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            found.append(loss.item())
        return found


def main() -> None:
    """Answer the parent's requests."""
    torch.set_num_threads(1)
    workload, batches, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    variant = Variant(workload, batches, *name.split("/"))

    def check(count: int, path: str) -> list[float]:
        losses = variant.losses(count)
        np.savez(path, **{k: v.detach().numpy() for k, v in named_values(variant.net).items()})
        return losses

    def round_(metric: bool) -> dict[str, float]:
        clock = Clock()
        variant.epoch(metric)
        return clock.read(batches)

    serve({"check": check, "round": round_})


if __name__ == "__main__":
    main()
