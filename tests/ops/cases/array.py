"""Operators of arrays that no recorded call covers, against NumPy."""

import numpy as np

from helpers.arrays import f8
from helpers.op_case import OpCase

RANDOM = np.random.RandomState(0)
X, Y = RANDOM.uniform(-2, 2, (2, 4, 3))
BITS, OTHER = f8([[0, 1, 2], [0, 0, -1]]), f8([[0, 0, 3], [1, 0, 0]])
PART, PLACED = {"begin": (1, 0), "end": (3, 2)}, (f8([1.5, -2, 0.25]), f8([[1, 1, 0], [1, 1, 0]]))
NORMED = RANDOM.uniform(-1, 1, (3, 2, 4)), f8([1.5, 0.5]), f8([0.1, -0.2]), np.zeros(2), np.ones(2)


def written(x, value):
    out = x.copy()
    out[1:3, 0:2] = value
    return out


def batch_norm(x, gamma, beta, mean, var):
    m, v = x.mean((0, 2), keepdims=True), x.var((0, 2), keepdims=True)
    return (x - m) / np.sqrt(v + 1e-3) * gamma[None, :, None] + beta[None, :, None]


def gathered(x, _):
    return np.array([[x[2], 0], [0, x[0] + x[1]]])


def logical(name):
    def expect(x, y):
        return getattr(np, f"logical_{name}")(x, y).astype(x.dtype)

    return OpCase(f"_logical_{name}", (BITS, OTHER), {}, expect, no_grad="truth values have none")


CASES = [
    OpCase("_identity_with_attr_like_rhs", (X, Y), {}, lambda x, y: x, grad=(0,)),
    *map(logical, ("and", "or", "xor")),
    OpCase("_slice_assign", (X, Y[:2, :2]), PART, written),
    OpCase("_slice_assign_scalar", (X,), {"scalar": 7.0, **PART}, lambda x: written(x, 7.0)),
    OpCase("_split_v2", (X,), {"indices": (0, 1, 3), "axis": 0}, lambda x: (x[0:1], x[1:3], x[3:])),
    OpCase("_split_v2", (X,), {"indices": (), "axis": 1, "sections": 3, "squeeze_axis": True}, lambda x: tuple(x.T)),
    OpCase("_backward_gather_nd", PLACED, {"shape": (2, 2)}, gathered, grad=(0,)),
    OpCase("BatchNorm_v1", NORMED, {"fix_gamma": False}, batch_norm, grad=(0, 1, 2)),
]  # fmt: skip
