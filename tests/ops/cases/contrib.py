"""Operators of ``contrib`` that no recorded call covers, or not in float64, against NumPy."""

import numpy as np

from helpers.arrays import f8, i4
from helpers.op_case import OpCase

RANDOM = np.random.RandomState(21)
X, OFFSETS = RANDOM.uniform(-2, 2, (2, 6)), 1.5 * RANDOM.standard_normal((2, 16, 2, 2))
HASHES, SIGNS = f8([[0, 3, 1, 3, 2, 0]]), f8([[1, -1, 1, 1, -1, -1]])
GRAPH, FEW = (f8([[0, 5], [7, 0]]), f8([0.3, 0.5]))
COUNTS = "positions and counts have none"
KERNEL = {"kernel": (2, 2), "num_filter": 2}
GRID = {"stride": (2, 2), "pad": (1, 1), "dilate": (2, 2), "num_group": 2, "num_deformable_group": 2}
ROTATED = f8([[1, 6, 5, 7, 4, 30], [0, 5, 5, 30, 3, -75], [1, 1, 2, 4, 4, 0]])
MODULATED = "_contrib_ModulatedDeformableConvolution"
POOLED = {"pooled_size": (2, 3), "spatial_scale": 0.5, "sampling_ratio": 2}
EVENTS = np.full((1, 2), 0.7), FEW, f8([1, 2]), np.zeros((1, 2)), f8([[0.5, 0.25, 1]]), i4([[0, 0, 1]])
EVENTS += f8([3]), f8([2])


def normal(*shape):
    return RANDOM.standard_normal(shape)


def fft(x):
    found = np.fft.fft(x)
    return np.stack([found.real, found.imag], -1).reshape(*x.shape[:-1], -1)


def ifft(x):
    pairs = x[..., ::2] + 1j * x[..., 1::2]
    return np.fft.ifft(pairs).real * pairs.shape[-1]


def sketch(x, h, s):
    out = np.zeros((len(x), 4))
    for column, (place, sign) in enumerate(zip(h[0].astype(int), s[0])):
        out[:, place] += sign * x[:, column]
    return out


BATCH = normal(2, 4, 4, 4), OFFSETS, RANDOM.rand(2, 8, 2, 2), normal(2, 2, 2, 2), normal(2)
ONE = normal(1, 2, 3, 3), normal(1, 8, 2, 2), RANDOM.rand(1, 4, 2, 2), normal(2, 2, 2, 2)
# deformable and rotated ones: MXNet's CPU build has no gradient; their values are recorded
CASES = [
    OpCase("_contrib_fft", (X,), {}, fft),
    OpCase("_contrib_ifft", (X,), {}, ifft),
    OpCase("_contrib_count_sketch", (X, HASHES, SIGNS), {"out_dim": 4}, sketch, grad=(0,)),
    OpCase("_contrib_getnnz", (GRAPH,), {"axis": 1}, lambda x: (x != 0).sum(1), no_grad=COUNTS),
    OpCase("_contrib_edge_id", (GRAPH, f8([0, 0]), f8([1, 0])), {}, lambda *_: f8([5, -1]), no_grad=COUNTS),
    OpCase("_contrib_hawkesll", EVENTS, {}, grad=(0, 1, 2)),
    OpCase(MODULATED, BATCH, KERNEL | GRID),
    OpCase(MODULATED, ONE, {**KERNEL, "no_bias": True}),
    OpCase("_contrib_RROIAlign", (normal(2, 2, 5, 6), ROTATED), POOLED, grad=(0,)),
]
