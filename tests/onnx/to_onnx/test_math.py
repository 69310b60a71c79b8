"""Arithmetic and functions of elements in ONNX: all types, and numbers that are none."""

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
