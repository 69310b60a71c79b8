"""Layers that come from torch."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.torch_import import Functions, array, compare


class Side(nn.Module):
    """Layers side by side over the same input."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        return tuple(layer(x) for layer in self.layers)


def images(*shape):
    return lambda n: (torch.randn(n, *shape),)


def test_convolutions():
    layers = (
        nn.Conv2d(4, 6, 3),
        nn.Conv2d(4, 6, (3, 1), (2, 1), (1, 0), bias=False),
        nn.Conv2d(4, 8, 3, dilation=2, groups=2),
        nn.Conv2d(4, 4, 4, padding="same"),
        nn.Conv2d(4, 4, 3, padding="valid"),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="replicate"),
        nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1, groups=2),
        nn.ConvTranspose2d(4, 2, 2, bias=False, dilation=2),
    )
    compare(Side(*layers), images(4, 7, 8))


def test_convolutions_of_lines_and_volumes():
    compare(
        Side(
            nn.Conv1d(3, 4, 3, padding=1), nn.Conv1d(3, 3, 2, padding="same"), nn.ConvTranspose1d(3, 2, 3, 2)
        ),
        images(3, 9),
    )
    compare(Side(nn.Conv3d(2, 3, 2), nn.ConvTranspose3d(2, 2, 2, 2)), images(2, 4, 3, 5))


def test_convolution_of_one_image():
    class One(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.pool = nn.Conv2d(3, 4, 3), nn.MaxPool2d(2)

        def forward(self, x):
            return self.pool(self.conv(x[0])) + x.mean()

    compare(One(), images(3, 6, 6))


def test_pooling():
    layers = (
        nn.MaxPool2d(2),
        nn.MaxPool2d(3, 2, 1),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.MaxPool2d(2, 2, 1, ceil_mode=True),
        nn.MaxPool2d((2, 3), (1, 2)),
        nn.AvgPool2d(2),
        nn.AvgPool2d(3, 2, 1),
        nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        nn.AvgPool2d(3, 2, ceil_mode=True),
        nn.AvgPool2d(2, divisor_override=3),
        nn.AdaptiveAvgPool2d(1),
        nn.AdaptiveAvgPool2d((3, 4)),
        nn.AdaptiveAvgPool2d((None, 4)),
        nn.AdaptiveMaxPool2d(1),
        nn.AdaptiveMaxPool2d((7, 4)),
        nn.LPPool2d(2, 3),
    )
    compare(Side(*layers), images(3, 7, 8))
    lines = (
        nn.MaxPool1d(2),
        nn.AvgPool1d(3, 2, 1),
        nn.AdaptiveAvgPool1d(2),
        nn.AdaptiveMaxPool1d(1),
        nn.AdaptiveAvgPool1d(4),
    )
    compare(Side(*lines), images(3, 9))
    compare(Side(nn.MaxPool3d(2), nn.AvgPool3d(2), nn.AdaptiveAvgPool3d(1)), images(2, 4, 4, 6))


def test_normalisation():
    layers = (
        nn.BatchNorm2d(6),
        nn.BatchNorm2d(6, affine=False, momentum=0.3),
        nn.BatchNorm2d(6, track_running_stats=False),
        nn.InstanceNorm2d(6),
        nn.InstanceNorm2d(6, affine=True, eps=1e-3),
        nn.GroupNorm(3, 6),
        nn.GroupNorm(2, 6, affine=False),
        nn.LayerNorm(5),
        nn.LayerNorm((4, 5), eps=1e-3),
        nn.LayerNorm((6, 4, 5), elementwise_affine=False),
        nn.LayerNorm(5, bias=False),
        nn.RMSNorm(5),
        nn.LocalResponseNorm(3),
    )
    with torch.no_grad():
        for layer in layers:
            for parameter in layer.parameters():
                parameter.normal_()
    compare(Side(*layers), images(6, 4, 5))
    compare(Side(nn.BatchNorm1d(4), nn.GroupNorm(2, 4)), images(4))


def test_batch_norm_moves_its_statistics_by_the_biased_variance():
    layer = nn.BatchNorm1d(3).train()
    symbol, args, states = mx.sym.from_torch(layer, torch.zeros(4, 3))
    x = torch.randn(8, 3) * 3 + 1
    grads = {n: mx.nd.zeros(args[n].shape) for n in args}
    executor = symbol.bind(mx.cpu(), {"input": array(x), **args}, args_grad=grads, aux_states=states)
    executor.forward(is_train=True)
    executor.backward([mx.nd.zeros((8, 3))])
    layer(x)
    np.testing.assert_allclose(executor.aux_dict["running_mean"].asnumpy(), layer.running_mean.numpy(), 1e-5)
    biased = 0.9 + 0.1 * x.var(0, correction=0)
    np.testing.assert_allclose(executor.aux_dict["running_var"].asnumpy(), biased.numpy(), 1e-5)


def test_a_frozen_batch_norm_keeps_its_statistics():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4)).train()
    net[1].eval()
    symbol, _, _ = mx.sym.from_torch(net, torch.zeros(5, 3))
    used = {
        n.name: n.a.use_global_stats
        for n in symbol.graph.nodes
        if n.op is not None and n.op.name == "BatchNorm"
    }
    assert used == {"1": True, "2": False}


