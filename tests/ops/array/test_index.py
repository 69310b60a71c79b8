"""Picking and writing by position."""

import numpy as np

from helpers.arrays import NAN, count, f4, f8, i4
from helpers.op_case import gradients_test, rules_test, types, values_test

BLOCK, SQUARE, TEN = count(2, 3, 4), count(2, 2), f4([10, 20, 30])
INDEX = [[-1, 4, 1], [9, -9, 2]]
# index, attributes, what MXNet 1.9.1 picks from arange(24) of shape (2, 3, 4)
PICKS = [
    (INDEX, {}, [[0, 7, 9], [15, 16, 22]]),
    (INDEX, {"mode": "wrap"}, [[3, 4, 9], [13, 19, 22]]),
    ([[[-1], [4], [1]], [[9], [-9], [2]]], {}, [[0, 7, 9], [15, 16, 22]]),
    (INDEX, {"keepdims": True}, [[[0], [7], [9]], [[15], [16], [22]]]),
    ([[1, 0, 1, 0]] * 3, {"axis": 0}, [[12, 1, 14, 3], [16, 5, 18, 7], [20, 9, 22, 11]]),
]
PLACES = [f4(p) for p in ([[0, 1, 1]], [[0, 1, 1], [2, 0, 2]], [[0], [1], [2]], [[[0, 1]], [[1, 2]]])]


def at(places):
    return tuple(places.astype(int))


def scattered(values, places):
    out = np.zeros((2, 3, 4))
    out[at(places)] = values
    return out


test_values = values_test(
    ("take", (TEN, f4([0.9, 1.9, -0.5])), {}, f4([10, 20, 10])),
    ("take", (TEN, i4([0, 2])), {"mode": "raise"}, f4([10, 30])),
    *[
        ("take", (BLOCK, f4([[-5, 3]])), {"axis": -2, "mode": mode}, BLOCK.take([[-5, 3]], 1, mode=mode))
        for mode in ("clip", "wrap")
    ],
    *[("pick", (BLOCK, f4(index)), attrs, f8(wanted)) for index, attrs, wanted in PICKS],
    ("pick", (f8([1, 2, 3]), f8([1.9])), {"axis": 0}, f8([2])),
    ("batch_take", (f8([[1, 2], [3, 4]]), i4([-1, 5])), {}, f8([1, 4])),
    ("one_hot", (f4([-1, 0, 3, 4, 1.7]),), {"depth": 4},
     f4([[0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]])),
    ("one_hot", (np.ones((2, 3)),), {"depth": 0}, np.zeros((2, 3, 0), "f4")),
    *[("where", (kind([[1, 0], [0, -3]]), SQUARE, -SQUARE), {}, np.where) for kind in (f4, i4, f8)],
    *[("where", (kind([0, 2]), SQUARE, -SQUARE), {}, f8([[0, -1], [2, 3]])) for kind in (f4, i4, f8)],
    ("where", (f8([NAN, 0]), f8([1, 2]), f8([5, 6])), {}, f8([1, 6])),
    *[("gather_nd", (BLOCK, p), {}, lambda x, p: np.atleast_1d(x[at(p)])) for p in PLACES],
    *[("scatter_nd", (BLOCK[at(p)] + 1, p), {"shape": (2, 3, 4)}, scattered) for p in PLACES],
    ("_backward_gather_nd", (f8([2, 3, 4]), i4([[1, 1, 0], [1, 1, 0]])), {"shape": (2, 2)}, f8([[4, 0], [0, 5]])),
    *[("diag", (f8([1, 2]),), {"k": k}, lambda x, k=k: np.diag(x, k)) for k in (-2, 1)],
    *[("diag", (count(2, 3),), {"k": k}, lambda x, k=k: np.diagonal(x, k)) for k in (-1, 0, 1)],
)  # fmt: skip
test_gradients_by_hand = gradients_test(
    ("take", (count(3, 2), f4([0, 2, 2])), {}, [[[1, 1], [0, 0], [2, 2]]]),
    ("where", (f4([[1, 0], [0, -3]]), SQUARE, -SQUARE), {}, [None, [[1, 0], [0, 1]], [[0, 1], [1, 0]]]),
)
test_shapes = rules_test(
    ("pick", [(0, 3, 4), (2, 3)], {"axis": 2}, None, [(0, 3)]),
    ("batch_take", [(5, 3), None], {}, [(5, 3), (5,)], None),
    ("one_hot", [(0, 3)], {"depth": 4}, None, [(0, 3, 4)]),
    ("one_hot", [None], {"depth": 4}, [(5, 3)], None, [(5, 3, 4)]),
    ("where", [None, None, (6, 4)], {}, [None, (6, 4), (6, 4)], [None]),
    ("where", [(0, 4), (0, 4), (6, 0)], {}, [(6, 4), (6, 4), (6, 4)], [(6, 4)]),
)
test_types = rules_test(
    *[(n, ["float16", "int32"], {}, ["float16", "int32"], ["float16"]) for n in ("take", "pick", "gather_nd")],
    ("where", ["int32", "float64", None], {}, None, ["float64"]),
    rule=types,
)  # fmt: skip
