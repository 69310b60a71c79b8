"""Random layers of 24 families in torch, with sizes as real networks have them.

A layer is drawn by a seed and a number, so that every process draws the same one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["FAMILIES", "Function", "describe", "draw"]

Inputs = list[Tensor]
Drawn = tuple[nn.Module, Inputs]
"""A layer and its inputs; the first input may be whole numbers."""


class Function(nn.Module):
    """A function of tensors as a module, with parameters of given shapes after its inputs."""

    def __init__(self, function: Callable[..., Tensor], *shapes: Sequence[int]) -> None:
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(shape) * 0.1) for shape in shapes])

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs, *self.weights)


class Draw:
    """Draws layers.

    Args:
        generator: source of the random choices.
    """

    def __init__(self, generator: random.Random) -> None:
        self._pick = generator.choice

    def _image(self, channels: Sequence[int]) -> tuple[int, int, int]:
        """Return batch, channels and side of images of at most 3.2 million numbers."""
        while True:
            batch, count = self._pick((1, 1, 2, 8, 16, 32)), self._pick(channels)
            side = self._pick((7, 14, 28, 28, 56, 112, 15, 33))
            if batch * count * side * side <= 3_200_000:
                return batch, count, side

    def _convolution(self, channels: Sequence[int], kernels: Sequence[int], **more: Any) -> Drawn:
        while True:
            batch, count, side = self._image(channels)
            kernel, filters = self._pick(kernels), self._pick((8, 16, 24, 32, 64, 96, 128, 256))
            stride, dilation = self._pick((1, 1, 2)), more.get("dilation", 1)
            if batch * side * side * count * filters * kernel * kernel <= 4_000_000_000 * stride * stride:
                pad = dilation * (kernel // 2)
                bias = self._pick((True, False))
                net = nn.Conv2d(count, filters, kernel, stride, pad, dilation, bias=bias)
                return net, [torch.randn(batch, count, side, side)]

    def pointwise(self) -> Drawn:
        return self._convolution((16, 24, 32, 64, 96, 128, 256, 512), (1,))

    def convolution(self) -> Drawn:
        return self._convolution((16, 32, 48, 64, 128, 256), (3,))

    def large_convolution(self) -> Drawn:
        return self._convolution((8, 16, 32, 64), (5, 7))

    def first_convolution(self) -> Drawn:
        return self._convolution((1, 2, 3), (1, 3, 5, 7))

    def dilated_convolution(self) -> Drawn:
        return self._convolution((16, 32, 64), (3,), dilation=2)

    def depthwise(self) -> Drawn:
        batch, count, side = self._image((16, 32, 64, 96, 128, 240, 512))
        kernel, stride = self._pick((3, 3, 5)), self._pick((1, 1, 2))
        net = nn.Conv2d(
            count, count, kernel, stride, kernel // 2, groups=count, bias=self._pick((True, False))
        )
        return net, [torch.randn(batch, count, side, side)]

    def grouped_convolution(self) -> Drawn:
        batch, count, side = self._image((32, 64, 128, 256))
        net = nn.Conv2d(count, count, 3, 1, 1, groups=self._pick((2, 4, 8, 32)), bias=False)
        return net, [torch.randn(batch, count, side, side)]

    def deconvolution(self) -> Drawn:
        batch, side = self._pick((1, 2, 8)), self._pick((4, 8, 14, 16, 28))
        net = nn.ConvTranspose2d(self._pick((16, 64, 128)), self._pick((3, 16, 32, 64)), 4, 2, 1)
        return net, [torch.randn(batch, net.in_channels, side, side)]

    def convolution_1d(self) -> Drawn:
        net = nn.Conv1d(self._pick((16, 50, 128, 300)), self._pick((32, 64, 100)), self._pick((3, 4, 5)))
        return net, [torch.randn(self._pick((1, 8, 64)), net.in_channels, self._pick((32, 50, 128)))]

    def linear(self) -> Drawn:
        net = nn.Linear(
            self._pick((10, 64, 128, 512, 784, 1024, 2048)),
            self._pick((2, 10, 64, 128, 512, 1000, 1024)),
            self._pick((True, False)),
        )
        return net, [torch.randn(self._pick((1, 8, 32, 64, 256)), net.in_features)]

    def batch_norm(self) -> Drawn:
        batch, count, side = self._image((16, 32, 64, 128, 256))
        return nn.BatchNorm2d(count), [torch.randn(batch, count, side, side)]

    def layer_norm(self) -> Drawn:
        width = self._pick((64, 256, 512, 768, 1024))
        return nn.LayerNorm(width), [torch.randn(self._pick((1, 8, 32)), self._pick((1, 16, 128)), width)]

    def group_norm(self) -> Drawn:
        batch, count, side = self._image((32, 64, 128))
        return nn.GroupNorm(self._pick((1, 8, count)), count), [torch.randn(batch, count, side, side)]

    def activation(self) -> Drawn:
        kinds = (
            nn.ReLU,
            nn.LeakyReLU,
            nn.ELU,
            nn.GELU,
            nn.Sigmoid,
            nn.Tanh,
            nn.SiLU,
            nn.Hardswish,
            nn.Softplus,
        )
        batch, count, side = self._image((16, 64, 128))
        shape = self._pick(((batch, count, side, side), (batch, count * side)))
        return self._pick(kinds)(), [torch.randn(shape)]

    def max_pool(self) -> Drawn:
        batch, count, side = self._image((16, 32, 64, 128))
        kernel, stride, pad = self._pick(((2, 2, 0), (3, 2, 1), (3, 1, 1), (3, 2, 0)))
        return nn.MaxPool2d(kernel, stride, pad), [torch.randn(batch, count, side, side)]

    def average_pool(self) -> Drawn:
        batch, count, side = self._image((16, 32, 64, 128, 512))
        pool = self._pick((nn.AvgPool2d(2, 2), nn.AvgPool2d(3, 1, 1), nn.AdaptiveAvgPool2d(1)))
        return pool, [torch.randn(batch, count, side, side)]

    def softmax(self) -> Drawn:
        shape = (self._pick((1, 8, 64, 256)), self._pick((1, 8, 32)), self._pick((2, 10, 32, 128, 1000)))
        return self._pick((nn.Softmax(-1), nn.LogSoftmax(-1))), [torch.randn(shape)]

    def reduction(self) -> Drawn:
        axes = self._pick(((2, 3), (1,), (0, 2, 3), (3,)))
        kind = self._pick(
            (
                lambda x: x.mean(axes),
                lambda x: x.sum(axes),
                lambda x: x.amax(axes),
                lambda x: (x * x).sum(axes, keepdim=True),
            )
        )
        batch, count, side = self._image((16, 64, 128))
        return Function(kind), [torch.randn(batch, count, side, side)]

    def transpose(self) -> Drawn:
        order = self._pick(((0, 2, 3, 1), (0, 3, 1, 2), (1, 0, 2, 3), (0, 2, 1, 3)))
        kind = self._pick(
            (
                lambda x: x.permute(order) + 1.0,
                lambda x: torch.relu(x.permute(order)),
                lambda x: x.permute(order) * x.permute(order),
            )
        )
        batch, count, side = self._image((16, 64))
        return Function(kind), [torch.randn(batch, count, side, side)]

    def arithmetic(self) -> Drawn:
        kind = self._pick(
            (
                lambda x, y: x + y,
                lambda x, y: x * y,
                lambda x, y: torch.relu(x + y),
                lambda x, y: torch.maximum(x, y) - y,
                lambda x, y: torch.exp(x) / (1 + y * y),
            )
        )
        batch, count, side = self._image((16, 64, 128))
        data = torch.randn(batch, count, side, side)
        other = self._pick(((batch, count, side, side), (1, count, 1, 1), (batch, 1, side, side)))
        if other[0] != batch:
            return Function(kind, other), [data]
        return Function(kind), [data, torch.randn(other)]

    def concatenation(self) -> Drawn:
        batch, count, side = self._image((16, 32, 64))
        parts = self._pick((2, 2, 3, 4))
        inputs = [torch.randn(batch, count, side, side) for _ in range(parts)]
        return Function(lambda *parts: torch.cat(parts, 1)), inputs

    def embedding(self) -> Drawn:
        net = nn.Embedding(self._pick((100, 5000, 30_000)), self._pick((16, 64, 128, 300)))
        shape = (self._pick((1, 8, 64)), self._pick((1, 8, 35, 128)))
        return net, [torch.randint(0, net.num_embeddings, shape)]

    def product(self) -> Drawn:
        batch, rows, inner, columns = (self._pick(sizes) for sizes in ((1, 8, 32), *[(1, 16, 64, 128)] * 3))
        return Function(torch.matmul), [torch.randn(batch, rows, inner), torch.randn(batch, inner, columns)]

    def recurrent(self) -> Drawn:
        kind = self._pick((nn.LSTM, nn.GRU))
        width, hidden = self._pick((32, 100, 200)), self._pick((32, 64, 128, 200))
        layer = kind(width, hidden)
        net = Function(lambda x: layer(x)[0])
        net.layer = layer
        return net, [torch.randn(self._pick((5, 20, 35)), self._pick((1, 8, 32)), width)]


FAMILIES = tuple(name for name in vars(Draw) if not name.startswith("_"))


def draw(seed: int, number: int) -> tuple[str, nn.Module, Inputs]:
    """Return family, layer and inputs; families take turns.

    Args:
        seed: of the whole run.
        number: of the layer, from 0.
    """
    family = FAMILIES[number % len(FAMILIES)]
    torch.manual_seed(seed * 100_003 + number)
    net, inputs = getattr(Draw(random.Random(f"{seed} {number}")), family)()
    return family, net, inputs


def describe(net: nn.Module, inputs: Inputs) -> str:
    """Return a layer and its sizes on one line."""
    shapes = " ".join("x".join(map(str, each.shape)) for each in inputs)
    name = "" if isinstance(net, Function) else str(net).replace("\n", "")
    return f"{name} {shapes}".strip()
