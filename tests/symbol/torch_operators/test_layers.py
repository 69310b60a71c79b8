"""Layers that come from torch."""

import numpy as np
import pytest
import torch
from torch import nn

import dpmodule as mx
from helpers.torch_import import array, compare, evaluated, expressions


class Side(nn.Module):
    """Layers side by side over the same input."""

    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(evaluated(layers))

    def forward(self, x):
        return tuple(layer(x) for layer in self.layers)


IMAGES = """
nn.Conv2d(4, 6, 3); nn.Conv2d(4, 6, (3, 1), (2, 1), (1, 0), bias=False); nn.Conv2d(4, 8, 3, dilation=2, groups=2)
nn.Conv2d(4, 4, 4, padding="same"); nn.Conv2d(4, 4, 3, padding="valid")
nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"); nn.Conv2d(4, 4, 3, padding=1, padding_mode="replicate")
nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1, groups=2); nn.ConvTranspose2d(4, 2, 2, bias=False, dilation=2)
nn.MaxPool2d(2); nn.MaxPool2d(3, 2, 1); nn.MaxPool2d(3, 2, ceil_mode=True); nn.MaxPool2d(2, 2, 1, ceil_mode=True)
nn.MaxPool2d((2, 3), (1, 2)); nn.AvgPool2d(2); nn.AvgPool2d(3, 2, 1)
nn.AvgPool2d(3, 2, 1, count_include_pad=False); nn.AvgPool2d(3, 2, ceil_mode=True)
nn.AvgPool2d(2, divisor_override=3); nn.AdaptiveAvgPool2d(1); nn.AdaptiveAvgPool2d((3, 4))
nn.AdaptiveAvgPool2d((None, 4)); nn.AdaptiveMaxPool2d(1); nn.AdaptiveMaxPool2d((7, 4)); nn.LPPool2d(2, 3)
"""
LINES = """
nn.Conv1d(3, 4, 3, padding=1); nn.Conv1d(3, 3, 2, padding="same"); nn.ConvTranspose1d(3, 2, 3, 2); nn.MaxPool1d(2)
nn.AvgPool1d(3, 2, 1); nn.AdaptiveAvgPool1d(2); nn.AdaptiveMaxPool1d(1); nn.AdaptiveAvgPool1d(4)
"""
VOLUMES = """
nn.Conv3d(2, 3, 2); nn.ConvTranspose3d(2, 2, 2, 2); nn.MaxPool3d(2); nn.AvgPool3d(2); nn.AdaptiveAvgPool3d(1)
"""
NORMS = """
nn.BatchNorm2d(6); nn.BatchNorm2d(6, affine=False, momentum=0.3); nn.BatchNorm2d(6, track_running_stats=False)
nn.InstanceNorm2d(6); nn.InstanceNorm2d(6, affine=True, eps=1e-3); nn.GroupNorm(3, 6)
nn.GroupNorm(2, 6, affine=False); nn.LayerNorm(5); nn.LayerNorm((4, 5), eps=1e-3)
nn.LayerNorm((6, 4, 5), elementwise_affine=False); nn.LayerNorm(5, bias=False); nn.RMSNorm(5)
nn.LocalResponseNorm(3)
"""
RESIZED = """
F.interpolate(x, scale_factor=2); F.interpolate(x, scale_factor=(3, 2)); F.interpolate(x, size=(7, 3))
F.interpolate(x, size=(8, 9), mode="bilinear"); F.interpolate(x[:, :, 0], scale_factor=2)
F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
F.interpolate(x[:, :1], size=(5, 5), mode="bicubic"); F.interpolate(x, scale_factor=1.7)
F.interpolate(x, scale_factor=(1.7, 2)); F.interpolate(x, scale_factor=(1.5, 0.4), mode="bilinear")
F.pixel_shuffle(x, 2); F.pixel_unshuffle(x, 2); F.channel_shuffle(x, 2); F.pad(x, (1, 2, 0, 1))
F.pad(x, (1, 0), value=3.0); F.pad(x, (-1, 2)); F.pad(x, (0, 0, 0, 0, 1, 0), value=-1.0)
F.pad(x, (1, 1, 2, 0), mode="reflect"); nn.ReplicationPad2d(1)(x); F.pad(x, (1, 2, 0, 1), mode="circular")
F.pad(x[:, :, 0, 0], (1, 1)); F.pad(x[:, 0], (1, 1), mode="reflect"); F.unfold(x, 2, padding=1)
F.fold(F.unfold(x, 2, stride=2), (4, 6), 2, stride=2)
F.batch_norm(torch.einsum("nchw,nkhw->nck", x, x), None, None, training=True)
F.grid_sample(x, x[:, :3, :, :2].permute(0, 2, 1, 3).tanh(), align_corners=True)
"""
UNEVEN = """
F.adaptive_max_pool2d(x[:, :, 0], (3, 4)); F.adaptive_max_pool1d(x[:, 0, 0], 3)
F.adaptive_max_pool3d(x, (2, 3, 5)); F.adaptive_avg_pool3d(x, (2, 3, 2)); F.adaptive_max_pool2d(x[:, 0], (9, 3))
F.adaptive_max_pool2d(x[0, 0], (4, 5))
"""


