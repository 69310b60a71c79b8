"""The networks of `benchmarks.networks` as a PyTorch user writes them, with the same names of parameters."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from ..workloads import first_value

__all__ = ["NETWORKS", "fill", "lenet", "mlp", "named_values"]


def mlp(classes: int) -> nn.Module:
    """Return 784-128-64-classes with ReLU."""
    net = nn.Sequential()
    for name, width, size in (("fc1", 784, 128), ("fc2", 128, 64)):
        net.add_module(name, nn.Linear(width, size))
        net.append(nn.ReLU())
    net.add_module("fc3", nn.Linear(64, classes))
    return net


def lenet(classes: int) -> nn.Module:
    """Return LeNet."""
    net = nn.Sequential()
    for name, width, size in (("conv1", 1, 20), ("conv2", 20, 50)):
        net.add_module(name, nn.Conv2d(width, size, 5))
        net.append(nn.Tanh())
        net.append(nn.MaxPool2d(2, 2))
    net.append(nn.Flatten())
    net.add_module("fc1", nn.Linear(800, 500))
    net.append(nn.Tanh())
    net.add_module("fc2", nn.Linear(500, classes))
    return net


class Unit(nn.Module):
    """A residual unit: convolutions of some kernels, the last one not rectified, and a parallel 1x1 convolution.

    Args:
        width: channels that come in.
        sizes: channels of each convolution.
        kernels: kernel of each.
        stride: stride of the first one.
        short: True if there is a parallel convolution.
    """

    def __init__(
        self, width: int, sizes: tuple[int, ...], kernels: tuple[int, ...], stride: int, short: bool
    ) -> None:
        super().__init__()
        self.parts = "abc"[: len(sizes)]
        for part, before, size, kernel in zip(self.parts, (width, *sizes), sizes, kernels):
            step = stride if part == "a" else 1
            self.add_module(part, nn.Conv2d(before, size, kernel, step, kernel // 2, bias=False))
            self.add_module(f"{part}_bn", nn.BatchNorm2d(size))
        self.short: nn.Module | None = None
        if short:
            self.short = nn.Conv2d(width, sizes[-1], 1, stride, bias=False)
            self.short_bn = nn.BatchNorm2d(sizes[-1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return an image batch of the same or half the size."""
        y = x
        for part in self.parts:
            y = getattr(self, f"{part}_bn")(getattr(self, part)(y))
            if part != self.parts[-1]:
                y = F.relu(y)
        if self.short is not None:
            x = self.short_bn(self.short(x))
        return F.relu(x + y)


class ResNet(nn.Module):
    """A residual network.

    Args:
        classes: number of classes.
        sizes: channels of each stage.
        units: residual units of each stage.
        large: True if it has the stem for large images.
        deep: True if units are of three convolutions, the last one four times as wide.
    """

    def __init__(
        self, classes: int, sizes: tuple[int, ...], units: tuple[int, ...], large: bool, deep: bool = False
    ) -> None:
        super().__init__()
        kernel, width = (7, 64) if large else (3, sizes[0])
        self.stem = nn.Conv2d(3, width, kernel, 2 if large else 1, kernel // 2, bias=False)
        self.stem_bn = nn.BatchNorm2d(width)
        self.pool = nn.MaxPool2d(3, 2, 1) if large else nn.Identity()
        self.units = nn.ModuleDict()
        for stage, (size, count) in enumerate(zip(sizes, units, strict=True)):
            inner = (size, size, 4 * size) if deep else (size, size)
            for number in range(count):
                stride = 2 if stage and not number else 1
                short = not number if deep else stride != 1
                kernels = (1, 3, 1) if deep else (3, 3)
                self.units[f"s{stage}u{number}"] = Unit(width, inner, kernels, stride, short)
                width = inner[-1]
        self.fc = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores."""
        x = self.pool(F.relu(self.stem_bn(self.stem(x))))
        for unit in self.units.values():
            x = unit(x)
        return self.fc(x.mean((2, 3)))


class Tagger(nn.Module):
    """An LSTM of 16 units that names a class at every step."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.lstm, self.fc = nn.LSTM(16, 16, batch_first=True), nn.Linear(16, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores, (N * T, classes)."""
        return self.fc(self.lstm(x)[0].reshape(-1, 16))


NETWORKS = {
    "mlp": mlp,
    "lenet": lenet,
    "resnet20": lambda classes: ResNet(classes, (16, 32, 64), (3, 3, 3), large=False),
    "resnet18": lambda classes: ResNet(classes, (64, 128, 256, 512), (2, 2, 2, 2), large=True),
    "resnet50": lambda classes: ResNet(classes, (64, 128, 256, 512), (3, 4, 6, 3), large=True, deep=True),
    "lstm": Tagger,
}


def named_values(net: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and running means and variances under the names that the symbol gives them."""
    found = {}
    for path, value in (*net.named_parameters(), *net.named_buffers()):
        module, _, own = path.removeprefix("units.").rpartition(".")
        name = module.replace(".", "_")
        if name == "lstm":
            kind, part, layer = own.split("_")
            found[f"lstm_{layer}_{'i2h' if part == 'ih' else 'h2h'}_{kind}"] = value
        elif not module.endswith("_bn"):
            found[f"{name}_{own}"] = value
        elif own in _NORMALISATION:
            found[f"{name}_{_NORMALISATION[own]}"] = value
    return found


_NORMALISATION = {
    "weight": "gamma",
    "bias": "beta",
    "running_mean": "moving_mean",
    "running_var": "moving_var",
}


def fill(net: nn.Module) -> nn.Module:
    """Give a network the first weights."""
    with torch.no_grad():
        for name, value in named_values(net).items():
            value.copy_(torch.from_numpy(first_value(name, value.shape)))
    return net
