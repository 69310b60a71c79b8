"""Thirty networks in torch, at the sizes of their papers or smaller ones, which nothing in dpmodule is tuned to.

`NETWORKS` has, by name, a function that makes the network and one that makes the inputs of a batch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["NETWORKS", "Network"]

Network = tuple[Callable[[], nn.Module], Callable[[int], list[Tensor]]]


class Steps(nn.Module):
    """Modules whose results a function combines."""

    def __init__(self, function: Callable[..., Tensor], *parts: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*self.parts, *inputs)


def conv(
    i: int, o: int, k: int = 3, s: int = 1, groups: int = 1, act: nn.Module | None = None, norm: bool = True
) -> nn.Sequential:
    """Return a convolution with normalisation and activation, ReLU by default."""
    layers = [nn.Conv2d(i, o, k, s, k // 2, groups=groups, bias=not norm)]
    return nn.Sequential(*layers, *([nn.BatchNorm2d(o)] if norm else []), nn.ReLU() if act is None else act)


def classifier(width: int, classes: int = 1000) -> nn.Sequential:
    """Return mean over pixels and a dense layer."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def residual(*layers: nn.Module) -> Steps:
    """Return layers whose result is added to their input."""
    return Steps(lambda net, x: x + net(x), nn.Sequential(*layers))


def squeeze_excite(width: int, gate: nn.Module) -> Steps:
    """Return scaling of channels by a function of their means."""
    small = max(8, width // 4)
    layers = (
        nn.AdaptiveAvgPool2d(1),
        nn.Conv2d(width, small, 1),
        nn.ReLU(),
        nn.Conv2d(small, width, 1),
        gate,
    )
    return Steps(lambda net, x: x * net(x), nn.Sequential(*layers))


def inverted(
    i: int, o: int, s: int, grow: int, k: int = 3, act: type[nn.Module] = nn.ReLU6, se: bool = False
) -> nn.Module:
    """Return the block of MobileNet v2, v3 and EfficientNet."""
    wide = i * grow
    layers = [conv(i, wide, 1, act=act()), conv(wide, wide, k, s, wide, act=act())]
    if se:
        layers.append(squeeze_excite(wide, nn.Hardsigmoid() if act is nn.Hardswish else nn.Sigmoid()))
    layers.append(conv(wide, o, 1, act=nn.Identity()))
    return residual(*layers) if s == 1 and i == o else nn.Sequential(*layers)


def mobilenet_v1(scale: float) -> nn.Module:
    sizes = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    i, layers = int(32 * scale), [conv(3, int(32 * scale), 3, 2)]
    for width, s in sizes:
        o = int(width * scale)
        layers += [conv(i, i, 3, s, i), conv(i, o, 1)]
        i = o
    return nn.Sequential(*layers, classifier(i))


def mobilenet_v2() -> nn.Module:
    i, layers = 32, [conv(3, 32, 3, 2, act=nn.ReLU6()), inverted(32, 16, 1, 1)]
    i = 16
    for grow, o, count, s in [(6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2)]:
        for number in range(count):
            layers.append(inverted(i, o, s if number == 0 else 1, grow))
            i = o
    return nn.Sequential(*layers, conv(i, 1280, 1, act=nn.ReLU6()), classifier(1280))


def mobilenet_v3() -> nn.Module:
    h, r = nn.Hardswish, nn.ReLU
    blocks = [
        (16, 2, 1, 3, r, True),
        (24, 2, 4, 3, r, False),
        (24, 1, 3, 3, r, False),
        (40, 2, 4, 5, h, True),
    ]
    blocks += [(40, 1, 6, 5, h, True), (48, 1, 3, 5, h, True), (96, 2, 6, 5, h, True), (96, 1, 6, 5, h, True)]
    i, layers = 16, [conv(3, 16, 3, 2, act=h())]
    for o, s, grow, k, act, se in blocks:
        layers.append(inverted(i, o, s, grow, k, act, se))
        i = o
    return nn.Sequential(*layers, conv(i, 576, 1, act=h()), classifier(576))


def efficientnet() -> nn.Module:
    i, layers = 32, [conv(3, 32, 3, 2, act=nn.SiLU())]
    for o, s, grow, k in [
        (16, 1, 1, 3),
        (24, 2, 6, 3),
        (40, 2, 6, 5),
        (80, 2, 6, 3),
        (80, 1, 6, 3),
        (112, 1, 6, 5),
    ]:
        layers.append(inverted(i, o, s, grow, k, nn.SiLU, True))
        i = o
    return nn.Sequential(*layers, conv(i, 640, 1, act=nn.SiLU()), classifier(640))


def shufflenet() -> nn.Module:
    def block(width: int) -> Steps:
        half = width // 2
        net = nn.Sequential(
            conv(half, half, 1), conv(half, half, 3, 1, half, nn.Identity()), conv(half, half, 1)
        )

        def run(net: nn.Module, x: Tensor) -> Tensor:
            left, right = x.chunk(2, 1)
            n, c, h, w = x.shape
            return (
                torch.cat([left, net(right)], 1).view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
            )

        return Steps(run, net)

    layers: list[nn.Module] = [conv(3, 24, 3, 2), nn.MaxPool2d(3, 2, 1)]
    for i, o in ((24, 48), (48, 96), (96, 192)):
        layers += [conv(i, o, 3, 2, i if i > 24 else 1), block(o), block(o)]
    return nn.Sequential(*layers, classifier(192))


def squeezenet() -> nn.Module:
    def fire(i: int, s: int, e: int) -> Steps:
        parts = conv(i, s, 1, norm=False), conv(s, e, 1, norm=False), conv(s, e, 3, norm=False)
        return Steps(lambda a, b, c, x: torch.cat([b(y := a(x)), c(y)], 1), *parts)

    pool = nn.MaxPool2d(3, 2)
    layers = [
        nn.Conv2d(3, 64, 3, 2),
        nn.ReLU(),
        pool,
        fire(64, 16, 64),
        fire(128, 16, 64),
        pool,
        fire(128, 32, 128),
    ]
    layers += [
        fire(256, 32, 128),
        pool,
        fire(256, 48, 192),
        fire(384, 64, 256),
        nn.Conv2d(512, 1000, 1),
        nn.ReLU(),
    ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def vgg() -> nn.Module:
    i, layers = 3, []
    for o in (16, "p", 32, "p", 64, 64, "p", 128, 128, "p", 128, "p"):
        if o == "p":
            layers.append(nn.MaxPool2d(2))
        else:
            layers.append(conv(i, int(o), norm=False))
            i = int(o)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 9, 512), nn.ReLU(), nn.Linear(512, 1000))


