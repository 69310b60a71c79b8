"""Arithmetic and functions of elements in ONNX: all types, and numbers that are none."""

import itertools

import numpy as np
import pytest

from dpmodule.onnx.to_onnx.translation import builders
from dpmodule.ops.math.binary import _ARITHMETIC, _SCALAR, COMPARISONS
from dpmodule.ops.math.unary import _ELEMENTWISE
from helpers.onnx_runs import check_op, check_sizes, our_outputs, symbol_of

FLOATS = [-np.inf, -7.5, -2.5, -1.5, -1, -0.5, -0.0, 0.0, 0.3, 0.5, 1, 1.5, 2.5, 3, 7.25, np.inf, np.nan]
WHOLE = [-7, -3, -2, -1, 0, 1, 2, 3, 4, 7]
TYPES = ["float16", "float32", "float64", "int8", "uint8", "int32", "int64"]

# of whole numbers these are infinite or not numbers somewhere, which no integer is
NOT_WHOLE = {
    "log",
    "log10",
    "log2",
    "log1p",
    "sqrt",
    "rsqrt",
    "rcbrt",
    "reciprocal",
    "gamma",
    "gammaln",
    "erfinv",
}
NOT_WHOLE |= {"arcsin", "arccos", "arccosh", "arctanh"}


def numbers(dtype):
    if "float" in dtype:
        return np.array(FLOATS, dtype)
    return np.abs(WHOLE).astype(dtype) if dtype.startswith("u") else np.array(WHOLE, dtype)


def close(dtype):
    return {"rtol": 2e-3, "atol": 2e-3} if dtype == "float16" else {"rtol": 1e-5, "atol": 1e-6}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_of_one_array(dtype):
    for name in _ELEMENTWISE:
        x = numbers(dtype)
        if "int" in dtype and (name in NOT_WHOLE or name == "erf"):
            continue
        if name in ("gamma", "gammaln"):
            x = x[1:]  # -inf has no fraction
        if name == "rcbrt":
            x = x[~np.signbit(x) | (x != 0)]  # the runtime loses the sign of -0
        check_op(name, x, **close(dtype))


def test_logarithms_of_whole_numbers():
    for name in ("log", "log2", "log10", "sqrt", "gamma", "gammaln"):
        check_op(name, np.array([1, 2, 3, 4, 5, 7], "int32"))


@pytest.mark.parametrize("dtype", TYPES)
def test_arithmetic_of_two_arrays(dtype):
    x = numbers(dtype)
    left, right = np.repeat(x, len(x)), np.tile(x, len(x))
    for _, _, names, _, _ in _ARITHMETIC:
        if names[0] == "_hypot":
            kept = ~(np.isinf(left) & np.isnan(right) | np.isnan(left) & np.isinf(right))
        elif names[0] == "_power" and "int" in dtype:
            kept = ~((left == 0) & (right.astype("int64") < 0))
        else:
            kept = np.ones(len(left), bool)
        check_op(names[0], left[kept], right[kept], **close(dtype))


@pytest.mark.parametrize("dtype", [*TYPES, "bool"])
def test_comparison_and_logic(dtype):
    x = np.array([False, True]) if dtype == "bool" else numbers(dtype)
    left, right = np.repeat(x, len(x)), np.tile(x, len(x))
    for word in COMPARISONS:
        check_op(f"_{word}", left, right)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("is_int", [True, False])
def test_arithmetic_with_a_number(dtype, is_int):
    x = numbers(dtype)
    for word in (*_SCALAR, *COMPARISONS):
        for number in (2, -3, 0, 2.5) if is_int else (2.5,):
            if dtype == "uint8" and number < 0:
                continue
            if word in ("power", "rpower") and "int" in dtype and (number <= 0 or number == 2.5):
                continue
            if word in ("rdiv", "div") and not is_int and number == 0:
                continue
            check_op(f"_{word}_scalar", x, attrs={"scalar": number, "is_int": is_int}, **close(dtype))


def test_a_number_is_the_operand_that_its_name_says():
    x = np.array([2.0, 5.0], "float32")
    for name, wanted in (("_minus_scalar", x - 3), ("_rminus_scalar", 3 - x), ("_rdiv_scalar", 3 / x)):
        assert np.allclose(our_outputs(symbol_of(name, 1, {"scalar": 3}), {"x0": x})[0], wanted)
        check_op(name, x, attrs={"scalar": 3})


