"""Reductions and sorting in ONNX: the axes left, the type kept, equal elements in their order."""

import itertools

import numpy as np
import pytest

from helpers.onnx_runs import check_op, check_sizes

X = np.random.RandomState(1).uniform(-2, 2, (2, 3, 4)).astype("float32")
NAMES = ["sum", "mean", "prod", "nansum", "nanprod", "max", "min"]
AXES = [None, (), (0,), (1, -1), (0, 1, 2), (-3,)]


@pytest.mark.parametrize("opset", [13, 18])
def test_axes(opset):
    """Every operator with all axes, and one with all other attributes besides."""
    for name, axis in itertools.product(NAMES, AXES):
        check_op(name, X, attrs={"axis": axis}, opset=opset)
    for axis, keepdims, exclude in itertools.product(AXES, (True, False), (True, False)):
        attrs = {"axis": axis, "keepdims": keepdims, "exclude": exclude}
        check_op("max" if exclude else "sum", X, attrs=attrs, opset=opset)
    check_others(AXES[:4], opset)


@pytest.mark.slow
@pytest.mark.parametrize("opset", [13, 18])
def test_all_axes(opset):
    for name, axis, keepdims, exclude in itertools.product(NAMES, AXES, (True, False), (True, False)):
        attrs = {"axis": axis, "keepdims": keepdims, "exclude": exclude}
        check_op(name, X, attrs=attrs, opset=opset)
    check_others(AXES, opset)


def check_others(axes, opset):
    for axis, keepdims in itertools.product(axes, (True, False)):
        attrs = {"axis": axis, "keepdims": keepdims}
        check_op("norm", X, attrs={**attrs, "ord": 1}, opset=opset)
        check_op("norm", X, attrs={**attrs, "ord": 2}, opset=opset)
        check_op("_square_sum", X, attrs=attrs, opset=opset)
        check_op("moments", X, attrs={"axes": axis, "keepdims": keepdims}, opset=opset)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint8", "int32", "int64"])
def test_types(dtype):
    x = (np.arange(12).reshape(3, 4) % 5 + 1).astype(dtype)
    close = {"rtol": 2e-3} if dtype == "float16" else {}
    for name in NAMES:
        check_op(name, x, attrs={"axis": (1,)}, **close)
    for name in ("argmax", "argmin"):
        check_op(name, x, attrs={"axis": 1})
    for out in (None, "float64", "int32"):
        check_op("norm", x, attrs={"axis": (0,), "out_dtype": out}, **close)


def test_numbers_that_are_none():
    x = X.copy()
    x[0, 1, 2] = x[1, 0, 0] = np.nan
    for name in ("nansum", "nanprod", "sum", "mean"):
        check_op(name, x, attrs={"axis": (2,)})


def test_places_of_extremes():
    x = np.round(X)  # with several of a size
    for name in ("argmax", "argmin"):
        for axis, keepdims in itertools.product((None, 0, -1), (True, False)):
            check_op(name, x, attrs={"axis": axis, "keepdims": keepdims})
        check_op(name, x[0, 0], attrs={"axis": 0})
        check_sizes(name, x, attrs={"axis": 1})
    check_sizes("argmax_channel", x)


def test_a_dynamic_batch():
    for name in NAMES:
        for attrs in ({"axis": (1,)}, {"axis": (0,)}, {"axis": (0,), "exclude": True}, {}):
            check_sizes(name, X, attrs=attrs)
    check_sizes("moments", X, attrs={"axes": (0, 2)})


# sorting: all that topk returns

WHOLE = np.random.RandomState(2).randint(-4, 4, (3, 5, 2))
SORTED_AXES = [None, 0, 1, -1]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_topk(dtype):
    x = WHOLE.astype(dtype)
    for axis, kind, ascending, k in itertools.product(
        SORTED_AXES, ("value", "indices", "mask", "both"), (True, False), (0, 2)
    ):
        check_op("topk", x, attrs={"axis": axis, "k": k, "ret_typ": kind, "is_ascend": ascending})


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64"])
def test_sort(dtype):
    x = (WHOLE + 4).astype(dtype)
    for axis, ascending in itertools.product(SORTED_AXES, (True, False)):
        check_op("sort", x, attrs={"axis": axis, "is_ascend": ascending})
        check_op("argsort", x, attrs={"axis": axis, "is_ascend": ascending})
    for kind in ("float32", "float64", "int32", "int64", "uint8"):
        check_op("argsort", x, attrs={"dtype": kind})
        check_op("topk", x, attrs={"dtype": kind, "ret_typ": "both", "k": 2})


def test_sorting_a_dynamic_batch():
    x = WHOLE.astype("float32")
    for axis, kind in itertools.product(SORTED_AXES, ("value", "indices", "mask", "both")):
        check_sizes("topk", x, attrs={"axis": axis, "k": 2, "ret_typ": kind})
        check_sizes("topk", x, attrs={"axis": axis, "k": 0, "ret_typ": kind})
    check_sizes("sort", x, attrs={"axis": None})


def test_running_sums():
    for dtype in ("float16", "float32", "float64", "int8", "int32", "int64"):
        for axis in SORTED_AXES:
            check_op("_np_cumsum", WHOLE.astype(dtype), attrs={"axis": axis})
            check_op("_np_cumsum", WHOLE.astype(dtype), attrs={"axis": axis, "dtype": "float32"})
    check_op("_np_cumsum", WHOLE > 0, attrs={"axis": 1})
    check_sizes("_np_cumsum", WHOLE.astype("float32"), attrs={"axis": 0})