def inception() -> nn.Module:
    def block(i: int, a: int, b: int, c: int) -> Steps:
        parts = (
            conv(i, a, 1),
            nn.Sequential(conv(i, b // 2, 1), conv(b // 2, b)),
            nn.Sequential(conv(i, c // 2, 1), conv(c // 2, c, 5)),
            nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(i, c, 1)),
        )
        return Steps(lambda p, q, r, s, x: torch.cat([p(x), q(x), r(x), s(x)], 1), *parts)

    layers = [
        conv(3, 32, 7, 2),
        nn.MaxPool2d(3, 2, 1),
        conv(32, 96),
        nn.MaxPool2d(3, 2, 1),
        block(96, 32, 64, 16),
    ]
    layers += [block(128, 64, 96, 48), nn.MaxPool2d(3, 2, 1), block(256, 96, 104, 32)]
    return nn.Sequential(*layers, classifier(264))


def densenet() -> nn.Module:
    def layer(i: int, grow: int) -> Steps:
        parts = (
            nn.BatchNorm2d(i),
            nn.ReLU(),
            conv(i, 4 * grow, 1),
            nn.Conv2d(4 * grow, grow, 3, 1, 1, bias=False),
        )
        return Steps(lambda net, x: torch.cat([x, net(x)], 1), nn.Sequential(*parts))

    width, layers = 32, [conv(3, 32, 3, 2)]
    for count in (3, 4, 4):
        for _ in range(count):
            layers.append(layer(width, 12))
            width += 12
        layers += [conv(width, width // 2, 1), nn.AvgPool2d(2)]
        width //= 2
    return nn.Sequential(*layers, classifier(width, 10))


def bottlenecks(groups: int, se: bool) -> nn.Module:
    """Return ResNeXt, or the ResNet with squeeze and excitation."""
    layers, i = [conv(3, 32, 3, 2)], 32
    for o, s in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1)):
        more = [squeeze_excite(o, nn.Sigmoid())] if se else []
        main = [
            conv(i, o // 2, 1),
            conv(o // 2, o // 2, 3, s, groups),
            conv(o // 2, o, 1, act=nn.Identity()),
            *more,
        ]
        short = nn.Identity() if i == o and s == 1 else conv(i, o, 1, s, act=nn.Identity())
        layers.append(Steps(lambda net, skip, x: F.relu(net(x) + skip(x)), nn.Sequential(*main), short))
        i = o
    return nn.Sequential(*layers, classifier(256))


def unet() -> nn.Module:
    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = (3, 16, 32, 64)
            self.down = nn.ModuleList(
                [nn.Sequential(conv(i, o), conv(o, o)) for i, o in zip(widths, widths[1:])]
            )
            self.up = nn.ModuleList([nn.ConvTranspose2d(2 * o, o, 2, 2) for o in (32, 16)])
            self.join = nn.ModuleList([conv(2 * o, o) for o in (32, 16)])
            self.head = nn.Conv2d(16, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            a = self.down[0](x)
            b = self.down[1](F.max_pool2d(a, 2))
            c = self.down[2](F.max_pool2d(b, 2))
            b = self.join[0](torch.cat([self.up[0](c), b], 1))
            return self.head(self.join[1](torch.cat([self.up[1](b), a], 1)))

    return UNet()


def ssd_head() -> nn.Module:
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Sequential(conv(3, 32, 3, 2), conv(32, 64, 3, 2), conv(64, 128, 3, 2))
            self.more = nn.ModuleList([conv(128, 128, 3, 2), conv(128, 128, 3, 2)])
            self.boxes = nn.ModuleList([nn.Conv2d(128, 4 * (4 + 21), 3, 1, 1) for _ in range(3)])

        def forward(self, x: Tensor) -> Tensor:
            maps = [self.base(x)]
            for layer in self.more:
                maps.append(layer(maps[-1]))
            found = [box(each).permute(0, 2, 3, 1).flatten(1) for box, each in zip(self.boxes, maps)]
            return torch.cat(found, 1)

    return Head()


def style_transfer() -> nn.Module:
    def layer(i: int, o: int, k: int, s: int = 1) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2), nn.InstanceNorm2d(o, affine=True), nn.ReLU())

    middle = [residual(layer(64, 64, 3), nn.Conv2d(64, 64, 3, 1, 1)) for _ in range(3)]
    up = [nn.Upsample(scale_factor=2), layer(64, 32, 3), nn.Upsample(scale_factor=2), layer(32, 16, 3)]
    ends = [nn.Conv2d(16, 3, 9, 1, 4), nn.Tanh()]
    return nn.Sequential(layer(3, 16, 9), layer(16, 32, 3, 2), layer(32, 64, 3, 2), *middle, *up, *ends)


def generator() -> nn.Module:
    layers, i = (
        [nn.Unflatten(1, (64, 1, 1)), nn.ConvTranspose2d(64, 256, 4), nn.BatchNorm2d(256), nn.ReLU()],
        256,
    )
    for o in (128, 64, 32):
        layers += [nn.ConvTranspose2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()]
        i = o
    return nn.Sequential(*layers, nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh())


def discriminator() -> nn.Module:
    leaky, widths = nn.LeakyReLU(0.2), (3, 32, 64, 128, 256)
    layers = [nn.Sequential(nn.Conv2d(i, o, 4, 2, 1), leaky) for i, o in zip(widths, widths[1:])]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 16, 1))


def text_cnn() -> nn.Module:
    class TextCNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(20_000, 128)
            self.filters = nn.ModuleList([nn.Conv1d(128, 100, k) for k in (3, 4, 5)])
            self.last = nn.Linear(300, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = self.words(x).transpose(1, 2)
            return self.last(torch.cat([F.relu(f(x)).amax(2) for f in self.filters], 1))

    return TextCNN()


def tagger() -> nn.Module:
    parts = (
        nn.Embedding(10_000, 100),
        nn.LSTM(100, 100, bidirectional=True, batch_first=True),
        nn.Linear(200, 17),
    )
    return Steps(lambda words, lstm, last, x: last(lstm(words(x))[0]), *parts)


def language_model() -> nn.Module:
    parts = nn.Embedding(10_000, 128), nn.GRU(128, 200, 2, batch_first=True), nn.Linear(200, 10_000)
    return Steps(lambda words, gru, last, x: last(gru(words(x))[0]), *parts)


class Attention(nn.Module):
    """Attention of several heads in its parts."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.inside = heads, nn.Linear(width, 3 * width)
        self.outside = nn.Linear(width, width)

    def forward(self, x: Tensor, causal: bool) -> Tensor:
        n, t, width = x.shape
        q, k, v = self.inside(x).view(n, t, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return self.outside(found.transpose(1, 2).reshape(n, t, width))


def transformer(causal: bool) -> nn.Module:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attend, self.first, self.second = Attention(256, 4), nn.LayerNorm(256), nn.LayerNorm(256)
            self.dense = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))

        def forward(self, x: Tensor) -> Tensor:
            if causal:  # norms first, as in GPT
                x = x + self.attend(self.first(x), True)
                return x + self.dense(self.second(x))
            x = self.first(x + self.attend(x, False))
            return self.second(x + self.dense(x))

    return nn.Sequential(nn.Embedding(10_000, 256), Block(), Block(), nn.Linear(256, 100))


def wide_deep() -> nn.Module:
    deep = nn.Sequential(
        nn.Flatten(), nn.Linear(8 * 16, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1)
    )
    parts = nn.Embedding(50_000, 1), nn.Embedding(50_000, 16), deep
    return Steps(lambda wide, table, deep, x: torch.sigmoid(wide(x).sum(1) + deep(table(x))), *parts)


def dlrm() -> nn.Module:
    def run(table: nn.Module, bottom: nn.Module, top: nn.Module, ids: Tensor, x: Tensor) -> Tensor:
        low = bottom(x)
        rows = torch.cat([low.unsqueeze(1), table(ids)], 1)
        pairs = torch.bmm(rows, rows.transpose(1, 2)).flatten(1)
        return top(torch.cat([low, pairs], 1))

    bottom = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, 32), nn.ReLU())
    top = nn.Sequential(nn.Linear(32 + 81, 128), nn.ReLU(), nn.Linear(128, 1), nn.Sigmoid())
    return Steps(run, nn.Embedding(20_000, 32), bottom, top)


def factorization_machine() -> nn.Module:
    def run(first: nn.Module, second: nn.Module, x: Tensor) -> Tensor:
        v = second(x)
        return torch.sigmoid(first(x).sum(1) + 0.5 * (v.sum(1) ** 2 - (v * v).sum(1)).sum(1, keepdim=True))

    return Steps(run, nn.Embedding(50_000, 1), nn.Embedding(50_000, 16))


def perceptron(*widths: int) -> nn.Module:
    layers = [part for i, o in zip(widths, widths[1:]) for part in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def lenet() -> nn.Module:
    first = nn.Conv2d(1, 20, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.Tanh(), nn.MaxPool2d(2)
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(800, 500), nn.Tanh(), nn.Linear(500, 10))


def resnet() -> nn.Module:
    layers, i = [conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for o, s in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        main = nn.Sequential(conv(i, o, 3, s), conv(o, o, act=nn.Identity()))
        short = nn.Identity() if i == o and s == 1 else conv(i, o, 1, s, act=nn.Identity())
        layers.append(Steps(lambda net, skip, x: F.relu(net(x) + skip(x)), main, short))
        i = o
    return nn.Sequential(*layers, classifier(512))


def images(side: int, channels: int = 3) -> Callable[[int], list[Tensor]]:
    return lambda batch: [torch.randn(batch, channels, side, side)]


def rows(width: int) -> Callable[[int], list[Tensor]]:
    return lambda batch: [torch.randn(batch, width)]


def words(length: int, count: int = 10_000) -> Callable[[int], list[Tensor]]:
    return lambda batch: [torch.randint(0, count, (batch, length))]


NETWORKS: dict[str, Network] = {
    "MobileNet 1.0": (lambda: mobilenet_v1(1.0), images(128)),
    "MobileNet 0.25": (lambda: mobilenet_v1(0.25), images(128)),
    "MobileNet v2": (mobilenet_v2, images(96)),
    "MobileNet v3": (mobilenet_v3, images(96)),
    "EfficientNet": (efficientnet, images(96)),
    "ShuffleNet": (shufflenet, images(96)),
    "SqueezeNet": (squeezenet, images(96)),
    "narrow VGG": (vgg, images(96)),
    "Inception": (inception, images(96)),
    "DenseNet": (densenet, images(64)),
    "ResNet-18": (resnet, images(96)),
    "ResNeXt": (lambda: bottlenecks(8, False), images(64)),
    "SE-ResNet": (lambda: bottlenecks(1, True), images(64)),
    "U-Net": (unet, images(64)),
    "SSD head": (ssd_head, images(96)),
    "style transfer": (style_transfer, images(64)),
    "DCGAN generator": (generator, rows(64)),
    "DCGAN discriminator": (discriminator, images(64)),
    "text CNN": (text_cnn, words(50)),
    "BiLSTM tagger": (tagger, words(25)),
    "GRU language model": (language_model, words(20)),
    "transformer encoder": (lambda: transformer(False), words(64)),
    "transformer decoder": (lambda: transformer(True), words(64)),
    "wide & deep": (wide_deep, words(8, 50_000)),
    "DLRM": (dlrm, lambda batch: [torch.randint(0, 20_000, (batch, 8)), torch.randn(batch, 13)]),
    "factorization machine": (factorization_machine, words(20, 50_000)),
    "autoencoder": (lambda: perceptron(784, 256, 64, 256, 784), rows(784)),
    "LeNet": (lenet, images(28, 1)),
    "narrow perceptron": (lambda: perceptron(20, 32, 32, 2), rows(20)),
    "wide perceptron": (lambda: perceptron(256, 1024, 1024, 1024, 10), rows(256)),
}