def test_limits():
    for dtype in TYPES:
        for low, high in ((-1.5, 300), (1, -100), (-np.inf, 2)):
            check_op("clip", numbers(dtype), attrs={"a_min": low, "a_max": high})


def test_smooth_l1():
    for dtype in ("float32", "float64", "int32"):
        for number in (1.0, 0.3, 2.0):
            check_op("smooth_l1", numbers(dtype), attrs={"scalar": number})


def test_near_0_nothing_is_lost():
    x = np.array([1e-7, -3e-6, 1e-4, -0.01, 0.4, 0.6, 20], "float32")
    for name in ("expm1", "log1p"):
        check_op(name, x, rtol=1e-6, atol=0)


def test_the_gamma_function_over_its_range():
    x = np.concatenate([np.arange(-20, 34, 0.3), [1e-3, 33.9, 100.0, 1e4, 1e10]])
    check_op("gamma", x[:-3], rtol=1e-9, atol=0)
    check_op("gammaln", x, rtol=1e-9, atol=1e-12)
    check_op("gammaln", x.astype("float32"), rtol=1e-5, atol=1e-6)


def test_the_inverse_error_function_over_its_range():
    x = np.concatenate([np.linspace(-1, 1, 201), 1 - np.logspace(-12, -1, 30)])
    check_op("erfinv", x, rtol=5e-6, atol=1e-9)


def test_sums_of_many():
    for dtype in ("float32", "float64", "int8", "int64"):
        x = np.arange(-3, 3).astype(dtype)
        check_op("add_n", x, attrs={})
        check_op("add_n", x, x * 2, x + 1, attrs={})


def test_a_dynamic_length():
    x = np.ones((2, 3), "float32")
    for name in ("zeros_like", "ones_like", "shape_array", "size_array"):
        check_sizes(name, x)


def test_small_integers_wrap_before_version_14():
    x = np.array([200, 100], "uint8")
    for name in ("elemwise_add", "elemwise_mul", "elemwise_sub"):
        check_op(name, x, np.array([100, 200], "uint8"), opset=13)


def test_builders_are_found_by_name():
    assert {"divide", "log2", "gamma"} <= set(builders())


# reductions and sorting in ONNX: the axes left, the type kept, equal elements in their order

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

REDUCED_WHOLE = np.random.RandomState(2).randint(-4, 4, (3, 5, 2))
SORTED_AXES = [None, 0, 1, -1]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_topk(dtype):
    x = REDUCED_WHOLE.astype(dtype)
    for axis, kind, ascending, k in itertools.product(
        SORTED_AXES, ("value", "indices", "mask", "both"), (True, False), (0, 2)
    ):
        check_op("topk", x, attrs={"axis": axis, "k": k, "ret_typ": kind, "is_ascend": ascending})


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64"])
def test_sort(dtype):
    x = (REDUCED_WHOLE + 4).astype(dtype)
    for axis, ascending in itertools.product(SORTED_AXES, (True, False)):
        check_op("sort", x, attrs={"axis": axis, "is_ascend": ascending})
        check_op("argsort", x, attrs={"axis": axis, "is_ascend": ascending})
    for kind in ("float32", "float64", "int32", "int64", "uint8"):
        check_op("argsort", x, attrs={"dtype": kind})
        check_op("topk", x, attrs={"dtype": kind, "ret_typ": "both", "k": 2})


def test_sorting_a_dynamic_batch():
    x = REDUCED_WHOLE.astype("float32")
    for axis, kind in itertools.product(SORTED_AXES, ("value", "indices", "mask", "both")):
        check_sizes("topk", x, attrs={"axis": axis, "k": 2, "ret_typ": kind})
        check_sizes("topk", x, attrs={"axis": axis, "k": 0, "ret_typ": kind})
    check_sizes("sort", x, attrs={"axis": None})


def test_running_sums():
    for dtype in ("float16", "float32", "float64", "int8", "int32", "int64"):
        for axis in SORTED_AXES:
            check_op("_np_cumsum", REDUCED_WHOLE.astype(dtype), attrs={"axis": axis})
            check_op("_np_cumsum", REDUCED_WHOLE.astype(dtype), attrs={"axis": axis, "dtype": "float32"})
    check_op("_np_cumsum", REDUCED_WHOLE > 0, attrs={"axis": 1})
    check_sizes("_np_cumsum", REDUCED_WHOLE.astype("float32"), attrs={"axis": 0})