SHAPED = [(IMAGES, (4, 7, 8)), (LINES, (3, 9)), (VOLUMES, (2, 4, 4, 6)), (NORMS, (6, 4, 5))]
SHAPED += [(RESIZED, (4, 4, 6)), ("nn.BatchNorm1d(4); nn.GroupNorm(2, 4)", (4,)), (UNEVEN, (2, 3, 7, 5))]


@pytest.mark.parametrize(("text", "shape"), SHAPED)
def test_layers(text, shape):
    net = Side(text) if "nn.B" in text or "nn.C" in text else expressions(text)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(std=0.5)
    compare(net, lambda n: (torch.randn(n, *shape),))


def test_convolution_of_one_image():
    class One(nn.Conv2d):
        def forward(self, x):
            return nn.functional.max_pool2d(super().forward(x[0]), 2) + x.mean()

    compare(One(3, 4, 3), lambda n: (torch.randn(n, 3, 6, 6),))


def test_batch_norm_moves_its_statistics_by_the_biased_variance():
    layer = nn.BatchNorm1d(3).train()
    symbol, args, states = mx.sym.from_torch(layer, torch.zeros(4, 3))
    x, grads = torch.randn(8, 3) * 3 + 1, {n: mx.nd.zeros(args[n].shape) for n in args}
    executor = symbol.bind(mx.cpu(), {"input": array(x), **args}, args_grad=grads, aux_states=states)
    executor.forward(is_train=True)
    executor.backward([mx.nd.zeros((8, 3))])
    layer(x)
    np.testing.assert_allclose(executor.aux_dict["running_mean"].asnumpy(), layer.running_mean.numpy(), 1e-5)
    biased = 0.9 + 0.1 * x.var(0, correction=0)
    np.testing.assert_allclose(executor.aux_dict["running_var"].asnumpy(), biased.numpy(), 1e-5)


class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 3), nn.Linear(4, 2, bias=False), nn.Bilinear(4, 4, 2)
        self.w = nn.Parameter(torch.randn(4, 5))

    def forward(self, x):
        y, w = x.sum(1), self.w
        layers = self.a(y), self.b(x), self.a(x[0, 0]), self.c(y, y * 2)
        products = x @ w, y @ w, x @ w[:, 0], x @ x.mT, x[:1] @ x.mT, torch.outer(w[0], w[1])
        more = torch.baddbmm(x, x, torch.eye(4).expand(x.shape[0], 4, 4))
        added = torch.addmm(w[0], y, w, beta=0.5, alpha=2), more
        return *layers, *products, *added, torch.einsum("btc,cd->bd", x, w)


def test_dense():
    compare(Dense(), lambda n: (torch.randn(n, 3, 4),))


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


def test_sampling_at_places():
    grid = "F.affine_grid({}, (x.shape[0], 2, 4, 5), align_corners=False)"
    turned = "y[:, 0, :2, :2] @ torch.eye(2, 3)"
    text = f"""
        F.grid_sample(x, 1.3 * y, align_corners=False); F.grid_sample(x, 1.3 * y, align_corners=False, mode="nearest")
        F.grid_sample(x, 1.3 * y, align_corners=False, padding_mode="border")
        F.grid_sample(x, 1.3 * y, align_corners=True, padding_mode="border")
        F.grid_sample(x, 1.3 * y, align_corners=False, mode="bicubic", padding_mode="reflection")
        F.grid_sample(x, {grid.format(f"0 * ({turned}) + torch.eye(2, 3)")}, align_corners=False)
        F.grid_sample(x, {grid.format(turned)}, align_corners=False)
    """
    compare(expressions(text, "x, y"), lambda n: (torch.randn(n, 2, 4, 5), 2 * torch.rand(n, 3, 6, 2) - 1))
