"""Small torch networks that are exported to ONNX: name, module, example inputs, axes that are open, other inputs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["MODELS", "QUICK"]


class Lambda(nn.Module):
    """A function as a module, which may hold others."""

    def __init__(self, function, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.function = function

    def forward(self, *inputs):
        return self.function(self, *inputs)


class Residual(nn.Module):
    def __init__(self, inside, outside, stride=1, narrow=None):
        super().__init__()
        middle = narrow or outside
        kernel = 1 if narrow else 3
        self.first = nn.Conv2d(inside, middle, kernel, stride if not narrow else 1, kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(middle)
        self.second = nn.Conv2d(middle, outside, 3, stride if narrow else 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.short = nn.Sequential()
        if stride != 1 or inside != outside:
            self.short = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x):
        y = F.relu(self.bn1(self.first(x)))
        return F.relu(self.bn2(self.second(y)) + self.short(x))


def resnet(narrow=None):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        Residual(8, 8, 1, narrow), Residual(8, 16, 2, narrow), Residual(16, 16, 1, narrow),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


def _mobile(m, x):
    y = m.wide(x)
    gate = m.up(F.relu(m.down(F.adaptive_avg_pool2d(y, 1))))
    return m.out(F.hardswish(y) * F.hardsigmoid(gate)) + x


def _inception(m, x):
    pooled = F.avg_pool2d(x, 3, 1, 1)
    return torch.cat([m.a(x), m.b(x), m.c(pooled), F.max_pool2d(x, 3, 1, 1)], 1)


def _unet(m, x):
    down = F.relu(m.a(x))
    inner = F.relu(m.b(F.max_pool2d(down, 2)))
    return m.c(torch.cat([down, m.up(inner)], 1))


def _resized(mode, corners=None):
    def function(m, x):
        y = F.relu(m.a(x))
        return m.b(F.interpolate(F.max_pool2d(y, 2), scale_factor=2.0, mode=mode, align_corners=corners))

    return Lambda(function, a=nn.Conv2d(3, 4, 3, 1, 1), b=nn.Conv2d(4, 2, 1))


def _recurrent(kind, hidden=6, layers=1, both=False, **options):
    net = kind(8, hidden, layers, bidirectional=both, batch_first=True, **options)
    return Lambda(lambda m, x: m.f(m.r(x)[0]), r=net, f=nn.Linear(hidden * (2 if both else 1), 5))


def _tagger():
    return Lambda(
        lambda m, x: F.log_softmax(m.f(m.r(m.e(x))[0]), -1),
        e=nn.Embedding(20, 8), r=nn.LSTM(8, 6, 2, bidirectional=True, batch_first=True), f=nn.Linear(12, 5),
    )  # fmt: skip


def _attention(m, x):
    n, t, c = x.shape
    q, k, v = m.qkv(x).reshape(n, t, 3, 4, c // 4).permute(2, 0, 3, 1, 4).unbind(0)
    mask = torch.ones(t, t, dtype=torch.bool).tril()
    score = (q @ k.transpose(-2, -1) / (c // 4) ** 0.5).masked_fill(~mask, float("-inf"))
    return m.out((score.softmax(-1) @ v).transpose(1, 2).reshape(n, t, c))


def _block(m, x):
    x = x + m.attend(m.n1(x))
    return x + m.down(F.gelu(m.up(m.n2(x))))


def attention():
    return Lambda(_attention, qkv=nn.Linear(16, 48), out=nn.Linear(16, 16))


def block():
    return Lambda(
        _block, attend=attention(), n1=nn.LayerNorm(16), n2=nn.LayerNorm(16),
        up=nn.Linear(16, 32), down=nn.Linear(32, 16),
    )  # fmt: skip


def _gpt(m, x):
    at = torch.arange(x.shape[1])
    return m.head(m.block(m.words(x) + m.places(at)))


def _vit(m, x):
    patches = m.cut(x).flatten(2).transpose(1, 2)
    whole = torch.cat([m.token.expand(x.shape[0], -1, -1), patches], 1) + m.places
    return m.head(m.block(whole)[:, 0])


def vit():
    made = Lambda(_vit, cut=nn.Conv2d(3, 16, 4, 4), block=block(), head=nn.Linear(16, 5))
    made.token = nn.Parameter(torch.randn(1, 1, 16))
    made.places = nn.Parameter(torch.randn(1, 17, 16))
    return made


def _ssd(m, x):
    shapes, scores = [], []
    for level in m.levels:
        x = F.relu(level(x))
        shapes.append(m.boxes(x).permute(0, 2, 3, 1).reshape(x.size(0), -1, 4))
        scores.append(m.classes(x).permute(0, 2, 3, 1).reshape(x.size(0), -1, 3))
    return torch.cat(shapes, 1), torch.cat(scores, 1).softmax(-1)


def ssd():
    levels = nn.ModuleList([nn.Conv2d(3 if i == 0 else 8, 8, 3, 2, 1) for i in range(3)])
    return Lambda(_ssd, levels=levels, boxes=nn.Conv2d(8, 8, 3, 1, 1), classes=nn.Conv2d(8, 6, 3, 1, 1))


def _yolo(m, x):
    y = m.a(x)
    n, _, h, w = y.shape
    y = y.view(n, 2, 7, h, w).permute(0, 1, 3, 4, 2).sigmoid()
    rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    grid = torch.stack((columns, rows), 2).float()
    centre = (y[..., 0:2] * 2 - 0.5 + grid) * 8
    size = (y[..., 2:4] * 2) ** 2 * 4
    return torch.cat([centre, size, y[..., 4:]], -1).view(n, -1, 7)


def _seq2seq(m, x, y):
    memory, state = m.read(m.source(x))
    out, _ = m.write(m.target(y), state)
    weights = (out @ memory.transpose(1, 2)).softmax(-1)
    return m.head(torch.cat([out, weights @ memory], -1))


def seq2seq():
    return Lambda(
        _seq2seq, source=nn.Embedding(12, 6), target=nn.Embedding(11, 6),
        read=nn.GRU(6, 8, batch_first=True), write=nn.GRU(6, 8, batch_first=True), head=nn.Linear(16, 11),
    )  # fmt: skip


def _activations(m, x):
    functions = (
        F.elu,
        F.selu,
        F.celu,
        F.softplus,
        F.mish,
        F.silu,
        F.hardswish,
        F.relu6,
        F.tanh,
        F.logsigmoid,
    )
    return m.p(sum(function(m.f(x)) for function in functions))


def _odd(m, x):
    y = torch.where(x > 0, x, x.exp() - 1).clamp(-0.5, 2.0)
    return torch.cat([y[:, 1:, ::2], y.flip(1)[:, :3, ::2]], 1), y.cumsum(1), y.argmax(-1), y.std(-1)


def _top(m, x):
    values, places = m.f(x).topk(3, dim=-1)
    return values, places, torch.gather(x, 1, places)


def rows(*shape):
    return torch.randn(*shape)


def words(*shape, most=10):
    return torch.randint(0, most, shape)


IMAGE = (rows(2, 3, 16, 16),), [{0: "batch"}], (rows(5, 3, 16, 16),)
ROWS = (rows(2, 8),), [{0: "batch"}], (rows(7, 8),)
SERIES = (rows(2, 6, 8),), [{0: "batch"}], (rows(5, 6, 8),)
LONGER = (rows(2, 6, 16),), [{0: "batch", 1: "time"}], (rows(3, 9, 16),)

MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3), nn.Softmax(-1)), *ROWS),
    "mlp_norm": (lambda: nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3)), *ROWS),
    "mlp_bn": (lambda: nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 3)), *ROWS),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 5, 2, 2), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(64, 3), nn.LogSoftmax(1)
        ),
        *IMAGE,
    ),
    "resnet": (resnet, *IMAGE),
    "bottleneck": (lambda: resnet(4), *IMAGE),
    "mobilenet": (
        lambda: Lambda(
            _mobile, wide=nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.BatchNorm2d(8)),
            down=nn.Conv2d(8, 2, 1), up=nn.Conv2d(2, 8, 1), out=nn.Conv2d(8, 3, 1),
        ),
        *IMAGE,
    ),  # fmt: skip
    "inception": (
        lambda: Lambda(_inception, a=nn.Conv2d(3, 2, 1), b=nn.Conv2d(3, 2, 5, padding=2), c=nn.Conv2d(3, 2, 1)),
        *IMAGE,
    ),
    "densenet": (
        lambda: Lambda(
            lambda m, x: m.c(torch.cat([x, y := F.relu(m.a(x)), F.relu(m.b(torch.cat([x, y], 1)))], 1)),
            a=nn.Conv2d(3, 4, 3, 1, 1), b=nn.Conv2d(7, 4, 3, 1, 1), c=nn.Conv2d(11, 4, 1),
        ),
        *IMAGE,
    ),  # fmt: skip
    "unet": (
        lambda: Lambda(
            _unet, a=nn.Conv2d(3, 4, 3, 1, 1), b=nn.Conv2d(4, 8, 3, 1, 1),
            up=nn.ConvTranspose2d(8, 4, 2, 2), c=nn.Conv2d(8, 2, 1),
        ),
        (rows(2, 3, 16, 16),), [{0: "batch", 2: "height", 3: "width"}], (rows(3, 3, 24, 32),),
    ),  # fmt: skip
    "nearest": (lambda: _resized("nearest"), *IMAGE),
    "bilinear": (lambda: _resized("bilinear", False), *IMAGE),
    "corners": (lambda: _resized("bilinear", True), *IMAGE),
    "bicubic": (lambda: _resized("bicubic", False), *IMAGE),
    "transposed": (
        lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 3, 2, 1, output_padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3)),
        *IMAGE,
    ),
    "dilated": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3, dilation=2), nn.ReflectionPad2d(1), nn.PReLU(4)), *IMAGE),
    "ceil": (lambda: nn.Sequential(nn.MaxPool2d(3, 2, ceil_mode=True), nn.AvgPool2d(2, 2, count_include_pad=False)),
             *IMAGE),
    "group_norm": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8), nn.SiLU()), *IMAGE),
    "instance_norm": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8, affine=True)), *IMAGE),
    "shuffle": (lambda: nn.Sequential(nn.Conv2d(3, 12, 3, 1, 1), nn.PixelShuffle(2)), *IMAGE),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(6, 4, 3), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten()), *SERIES),
    "conv3d": (
        lambda: nn.Sequential(nn.Conv3d(2, 3, 3), nn.BatchNorm3d(3), nn.AvgPool3d(2)),
        (rows(2, 2, 6, 6, 6),), [{0: "batch"}], (rows(3, 2, 6, 6, 6),),
    ),  # fmt: skip
    "lstm": (lambda: _recurrent(nn.LSTM), *SERIES),
    "bilstm": (lambda: _recurrent(nn.LSTM, layers=2, both=True), *SERIES),
    "gru": (lambda: _recurrent(nn.GRU), *SERIES),
    "bigru": (lambda: _recurrent(nn.GRU, layers=2, both=True), *SERIES),
    "rnn": (lambda: _recurrent(nn.RNN), *SERIES),
    "rnn_relu": (lambda: _recurrent(nn.RNN, both=True, nonlinearity="relu"), *SERIES),
    "tagger": (_tagger, (words(2, 6),), [{0: "batch"}], (words(5, 6),)),
    "seq2seq": (seq2seq, (words(2, 6), words(2, 4)), [{0: "batch"}, {0: "batch"}], (words(3, 6), words(3, 4))),
    "attention": (attention, *LONGER),
    "block": (block, *LONGER),
    "encoder": (
        lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True),
        (rows(2, 6, 16),), [{0: "batch"}], (rows(3, 6, 16),),
    ),  # fmt: skip
    "decoder": (
        lambda: nn.TransformerDecoderLayer(16, 4, 32, batch_first=True, norm_first=True),
        (rows(2, 6, 16), rows(2, 5, 16)), [{0: "batch"}, {0: "batch"}], (rows(3, 6, 16), rows(3, 5, 16)),
    ),  # fmt: skip
    "gpt": (
        lambda: Lambda(_gpt, words=nn.Embedding(10, 16), places=nn.Embedding(32, 16), block=block(),
                       head=nn.Linear(16, 10)),
        (words(2, 6),), [{0: "batch", 1: "time"}], (words(3, 9),),
    ),  # fmt: skip
    "vit": (vit, *IMAGE),
    "ssd": (ssd, *IMAGE),
    "yolo": (lambda: Lambda(_yolo, a=nn.Conv2d(3, 14, 3, 8, 1)), *IMAGE),
    "activations": (lambda: Lambda(_activations, f=nn.Linear(8, 6), p=nn.PReLU(6)), *ROWS),
    "odd": (lambda: Lambda(_odd), *SERIES),
    "top": (lambda: Lambda(_top, f=nn.Linear(8, 8)), *ROWS),
    "einsum": (lambda: Lambda(lambda m, x: torch.einsum("nth,nsh->nts", x, x).sum(-1)), *SERIES),
    "cosine": (
        lambda: Lambda(lambda m, x, y: F.cosine_similarity(m.f(x), m.f(y)), f=nn.Linear(8, 4)),
        (rows(2, 8), rows(2, 8)), [{0: "batch"}, {0: "batch"}], (rows(5, 8), rows(5, 8)),
    ),  # fmt: skip
    "bag": (
        lambda: Lambda(lambda m, x: m.f(m.e(x).mean(1)), e=nn.Embedding(10, 8), f=nn.Linear(8, 3)),
        (words(2, 6),), [{0: "batch", 1: "time"}], (words(3, 9),),
    ),  # fmt: skip
}  # fmt: skip
QUICK = ("resnet", "bilstm", "gru", "block", "ssd", "odd")
"""Exported by the quick tests."""
