"""Arithmetic, reductions and sorting in ONNX: all types, axes, equal elements, and numbers that are none."""

import numpy as np
import pytest

from dpmodule.ops.math.binary import COMPARISONS, SCALAR
from dpmodule.ops.math.unary import ELEMENTWISE
from helpers.onnx_runs import check_op, check_sizes

FLOATS = [-np.inf, -7.5, -2.5, -1.5, -1, -0.5, -0.0, 0.0, 0.3, 0.5, 1, 1.5, 2.5, 3, 7.25, np.inf, np.nan]
WHOLE = [-7, -3, -2, -1, 0, 1, 2, 3, 4, 7]
TYPES = ["float16", "float32", "float64", "int8", "uint8", "int32", "int64"]
BOTH = [True, False]

ARITHMETIC = "elemwise_add elemwise_sub elemwise_mul elemwise_div _mod _power _maximum _minimum _hypot"

# of whole numbers these are infinite or not numbers somewhere, which no integer is
NOT_WHOLE = "log log10 log2 log1p sqrt rsqrt rcbrt reciprocal gamma gammaln"
NOT_WHOLE += " erfinv arcsin arccos arccosh arctanh"


def numbers(dtype):
    if "float" in dtype:
        return np.array(FLOATS, dtype)
    return np.abs(WHOLE).astype(dtype) if dtype.startswith("u") else np.array(WHOLE, dtype)


def pairs(x):
    return np.repeat(x, len(x)), np.tile(x, len(x))


def close(dtype):
    return {"rtol": 2e-3, "atol": 2e-3} if dtype == "float16" else {"rtol": 1e-5, "atol": 1e-6}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_of_one_array(dtype):
    for name in ELEMENTWISE:
        x = numbers(dtype)
        if "int" in dtype and name in (*NOT_WHOLE.split(), "erf"):
            continue
        if name in ("gamma", "gammaln"):
            x = x[1:]  # -inf has no fraction
        if name == "rcbrt":
            x = x[~np.signbit(x) | (x != 0)]  # the runtime loses the sign of -0
        check_op(name, x, **close(dtype))


@pytest.mark.parametrize("dtype", TYPES)
def test_arithmetic_of_two_arrays(dtype):
    left, right = pairs(numbers(dtype))
    for name in ARITHMETIC.split():
        kept = np.ones(len(left), bool)
        if name == "_hypot":
            kept = ~(np.isinf(left) & np.isnan(right) | np.isnan(left) & np.isinf(right))
        elif name == "_power" and "int" in dtype:
            kept = ~((left == 0) & (right.astype("int64") < 0))
        check_op(name, left[kept], right[kept], **close(dtype))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("is_int", BOTH)
def test_arithmetic_with_a_number(dtype, is_int):
    for word in (*SCALAR, *COMPARISONS):
        for number in (2, -3, 0, 2.5) if is_int else (2.5,):
            if dtype == "uint8" and number < 0:
                continue
            if word in ("power", "rpower") and "int" in dtype and (number <= 0 or number == 2.5):
                continue
            check_op(f"_{word}_scalar", numbers(dtype), scalar=number, is_int=is_int, **close(dtype))


def test_limits_and_sums():
    for dtype in TYPES:
        for low, high in ((-1.5, 300), (1, -100), (-np.inf, 2)):
            check_op("clip", numbers(dtype), a_min=low, a_max=high)
    for dtype in ("float32", "float64", "int32"):
        check_op("smooth_l1", numbers(dtype), scalar=[1.0, 0.3, 2.0])
    x = np.arange(-3, 3)
    check_op("add_n", x, types=["float32", "float64", "int8", "int64"])
    check_op("add_n", x, x * 2, x + 1, types=["float32", "float64", "int8", "int64"])
    for name in ("zeros_like", "ones_like", "shape_array", "size_array"):
        check_sizes(name, np.ones((2, 3), "float32"))
    for name in ("elemwise_add", "elemwise_mul", "elemwise_sub"):  # of small integers, before version 14
        check_op(name, np.array([200, 100], "uint8"), np.array([100, 200], "uint8"), opset=13)


