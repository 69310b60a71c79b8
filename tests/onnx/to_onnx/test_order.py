"""Sorting in ONNX: all that topk returns, equal elements in their order."""

import itertools

import numpy as np
import pytest

from helpers.onnx_runs import check_op, check_sizes

X = np.random.RandomState(2).randint(-4, 4, (3, 5, 2))
AXES = [None, 0, 1, -1]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_topk(dtype):
    x = X.astype(dtype)
    for axis, kind, ascending, k in itertools.product(
        AXES, ("value", "indices", "mask", "both"), (True, False), (0, 2)
    ):
        check_op("topk", x, attrs={"axis": axis, "k": k, "ret_typ": kind, "is_ascend": ascending})


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64"])
def test_sort(dtype):
    x = (X + 4).astype(dtype)
    for axis, ascending in itertools.product(AXES, (True, False)):
        check_op("sort", x, attrs={"axis": axis, "is_ascend": ascending})
        check_op("argsort", x, attrs={"axis": axis, "is_ascend": ascending})
    for kind in ("float32", "float64", "int32", "int64", "uint8"):
        check_op("argsort", x, attrs={"dtype": kind})
        check_op("topk", x, attrs={"dtype": kind, "ret_typ": "both", "k": 2})


def test_a_dynamic_batch():
    x = X.astype("float32")
    for axis, kind in itertools.product(AXES, ("value", "indices", "mask", "both")):
        check_sizes("topk", x, attrs={"axis": axis, "k": 2, "ret_typ": kind})
        check_sizes("topk", x, attrs={"axis": axis, "k": 0, "ret_typ": kind})
    check_sizes("sort", x, attrs={"axis": None})


def test_running_sums():
    for dtype in ("float16", "float32", "float64", "int8", "int32", "int64"):
        for axis in AXES:
            check_op("_np_cumsum", X.astype(dtype), attrs={"axis": axis})
            check_op("_np_cumsum", X.astype(dtype), attrs={"axis": axis, "dtype": "float32"})
    check_op("_np_cumsum", X > 0, attrs={"axis": 1})
    check_sizes("_np_cumsum", X.astype("float32"), attrs={"axis": 0})