def test_dense():
    class Dense(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 2, bias=False)
            self.c = nn.Bilinear(4, 4, 2)
            self.w = nn.Parameter(torch.randn(4, 5))

        def forward(self, x):
            y = x.sum(1)
            return {
                "rows": self.a(y),
                "many": self.b(x),
                "one": self.a(x[0, 0]),
                "bilinear": self.c(y, y * 2),
                "weight": x @ self.w,
                "matrix": y @ self.w,
                "vector": x @ self.w[:, 0],
                "batches": x @ x.mT,
                "shared": x[:1] @ x.mT,
                "addmm": torch.addmm(self.w[0], y, self.w, beta=0.5, alpha=2),
                "baddbmm": torch.baddbmm(x, x, torch.eye(4).expand(x.shape[0], 4, 4)),
                "einsum": torch.einsum("btc,cd->bd", x, self.w),
                "outer": torch.outer(self.w[0], self.w[1]),
            }

    compare(Dense(), images(3, 4))


def test_embeddings():
    class Embeddings(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Embedding(10, 3), nn.Embedding(10, 3, padding_idx=1)
            self.table = nn.Parameter(torch.randn(10, 2))
            self.bags = nn.ModuleList(nn.EmbeddingBag(10, 3, mode=mode) for mode in ("sum", "mean", "max"))

        def forward(self, ids):
            bags = [bag(ids) for bag in self.bags]
            weighted = self.bags[0](ids, per_sample_weights=self.table[:4, 0].expand(ids.shape[0], 4))
            return self.a(ids), self.b(ids), self.table[ids], self.table[ids[:, 0]], bags, weighted

    compare(Embeddings(), lambda n: (torch.randint(0, 10, (n, 4)),))


def test_resizing_and_padding():
    functions = {
        "nearest": lambda x: F.interpolate(x, scale_factor=2),
        "nearest_apart": lambda x: F.interpolate(x, scale_factor=(3, 2)),
        "nearest_size": lambda x: F.interpolate(x, size=(7, 3)),
        "bilinear": lambda x: F.interpolate(x, size=(8, 9), mode="bilinear"),
        "corners": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
        "line": lambda x: F.interpolate(x[:, :, 0], scale_factor=2),
        "shuffle": lambda x: F.pixel_shuffle(x, 2),
        "unshuffle": lambda x: F.pixel_unshuffle(x, 2),
        "channels": lambda x: F.channel_shuffle(x, 2),
        "zeros": lambda x: F.pad(x, (1, 2, 0, 1)),
        "value": lambda x: F.pad(x, (1, 0), value=3.0),
        "cropped": lambda x: F.pad(x, (-1, 2)),
        "channel": lambda x: F.pad(x, (0, 0, 0, 0, 1, 0), value=-1.0),
        "reflect": lambda x: F.pad(x, (1, 1, 2, 0), mode="reflect"),
        "replicate": lambda x: (
            F.pad(x, (1, 1), mode="replicate") if x.dim() < 4 else nn.ReplicationPad2d(1)(x)
        ),
        "circular": lambda x: F.pad(x, (1, 2, 0, 1), mode="circular"),
        "unfold": lambda x: F.unfold(x, 2, padding=1),
        "fold": lambda x: F.fold(F.unfold(x, 2, stride=2), (4, 6), 2, stride=2),
        "bicubic": lambda x: F.interpolate(x[:, :1], size=(5, 5), mode="bicubic"),
        "sampled": lambda x: F.grid_sample(x, x[:, :3, :, :2].permute(0, 2, 1, 3).tanh(), align_corners=True),
        "flat": lambda x: F.pad(x[:, :, 0, 0], (1, 1)),
        "flat_reflect": lambda x: F.pad(x[:, 0], (1, 1), mode="reflect"),
    }
    compare(Functions(functions), images(4, 4, 6))


@pytest.mark.parametrize("name", ["float64", "float16"])
def test_other_floating_types(name):
    kind = getattr(torch, name)
    net = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)).to(kind).eval()
    symbol, args, _ = mx.sym.from_torch(net, torch.zeros(2, 4, dtype=kind))
    x = torch.randn(5, 4).to(kind)
    (found,) = symbol.eval(input=array(x), **args)
    assert found.dtype == np.dtype(name)
    np.testing.assert_allclose(
        found.asnumpy(), net(x).detach().numpy(), 1e-2, 1e-2 if name == "float16" else 1e-9
    )