def test_ranges_of_functions():
    for name in ("log", "log2", "log10", "sqrt", "gamma", "gammaln"):
        check_op(name, np.array([1, 2, 3, 4, 5, 7], "int32"))
    x = np.array([1e-7, -3e-6, 1e-4, -0.01, 0.4, 0.6, 20], "float32")
    for name in ("expm1", "log1p"):  # near 0 nothing is lost
        check_op(name, x, rtol=1e-6, atol=0)
    x = np.concatenate([np.arange(-20, 34, 0.3), [1e-3, 33.9, 100.0, 1e4, 1e10]])
    check_op("gamma", x[:-3], rtol=1e-9, atol=0)
    check_op("gammaln", x, rtol=1e-9, atol=1e-12)
    check_op("gammaln", x.astype("float32"), rtol=1e-5, atol=1e-6)
    x = np.concatenate([np.linspace(-1, 1, 201), 1 - np.logspace(-12, -1, 30)])
    check_op("erfinv", x, rtol=5e-6, atol=1e-9)


X = np.random.RandomState(1).uniform(-2, 2, (2, 3, 4)).astype("float32")
NAMES = ["sum", "mean", "prod", "nansum", "nanprod", "max", "min"]
AXES = [None, (), (0,), (1, -1), (0, 1, 2), (-3,)]


@pytest.mark.parametrize("opset", [13, 18])
def test_axes(opset):
    for name in NAMES:
        check_op(name, X, axis=AXES, opset=opset)
    check_op("max", X, axis=AXES, keepdims=BOTH, exclude=BOTH, opset=opset)
    check_op("norm", X, axis=AXES[:4], keepdims=BOTH, ord=[1, 2], opset=opset)
    check_op("_square_sum", X, axis=AXES[:4], keepdims=BOTH, opset=opset)
    check_op("moments", X, axes=AXES[:4], keepdims=BOTH, opset=opset)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint8", "int32", "int64"])
def test_types_of_reductions(dtype):
    x, close = np.arange(12).reshape(3, 4) % 5 + 1, {"rtol": 2e-3} if dtype == "float16" else {}
    x = x.astype(dtype)
    for name in NAMES:
        check_op(name, x, axis=(1,), **close)
    for name in ("argmax", "argmin"):
        check_op(name, x, axis=1)
    check_op("norm", x, axis=(0,), out_dtype=[None, "float64", "int32"], **close)


def test_reductions():
    x = X.copy()
    x[0, 1, 2] = x[1, 0, 0] = np.nan
    for name in ("nansum", "nanprod", "sum", "mean"):
        check_op(name, x, axis=(2,))
    x = np.round(X)  # with several of a size
    for name in ("argmax", "argmin"):
        check_op(name, x, axis=[None, 0, -1], keepdims=BOTH)
        check_op(name, x[0, 0], axis=0)


SHUFFLED = np.random.RandomState(2).randint(-4, 4, (3, 5, 2))
SORTED_AXES = [None, 0, 1, -1]
KINDS = ["value", "indices", "mask", "both"]


def test_topk():
    attrs = {"axis": SORTED_AXES, "k": [0, 2], "ret_typ": KINDS, "is_ascend": BOTH}
    check_op("topk", SHUFFLED, types=["float64", "int32"], **attrs)


@pytest.mark.parametrize("dtype", TYPES)
def test_sort(dtype):
    x, kinds = (SHUFFLED + 4).astype(dtype), ["float32", "float64", "int32", "int64", "uint8"]
    check_op("sort", x, axis=SORTED_AXES, is_ascend=BOTH)
    check_op("argsort", x, axis=SORTED_AXES, is_ascend=BOTH)
    check_op("argsort", x, dtype=kinds)
    check_op("topk", x, dtype=kinds, ret_typ="both", k=2)


def test_sorting_a_dynamic_batch_and_running_sums():
    check_sizes("topk", SHUFFLED.astype("float32"), axis=SORTED_AXES, k=[0, 2], ret_typ=KINDS)
    check_op("_np_cumsum", SHUFFLED, types=[t for t in TYPES if t != "uint8"], axis=SORTED_AXES)
