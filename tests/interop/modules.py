"""Torch modules of many kinds, with example inputs: what `sym.from_torch` has to carry."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["MODULES", "Case"]


class Case(NamedTuple):
    """A module and a function that makes its inputs for a batch size.

    Attributes:
        module: the module.
        inputs: makes the arguments of forward.
        evaluates: whether the module is exported and compared in evaluation mode only.
    """

    module: nn.Module
    inputs: Callable[[int], tuple[Any, ...]]
    evaluates: bool = False


MODULES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    MODULES[make.__name__] = make
    return make


def images(*shape: int) -> Callable[[int], tuple[torch.Tensor]]:
    return lambda n: (torch.randn(n, *shape),)


def tokens(steps: int, words: int = 20) -> Callable[[int], tuple[torch.Tensor]]:
    return lambda n: (torch.randint(0, words, (n, steps)),)


def conv_bn(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


# images


@case
def mlp() -> Case:
    net = nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.0), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)
    )
    return Case(net, images(8))


@case
def lenet() -> Case:
    net = nn.Sequential(
        nn.Conv2d(1, 4, 5),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8, 10),
    )
    return Case(net, images(1, 12, 12))


@case
def vgg_block() -> Case:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2, 2),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
        nn.Linear(72, 10),
        nn.LogSoftmax(-1),
    )
    return Case(net, images(3, 12, 12))


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return self.relu(out)


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv_bn(channels, width, 1),
            conv_bn(width, width, 3),
            nn.Conv2d(width, channels, 1),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.body(x))


@case
def resnet_basic() -> Case:
    return Case(nn.Sequential(BasicBlock(4, 4), BasicBlock(4, 8, 2)), images(4, 8, 8))


@case
def resnet_bottleneck() -> Case:
    return Case(Bottleneck(16, 4), images(16, 6, 6))


class SmallResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, 8, 7, 2), nn.MaxPool2d(3, 2, 1))
        self.layer1 = nn.Sequential(BasicBlock(8, 8), BasicBlock(8, 8))
        self.layer2 = nn.Sequential(BasicBlock(8, 16, 2), BasicBlock(16, 16))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer2(self.layer1(self.stem(x)))
        return self.fc(torch.flatten(self.avgpool(x), 1))


@case
def resnet() -> Case:
    return Case(SmallResNet(), images(3, 24, 24))


class DenseBlock(nn.Module):
    def __init__(self, channels: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(channels + i * growth),
                nn.ReLU(),
                nn.Conv2d(channels + i * growth, growth, 3, padding=1),
            )
            for i in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


@case
def densenet() -> Case:
    transition = nn.Sequential(nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 1), nn.AvgPool2d(2, 2))
    return Case(nn.Sequential(DenseBlock(4, 4, 3), transition), images(4, 8, 8))


@case
def mobilenet_depthwise() -> Case:
    net = nn.Sequential(
        conv_bn(8, 8, 3, 1, 8), conv_bn(8, 16, 1), conv_bn(16, 16, 3, 2, 16), conv_bn(16, 8, 1)
    )
    return Case(net, images(8, 8, 8))


class InvertedResidual(nn.Module):
    def __init__(self, channels: int, expand: int) -> None:
        super().__init__()
        wide = channels * expand
        self.conv = nn.Sequential(
            nn.Conv2d(channels, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(inplace=True),
            nn.Conv2d(wide, wide, 3, 1, 1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(inplace=True),
            nn.Conv2d(wide, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(x)


@case
def mobilenet_v2() -> Case:
    return Case(InvertedResidual(4, 3), images(4, 8, 8))


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(channels, 2, 1), nn.Conv2d(2, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = F.hardsigmoid(self.fc2(F.relu(self.fc1(x.mean((2, 3), keepdim=True)))))
        return x * scale


@case
def mobilenet_v3() -> Case:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8, eps=1e-3, momentum=0.01), nn.Hardswish(), SqueezeExcite(8)
    )
    return Case(net, images(3, 8, 8))


class Inception(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.b1 = conv_bn(4, 4, 1)
        self.b2 = nn.Sequential(conv_bn(4, 2, 1), conv_bn(2, 4, 3))
        self.b3 = nn.Sequential(conv_bn(4, 2, 1), conv_bn(2, 4, 5))
        self.b4 = nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), conv_bn(4, 4, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([b(x) for b in (self.b1, self.b2, self.b3, self.b4)], 1)
        return F.max_pool2d(x, 3, 2, ceil_mode=True)


@case
def inception() -> Case:
    return Case(Inception(), images(4, 8, 8))


class Fire(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.squeeze, self.left, self.right = (
            nn.Conv2d(8, 2, 1),
            nn.Conv2d(2, 4, 1),
            nn.Conv2d(2, 4, 3, padding=1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.squeeze(x))
        return torch.cat((F.relu(self.left(x)), F.relu(self.right(x))), dim=1)


@case
def squeezenet_fire() -> Case:
    return Case(Fire(), images(8, 5, 5))


class ShuffleUnit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branch = conv_bn(4, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, dim=1)
        out = torch.cat((left, self.branch(right)), dim=1)
        n, c, h, w = out.shape
        return out.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, -1, h, w)


@case
def shufflenet() -> Case:
    return Case(ShuffleUnit(), images(8, 6, 6))


class ConvNeXtBlock(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1, self.pwconv2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(torch.full((dim,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        y = self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))
        return x + y.permute(0, 3, 1, 2)


@case
def convnext() -> Case:
    return Case(ConvNeXtBlock(6), images(6, 7, 7))


class SSDHead(nn.Module):
    def __init__(self, anchors: int = 3, classes: int = 4) -> None:
        super().__init__()
        self.classes = classes
        self.down = nn.ModuleList([conv_bn(3, 8, 3, 2), conv_bn(8, 8, 3, 2)])
        self.cls = nn.ModuleList(nn.Conv2d(8, anchors * classes, 3, padding=1) for _ in range(2))
        self.loc = nn.ModuleList(nn.Conv2d(8, anchors * 4, 3, padding=1) for _ in range(2))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        scores, boxes = [], []
        for down, cls, loc in zip(self.down, self.cls, self.loc):
            x = down(x)
            scores.append(cls(x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, self.classes))
            boxes.append(loc(x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4))
        return {"scores": torch.cat(scores, 1).softmax(-1), "boxes": torch.cat(boxes, 1)}


@case
def ssd_head() -> Case:
    return Case(SSDHead(), images(3, 16, 16))


class FeaturePyramid(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c1, self.c2 = conv_bn(3, 4, 3, 2), conv_bn(4, 8, 3, 2)
        self.l1, self.l2 = nn.Conv2d(4, 6, 1), nn.Conv2d(8, 6, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        c1 = self.c1(x)
        p2 = self.l2(self.c2(c1))
        p1 = self.l1(c1) + F.interpolate(p2, size=c1.shape[-2:], mode="nearest")
        return p1, p2


@case
def feature_pyramid() -> Case:
    return Case(FeaturePyramid(), images(3, 12, 12))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.d1, self.d2 = conv_bn(3, 4), conv_bn(4, 8)
        self.up = nn.ConvTranspose2d(8, 4, 2, 2)
        self.u1, self.out = conv_bn(8, 4), nn.Conv2d(4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        d1 = self.d1(x)
        d2 = self.d2(F.max_pool2d(d1, 2))
        return self.out(self.u1(torch.cat([d1, self.up(d2)], 1)))


@case
def unet() -> Case:
    return Case(UNet(), images(3, 8, 8))


@case
def unet_bilinear() -> Case:
    net = nn.Sequential(
        conv_bn(3, 4), nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), nn.Conv2d(4, 2, 1)
    )
    return Case(net, images(3, 5, 5))


@case
def autoencoder() -> Case:
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, 2, 1),
        nn.ELU(),
        nn.Conv2d(4, 8, 3, 2, 1),
        nn.LeakyReLU(0.1),
        nn.ConvTranspose2d(8, 4, 3, 2, 1, output_padding=1),
        nn.PReLU(),
        nn.ConvTranspose2d(4, 1, 3, 2, 1, 1),
        nn.Sigmoid(),
    )
    return Case(net, images(1, 8, 8))


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.mu, self.logvar = nn.Linear(12, 8), nn.Linear(8, 3), nn.Linear(8, 3)
        self.decode = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 12))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        hidden = F.relu(self.encode(x.flatten(1)))
        mu, logvar = self.mu(hidden), self.logvar(hidden)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar) if self.training else mu
        return torch.sigmoid(self.decode(z)).view(-1, 3, 4), mu, logvar


@case
def vae() -> Case:
    return Case(VAE(), images(3, 4), evaluates=True)


@case
def dcgan_generator() -> Case:
    net = nn.Sequential(
        nn.ConvTranspose2d(6, 8, 4, 1, 0, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(True),
        nn.ConvTranspose2d(8, 4, 4, 2, 1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(True),
        nn.ConvTranspose2d(4, 3, 4, 2, 1, bias=False),
        nn.Tanh(),
    )
    return Case(net, images(6, 1, 1))


@case
def dcgan_discriminator() -> Case:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 4, 2, 1),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(4, 8, 4, 2, 1),
        nn.InstanceNorm2d(8, affine=True),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(8, 1, 4),
        nn.Flatten(),
    )
    return Case(net, images(3, 16, 16))


@case
def group_norm_net() -> Case:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding="same"),
        nn.GroupNorm(4, 8),
        nn.SiLU(),
        nn.Conv2d(8, 4, 3, padding_mode="reflect", padding=1),
        nn.Mish(),
    )
    return Case(net, images(3, 6, 6))


class SuperResolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 5, padding=2), nn.Tanh(), nn.Conv2d(8, 4, 3, padding=1), nn.PixelShuffle(2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) + F.interpolate(x, scale_factor=2)


@case
def super_resolution() -> Case:
    return Case(SuperResolution(), images(1, 5, 5))


class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        a, b = F.normalize(self.tower(left), dim=1), F.normalize(self.tower(right), dim=1)
        return (a - b).pow(2).sum(1).add(1e-6).sqrt()


@case
def siamese() -> Case:
    return Case(Siamese(), lambda n: (torch.randn(n, 6), torch.randn(n, 6)))


class WaveBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.filter, self.gate = nn.Conv1d(4, 4, 2, dilation=2), nn.Conv1d(4, 4, 2, dilation=2)
        self.skip = nn.Conv1d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        padded = F.pad(x, (2, 0))
        z = torch.tanh(self.filter(padded)) * torch.sigmoid(self.gate(padded))
        skip = self.skip(z)
        return x + skip, skip


@case
def wavenet_block() -> Case:
    return Case(WaveBlock(), images(4, 9))


@case
def volumes() -> Case:
    net = nn.Sequential(
        nn.Conv3d(1, 4, 3, padding=1),
        nn.BatchNorm3d(4),
        nn.ReLU(),
        nn.MaxPool3d(2),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(4, 2),
    )
    return Case(net, images(1, 4, 4, 4))


# text


class BagOfWords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.fc = nn.Embedding(20, 6, padding_idx=0), nn.Linear(6, 3)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        mask = (words != 0).unsqueeze(-1).float()
        total = (self.embed(words) * mask).sum(1)
        return self.fc(total / mask.sum(1).clamp(min=1))


@case
def bag_of_words() -> Case:
    return Case(BagOfWords(), tokens(7))


class TextCNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        self.convs = nn.ModuleList(nn.Conv1d(6, 4, k) for k in (2, 3, 4))
        self.fc = nn.Linear(12, 3)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words).transpose(1, 2)
        return self.fc(torch.cat([F.relu(conv(x)).max(dim=2).values for conv in self.convs], 1))


@case
def text_cnn() -> Case:
    return Case(TextCNN(), tokens(9))


class LSTMTagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        self.lstm = nn.LSTM(6, 5, num_layers=2, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(10, 4)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        out, _ = self.lstm(self.embed(words))
        return F.log_softmax(self.fc(out), dim=-1)


@case
def lstm_tagger() -> Case:
    return Case(LSTMTagger(), tokens(6))


class ProjectedLSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, proj_size=3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x.transpose(0, 1))[0][-1]


@case
def lstm_projected() -> Case:
    return Case(ProjectedLSTM(), images(5, 4))


class Seq2Seq(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(20, 6), nn.Embedding(15, 6)
        self.encoder, self.decoder = nn.GRU(6, 8, batch_first=True), nn.GRU(6, 8, batch_first=True)
        self.out = nn.Linear(8, 15)

    def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        _, state = self.encoder(self.source(src))
        out, _ = self.decoder(self.target(tgt), state)
        return self.out(out)


@case
def gru_seq2seq() -> Case:
    return Case(Seq2Seq(), lambda n: (torch.randint(0, 20, (n, 6)), torch.randint(0, 15, (n, 4))))


class AttentionSeq2Seq(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 6)
        self.encoder, self.cell = nn.GRU(6, 6, batch_first=True), nn.GRUCell(12, 6)
        self.out = nn.Linear(12, 20)

    def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        memory, state = self.encoder(self.embed(src))
        hidden, outs = state[0], []
        for step in range(tgt.shape[1]):
            weights = torch.bmm(memory, hidden.unsqueeze(2)).softmax(1)
            context = (weights * memory).sum(1)
            hidden = self.cell(torch.cat([self.embed(tgt[:, step]), context], 1), hidden)
            outs.append(self.out(torch.cat([hidden, context], 1)))
        return torch.stack(outs, 1)


@case
def attention_seq2seq() -> Case:
    return Case(AttentionSeq2Seq(), lambda n: (torch.randint(0, 20, (n, 5)), torch.randint(0, 20, (n, 3))))


class CellRNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.fc = nn.LSTMCell(4, 5), nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = x.new_zeros(x.shape[0], 5), x.new_zeros(x.shape[0], 5)
        for step in x.unbind(1):
            state = self.cell(step, state)
        return self.fc(state[0])


@case
def lstm_cells() -> Case:
    return Case(CellRNN(), images(4, 4))


class ElmanRNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.fc = nn.RNN(4, 5, nonlinearity="relu"), nn.Linear(5, 2)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out, last = self.rnn(x.transpose(0, 1), state.unsqueeze(0))
        return self.fc(out.transpose(0, 1)), last.squeeze(0)


@case
def elman_rnn() -> Case:
    return Case(ElmanRNN(), lambda n: (torch.randn(n, 6, 4), torch.randn(n, 5)))


@case
def multihead_attention() -> Case:
    class Self(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.attention(x, x, x)

    return Case(Self(), images(5, 8))


@case
def cross_attention() -> Case:
    class Cross(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 4, kdim=6, vdim=6)

        def forward(self, query: torch.Tensor, memory: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
            q, m = query.transpose(0, 1), memory.transpose(0, 1)
            return self.attention(q, m, m, key_padding_mask=padding, need_weights=False)[0].transpose(0, 1)

    def inputs(n: int) -> tuple[Any, ...]:
        return torch.randn(n, 3, 8), torch.randn(n, 5, 6), torch.arange(5).expand(n, 5) > 3

    return Case(Cross(), inputs)


@case
def transformer_encoder_layer() -> Case:
    return Case(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), images(5, 8))


@case
def transformer_encoder() -> Case:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", norm_first=True)
    net = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8), enable_nested_tensor=False)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net
            self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x.transpose(0, 1), mask=self.mask, is_causal=True).transpose(0, 1)

    return Case(Outer(), images(5, 8))


@case
def transformer_decoder_layer() -> Case:
    net = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return Case(net, lambda n: (torch.randn(n, 4, 8), torch.randn(n, 5, 8)))


@case
def transformer() -> Case:
    class Translator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.src, self.tgt = nn.Embedding(20, 8), nn.Embedding(20, 8)
            self.net = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)
            self.out = nn.Linear(8, 20)

        def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
            causal = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
            return self.out(self.net(self.src(src), self.tgt(tgt), tgt_mask=causal, tgt_is_causal=True))

    return Case(Translator(), lambda n: (torch.randint(0, 20, (n, 5)), torch.randint(0, 20, (n, 4))))


class GPTBlock(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.c_attn, self.c_proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = (
            p.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for p in self.c_attn(self.ln_1(x)).split(c, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(20, 8), nn.Embedding(16, 8)
        self.blocks = nn.ModuleList([GPTBlock(8, 2), GPTBlock(8, 2)])
        self.ln_f, self.head = nn.LayerNorm(8), nn.Linear(8, 20, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


@case
def gpt_block() -> Case:
    return Case(GPTBlock(8, 2), images(5, 8))


@case
def gpt() -> Case:
    return Case(GPT(), tokens(6))


class CausalAttention(nn.Module):
    """Attention written out, with a triangular buffer as mask."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(8, 8) for _ in range(3))
        self.register_buffer("mask", torch.tril(torch.ones(10, 10)).view(1, 1, 10, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.size()
        k, q, v = (f(x).view(b, t, 2, 4).transpose(1, 2) for f in (self.key, self.query, self.value))
        att = (q @ k.transpose(-2, -1)) / math.sqrt(4)
        att = att.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        return (F.softmax(att, dim=-1) @ v).transpose(1, 2).reshape(b, t, c)


@case
def causal_attention() -> Case:
    return Case(CausalAttention(), images(5, 8))


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 4, 4)
        self.cls = nn.Parameter(torch.randn(1, 1, 8))
        self.pos = nn.Parameter(torch.randn(1, 5, 8))
        self.block = nn.TransformerEncoderLayer(
            8, 2, 16, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1) + self.pos
        return self.head(self.norm(self.block(x))[:, 0])


@case
def vit() -> Case:
    return Case(ViT(), images(3, 8, 8))


class BertEmbeddings(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.word, self.position, self.kind = (
            nn.Embedding(20, 8, padding_idx=0),
            nn.Embedding(12, 8),
            nn.Embedding(2, 8),
        )
        self.norm = nn.LayerNorm(8, eps=1e-12)
        self.register_buffer("position_ids", torch.arange(12).expand((1, -1)))
        self.pooler = nn.Linear(8, 8)

    def forward(
        self, input_ids: torch.Tensor, token_type_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> dict[str, Any]:
        position = self.position_ids[:, : input_ids.shape[1]]
        x = self.norm(self.word(input_ids) + self.kind(token_type_ids) + self.position(position))
        bias = (1.0 - attention_mask[:, None, :].to(x.dtype)) * -10000.0
        scores = torch.matmul(x, x.transpose(1, 2)) / math.sqrt(8) + bias
        hidden = torch.matmul(F.softmax(scores, dim=-1), x)
        return {"last_hidden_state": hidden, "pooler_output": torch.tanh(self.pooler(hidden[:, 0]))}


@case
def bert() -> Case:
    def inputs(n: int) -> tuple[Any, ...]:
        return torch.randint(1, 20, (n, 6)), torch.randint(0, 2, (n, 6)), (torch.rand(n, 6) > 0.2).long()

    return Case(BertEmbeddings(), inputs)


class Rotary(nn.Module):
    """A block with rotary positions, RMS norm and a gated feed-forward part."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(8, eps=1e-6)
        self.qkv, self.gate, self.up, self.down = (
            nn.Linear(8, 24, bias=False),
            nn.Linear(8, 12),
            nn.Linear(8, 12),
            nn.Linear(12, 8),
        )
        self.register_buffer(
            "inverse", 1.0 / (10000 ** (torch.arange(0, 4, 2).float() / 4)), persistent=False
        )

    def rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        left, right = x[..., :2], x[..., 2:]
        return x * cos + torch.cat((-right, left), dim=-1) * sin

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        angles = torch.outer(torch.arange(t).float(), self.inverse)
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos(), angles.sin()
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(
            self.rotate(q, cos, sin), self.rotate(k, cos, sin), v, is_causal=True
        )
        x = x + y.transpose(1, 2).reshape(b, t, 8)
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


@case
def llama_block() -> Case:
    return Case(Rotary(), images(5, 8))


class WindowAttention(nn.Module):
    """Attention in shifted windows with a table of relative positions."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(4, 12)
        self.table = nn.Parameter(torch.randn(9, 1))
        places = torch.stack(torch.meshgrid(torch.arange(2), torch.arange(2), indexing="ij")).flatten(1)
        relative = (places[:, :, None] - places[:, None, :]).permute(1, 2, 0) + 1
        self.register_buffer("index", relative[..., 0] * 3 + relative[..., 1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, h, w, c = x.shape
        x = torch.roll(x, shifts=(-1, -1), dims=(1, 2))
        x = x.view(b, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, c)
        q, k, v = self.qkv(x).chunk(3, -1)
        bias = self.table[self.index.view(-1)].view(4, 4)
        y = ((q @ k.transpose(1, 2)) * c**-0.5 + bias).softmax(-1) @ v
        y = y.view(b, h // 2, w // 2, 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return torch.roll(y, shifts=(1, 1), dims=(1, 2))


@case
def swin_window() -> Case:
    return Case(WindowAttention(), images(4, 6, 4))


class DeepFM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.embed = nn.Embedding(30, 1), nn.Embedding(30, 4)
        self.deep = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, fields: torch.Tensor) -> torch.Tensor:
        e = self.embed(fields)
        fm = 0.5 * (e.sum(1) ** 2 - (e**2).sum(1)).sum(1, keepdim=True)
        return torch.sigmoid(self.linear(fields).sum(1) + fm + self.deep(e.flatten(1)))


@case
def deepfm() -> Case:
    return Case(DeepFM(), tokens(3, 30))


class GraphConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        degree = edges.sum(-1, keepdim=True).clamp(min=1)
        hidden = F.relu(self.a(torch.bmm(edges, nodes) / degree))
        return self.b(torch.einsum("bij,bjk->bik", edges, hidden)).mean(1)


@case
def graph_convolution() -> Case:
    return Case(GraphConvolution(), lambda n: (torch.randn(n, 4, 5), (torch.rand(n, 4, 4) > 0.5).float()))


class LossInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.fc(x), label)


@case
def loss_inside() -> Case:
    return Case(LossInside(), lambda n: (torch.randn(n, 6), torch.randint(0, 3, (n,))))


class Mixture(nn.Module):
    """Experts weighted by a gate; writes its results into parts of an array."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 3)
        self.experts = nn.ModuleList(nn.Linear(4, 2) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.gate(x).softmax(-1)
        outs = x.new_zeros(x.shape[0], 3, 2)
        for i, expert in enumerate(self.experts):
            outs[:, i] = expert(x)
        return (weights.unsqueeze(-1) * outs).sum(1)


@case
def mixture_of_experts() -> Case:
    return Case(Mixture(), images(4))