def test_pooling_to_sizes_that_do_not_divide():
    functions = {
        "max": lambda x: F.adaptive_max_pool2d(x[:, :, 0], (3, 4)),
        "max_of_lines": lambda x: F.adaptive_max_pool1d(x[:, 0, 0], 3),
        "max_of_volumes": lambda x: F.adaptive_max_pool3d(x, (2, 3, 5)),
        "average_of_volumes": lambda x: F.adaptive_avg_pool3d(x, (2, 3, 2)),
        "larger": lambda x: F.adaptive_max_pool2d(x[:, 0], (9, 3)),
        "one_picture": lambda x: F.adaptive_max_pool2d(x[0, 0], (4, 5)),
    }
    compare(Functions(functions), lambda n: (torch.randn(n, 2, 3, 7, 5),))
    pool = Functions({"pool": lambda x: F.adaptive_max_pool1d(x, 3)})
    with pytest.raises(ArgumentError, match="pools to a size that is not fixed, or data whose size is not"):
        mx.sym.from_torch(pool, torch.ones(2, 3, 8), dynamic={"x": {2: "length"}})


def test_sampling_at_places():
    def sampled(**options):
        return lambda x, y: F.grid_sample(x, 1.3 * y, **options)

    functions = {
        "sampled": sampled(align_corners=False),
        "border": sampled(align_corners=False, padding_mode="border"),
        "border_corners": sampled(align_corners=True, padding_mode="border"),
        "nearest": sampled(align_corners=False, mode="nearest"),
        "bicubic": sampled(align_corners=False, mode="bicubic", padding_mode="reflection"),
        "at pixels": lambda x, y: F.grid_sample(
            x,
            F.affine_grid(
                0 * (y[:, 0, :2, :2] @ torch.eye(2, 3)) + torch.eye(2, 3),
                (x.shape[0], 2, 4, 5),
                align_corners=False,
            ),
            align_corners=False,
        ),
        "affine": lambda x, y: F.grid_sample(
            x,
            F.affine_grid(y[:, 0, :2, :2] @ torch.eye(2, 3), (x.shape[0], 2, 4, 5), align_corners=False),
            align_corners=False,
        ),
    }
    compare(Functions(functions), lambda n: (torch.randn(n, 2, 4, 5), 2 * torch.rand(n, 3, 6, 2) - 1))
    with pytest.raises(ArgumentError, match="samples volumes, expected images"):
        mx.sym.from_torch(
            Functions({"out": sampled(align_corners=False)}),
            torch.ones(2, 2, 1, 3, 3),
            torch.zeros(2, 2, 2, 2, 3),
        )
