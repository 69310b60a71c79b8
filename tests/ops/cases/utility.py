"""Copies, positions and counts that no recorded call covers, against NumPy."""

import numpy as np

from helpers.op_case import OpCase

RANDOM = np.random.RandomState(1)
X, Y = RANDOM.uniform(-2, 2, (2, 3, 4))
ROWS = np.array([2.0, 0.0, 3.0])
NO_FRACTIONS = "positions and counts have none"


def filled(x, values, places):
    out = x.copy()
    out[np.arange(3), places.astype(int)] = values
    return out


def set_at(x, part, index):
    out = x.copy()
    out[tuple(index.astype(int))] = part
    return out


CASES = [
    OpCase("_copyto", (X,), {}, lambda x: x),
    OpCase("_CrossDeviceCopy", (X,), {}, lambda x: x),
    OpCase(
        "_scale_gradient",
        (X, np.array([3.0])),
        {},
        lambda x, f: x,
        no_grad="scales it: contrib/test_arrays.py",
    ),
    OpCase("_grad_add", (X, Y), {}, lambda x, y: x + y),
    OpCase("_rnn_param_concat", (X, Y[:1]), {"dim": 0}, lambda x, y: np.concatenate([x, y])),
    OpCase(
        "_zeros_without_dtype",
        (),
        {"shape": (2, 3), "dtype": 1},
        lambda: np.zeros((2, 3)),
        no_grad="has no inputs",
    ),
    OpCase("_onehot_encode", (ROWS, X), {}, lambda i, x: np.eye(4)[i.astype(int)], no_grad=NO_FRACTIONS),
    OpCase("fill_element_0index", (X, Y[:, 0].copy(), ROWS), {}, filled, grad=(0, 1)),
    OpCase(
        "_scatter_set_nd",
        (X, Y[:2, 0].copy(), np.array([[0, 2], [1, 3]])),
        {"shape": (3, 4)},
        set_at,
        grad=(0, 1),
    ),
    OpCase(
        "_scatter_add_nd",
        (X, Y[:2, 0].copy(), np.array([[0, 0], [1, 1]])),
        {},
        lambda x, y, i: x + y.sum() * np.outer(np.eye(3)[0], np.eye(4)[1]),
        grad=(0, 1),
    ),
    OpCase(
        "amp_multicast",
        (X.astype("f4"), Y.astype("f2"), Y),
        {},
        lambda x, y, z: (x, y.astype("f4"), z),
        no_grad="float32; the gradient of a cast is tested by Cast",
    ),
    OpCase(
        "multi_all_finite",
        (X, np.array([1.0, np.nan])),
        {},
        lambda x, y: np.zeros(1, "f4"),
        no_grad=NO_FRACTIONS,
    ),
    OpCase(
        "_ravel_multi_index",
        (np.array([[0, 2], [1, 3]]),),
        {"shape": (3, 4)},
        lambda x: np.ravel_multi_index(x, (3, 4)),
        no_grad=NO_FRACTIONS,
    ),
    OpCase(
        "_unravel_index",
        (np.array([1, 11]),),
        {"shape": (3, 4)},
        lambda x: np.stack(np.unravel_index(x, (3, 4))),
        no_grad=NO_FRACTIONS,
    ),
    OpCase(
        "_histogram",
        (X,),
        {"bin_cnt": 5, "range": (-1.0, 1.0)},
        lambda x: np.histogram(x, 5, (-1.0, 1.0)),
        no_grad=NO_FRACTIONS,
    ),
]
