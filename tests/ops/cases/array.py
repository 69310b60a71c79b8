"""Operators of arrays that no recorded call covers, against NumPy."""

import numpy as np

from helpers.op_case import OpCase

RANDOM = np.random.RandomState(0)
X = RANDOM.uniform(-2, 2, (4, 3))
Y = RANDOM.uniform(-2, 2, (4, 3))
BITS = np.array([[0.0, 1.0, 2.0], [0.0, 0.0, -1.0]])
OTHER = np.array([[0.0, 0.0, 3.0], [1.0, 0.0, 0.0]])


def written(x, value):
    out = x.copy()
    out[1:3, 0:2] = value
    return out


def batch_norm(x, gamma, beta, mean, var):
    axes = (0, 2)
    m, v = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    y = (x - m) / np.sqrt(v + 1e-3) * gamma[None, :, None] + beta[None, :, None]
    return y


CASES = [
    OpCase("_identity_with_attr_like_rhs", (X, Y), {}, lambda x, y: x, grad=(0,)),
    *(
        OpCase(
            f"_logical_{name}",
            (BITS, OTHER),
            {},
            lambda x, y, f=function: f(x, y).astype(x.dtype),
            no_grad="truth values have none",
        )
        for name, function in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor))
    ),
    OpCase(
        "_slice_assign",
        (X, Y[:2, :2]),
        {"begin": (1, 0), "end": (3, 2)},
        lambda x, y: written(x, y),
    ),
    OpCase(
        "_slice_assign_scalar",
        (X,),
        {"scalar": 7.0, "begin": (1, 0), "end": (3, 2)},
        lambda x: written(x, 7.0),
    ),
    OpCase(
        "_split_v2",
        (X,),
        {"indices": (0, 1, 3), "axis": 0},
        lambda x: (x[0:1], x[1:3], x[3:]),
    ),
    OpCase(
        "_backward_gather_nd",
        (np.array([1.5, -2.0, 0.25]), np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]])),
        {"shape": (2, 2)},
        lambda x, i: np.array([[x[2], 0], [0, x[0] + x[1]]]),
        grad=(0,),
    ),
    OpCase("_split_v2", (X,), {"indices": (), "axis": 1, "sections": 3, "squeeze_axis": True},
           lambda x: tuple(x.T)),
    OpCase("cast_storage", (X,), {"stype": "default"}, lambda x: x),
    OpCase(
        "_sparse_retain",
        (X, np.array([0.0, 2.0])),
        {},
        lambda x, i: np.where(np.isin(np.arange(4), i)[:, None], x, 0),
        grad=(0,),
    ),
    OpCase(
        "BatchNorm_v1",
        (RANDOM.uniform(-1, 1, (3, 2, 4)), np.array([1.5, 0.5]), np.array([0.1, -0.2]), np.zeros(2), np.ones(2)),
        {"fix_gamma": False},
        batch_norm,
        grad=(0, 1, 2),
    ),
]  # fmt: skip
