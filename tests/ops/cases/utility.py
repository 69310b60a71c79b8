"""Copies, positions and counts that no recorded call covers, against NumPy."""

import numpy as np

from helpers.arrays import f4, f8, i8
from helpers.op_case import OpCase

X, Y = np.random.RandomState(1).uniform(-2, 2, (2, 3, 4))
ROWS, PART, MIXED = f8([2, 0, 3]), Y[:2, 0].copy(), (f4(X), Y.astype("f2"), Y)
COUNTS = "positions and counts have none"


def filled(x, values, places):
    out = x.copy()
    out[np.arange(3), places.astype(int)] = values
    return out


def set_at(x, part, index):
    out = x.copy()
    out[tuple(index.astype(int))] = part
    return out


def added(x, y, i):
    return x + y.sum() * np.outer(np.eye(3)[0], np.eye(4)[1])


def area(scores, label, *counts):
    """Share of pairs of a positive and a negative in order; pairs in one of four intervals count half."""
    places = (scores[:, 1] * 4).astype(int)
    above, below = places[label[:, 0] > 0][:, None], places[label[:, 0] == 0]
    return np.array([((above > below) + (above == below) / 2).mean()])


def paths(data, label):
    """Walk from each leaf to the root, where the children of a node n are 2n and 2n + 1."""
    found = np.zeros((3, len(label), 3))
    for row, (number,) in enumerate(label):
        node, level = number + 5, 0
        while node > 1:
            found[:, row, level] = node // 2 - 1, node % 2, 1
            node, level = node // 2, level + 1
    return i8(found[0]), found[1], found[2]


SCORES, HITS = f8([[0, 0.1], [0, 0.9], [0, 0.3], [0, 0.35], [0, 0.8]]), i8([[0], [1], [1], [0], [0]])
STATES = np.zeros((1, 5), np.int64), np.zeros((1, 5), np.int64)
XXH64 = i8([[[595905], [267482]], [[757017], [270296]]])  # of the Python package xxhash 3.6, for 1 and -5

CASES = [
    OpCase("_running_auc", (SCORES, HITS, *STATES), {"num_thresholds": 4}, area, no_grad=COUNTS),
    OpCase(
        "_tree_path", (np.zeros((5, 1)), i8(np.arange(5)[:, None])), {"num_classes": 5}, paths, no_grad=COUNTS
    ),
    OpCase(
        "_xxhash", (i8([[1], [-5]]),), {"hash_size": 1000003, "num_hash": 2}, lambda x: XXH64, no_grad=COUNTS
    ),
    OpCase("_copyto", (X,), {}, lambda x: x),
    OpCase("_CrossDeviceCopy", (X,), {}, lambda x: x),
    OpCase("_scale_gradient", (X, f8([3])), {}, lambda x, f: x, no_grad="scales it: contrib/test_arrays.py"),
    OpCase("_rnn_param_concat", (X, Y[:1]), {"dim": 0}, lambda x, y: np.concatenate([x, y])),
    OpCase("_zeros_without_dtype", (), {"shape": 3, "dtype": 1}, lambda: np.zeros(3), no_grad="no inputs"),
    OpCase("_onehot_encode", (ROWS, X), {}, lambda i, x: np.eye(4)[i.astype(int)], no_grad=COUNTS),
    OpCase("fill_element_0index", (X, Y[:, 0].copy(), ROWS), {}, filled, grad=(0, 1)),
    OpCase("_scatter_set_nd", (X, PART, np.array([[0, 2], [1, 3]])), {"shape": (3, 4)}, set_at, grad=(0, 1)),
    OpCase("_scatter_add_nd", (X, PART, np.array([[0, 0], [1, 1]])), {}, added, grad=(0, 1)),
    OpCase("amp_multicast", MIXED, {}, lambda x, y, z: (x, f4(y), z), no_grad="tested by Cast"),
    OpCase("multi_all_finite", (X, f8([1, np.nan])), {}, lambda x, y: np.zeros(1, "f4"), no_grad=COUNTS),
]
