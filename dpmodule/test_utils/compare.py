"""Comparisons of results, and their tolerances by element type."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from ..context import Context
from ..ndarray import NDArray
from ..symbol import Symbol

DType = np.dtype[Any]
Tolerance = float | Mapping[Any, float] | None
"""A number, numbers by dtype, or None for the default of the dtype."""

_DOUBLE = np.dtype(np.float64)
_EXACT = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def default_dtype() -> Any:
    """Return the element type of test data: ``numpy.float32``."""
    return np.float32


def _table(half: float, single: float, double: float) -> dict[DType, float]:
    return {np.dtype("float16"): half, np.dtype("float32"): single, _DOUBLE: double}


def default_rtols() -> dict[DType, float]:
    """Return the relative tolerance for each dtype; integers must be equal."""
    return _table(1e-2, 1e-4, 1e-5) | dict.fromkeys(map(np.dtype, _EXACT), 0.0)


def default_atols() -> dict[DType, float]:
    """Return the absolute tolerance for each dtype; integers must be equal."""
    return _table(1e-1, 1e-3, 1e-20) | dict.fromkeys(map(np.dtype, _EXACT), 0.0)


def default_numeric_eps() -> dict[DType, float]:
    """Return the step of finite differences for each dtype: powers of two, which are added exactly."""
    return _table(2.0**-6, 2.0**-9, 2.0**-14)


def _rounds_inputs(ctx: Context) -> bool:
    """Return True if products on this device may use TF32, with about the precision of float16."""
    if ctx.device_type != "gpu" or os.environ.get("NVIDIA_TF32_OVERRIDE") == "0":
        return False
    allowed = torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32
    return bool(allowed) and torch.cuda.get_device_capability(ctx.device_id) >= (8, 0)


def effective_dtype(dat: Any) -> DType:
    """Return the dtype that determines the expected precision of `dat`.

    Args:
        dat: an array with `dtype`, and `ctx` if it is an NDArray.

    Returns:
        Its dtype; float16 for bfloat16, and for float32 on a GPU that multiplies in TF32.
    """
    if dat.dtype == "bfloat16":
        return np.dtype(np.float16)
    dtype: DType = np.dtype(dat.dtype)
    ctx = getattr(dat, "ctx", None)
    if dtype == np.float32 and isinstance(ctx, Context) and _rounds_inputs(ctx):
        return np.dtype(np.float16)
    return dtype


def get_tolerance(dat: Any, tol: Tolerance, default_tol: Mapping[DType, float]) -> float:
    """Return the tolerance for one array.

    Args:
        tol: the caller's tolerance.
        default_tol: a number for each dtype, the default.
    """
    if tol is not None and not isinstance(tol, Mapping):
        return tol
    dtype = effective_dtype(dat)
    wanted = {np.dtype(kind): value for kind, value in (tol or {}).items()}
    return wanted[dtype] if dtype in wanted else default_tol[dtype]


def get_tols(x: Any, y: Any, rtol: Tolerance, atol: Tolerance) -> tuple[float, float]:
    """Return the (relative, absolute) tolerance for comparing two arrays or numbers: the wider of the two.

    Args:
        x: one of the two, whose type determines the default.
        rtol: relative tolerance, as a number or by dtype; None means that of the type.
    """
    both = [value if hasattr(value, "dtype") else np.asarray(value) for value in (x, y)]
    relative = max(get_tolerance(value, rtol, default_rtols()) for value in both)
    absolute = max(get_tolerance(value, atol, default_atols()) for value in both)
    return relative, absolute


def get_atol(atol: float | None = None, dtype: DType = _DOUBLE) -> float:
    """Return `atol`, or the default absolute tolerance of `dtype` if it is None.

    Args:
        atol: a tolerance, or None.
    """
    return default_atols()[dtype] if atol is None else atol


def get_rtol(rtol: float | None = None, dtype: DType = _DOUBLE) -> float:
    """Return `rtol`, or the default relative tolerance of `dtype` if it is None.

    Args:
        rtol: a tolerance, or None.
    """
    return default_rtols()[dtype] if rtol is None else rtol


def get_etol(etol: float | None = None) -> float:
    """Return the fraction of elements that may be wrong: `etol`, or 0 if it is None.

    Args:
        etol: a fraction from 0 to 1, or None.
    """
    return 0 if etol is None else etol


Array = np.ndarray[Any, Any]
Names = tuple[str, str]


def _host(value: Any) -> Array:
    return value.asnumpy() if isinstance(value, NDArray) else np.asarray(value)


def same(a: Any, b: Any) -> bool:
    """Return True if two NumPy arrays have the same shape and equal elements."""
    return np.array_equal(a, b)


def same_array(array1: NDArray, array2: NDArray) -> bool:
    """Return True if two NDArrays share memory, by writing to the first and reading the second.

    The values are restored, up to rounding.

    Args:
        array1: the array that is written.
        array2: the array that is read.
    """
    array1[:] += 1
    shared = same(array1.asnumpy(), array2.asnumpy())
    array1[:] -= 1
    return shared and same(array1.asnumpy(), array2.asnumpy())


def checkShapes(a: Any, b: Any) -> None:
    """Raise if two arrays have different shapes.

    Raises:
        AssertionError: the shapes differ.
    """
    if a.shape != b.shape:
        raise AssertionError(f"the shapes differ: a has {a.shape}, b has {b.shape}")


def almost_equal(
    a: Any,
    b: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    use_broadcast: bool = True,
) -> bool:
    """Return True if ``|a - b| <= atol + rtol * |b|`` holds everywhere.

    Args:
        b: NumPy array of the expected values.
        rtol: relative tolerance; the default is that of float64, 1e-5.
        atol: absolute tolerance; the default is that of float64, 1e-20.
        equal_nan: True to treat NaN as equal to NaN.
        use_broadcast: True to broadcast the arrays.

    Raises:
        AssertionError: the shapes differ and `use_broadcast` is False.
    """
    if not use_broadcast:
        checkShapes(a, b)
    return bool(np.allclose(a, b, rtol=get_rtol(rtol), atol=get_atol(atol), equal_nan=equal_nan))


def locationError(a: Any, b: Any, index: Any, names: Names, maxError: bool = False) -> str:
    """Describe the two elements at `index`.

    Args:
        b: another one, of the same shape.
        index: a number for each axis.
        names: names of the two.
        maxError: True for the place where they differ most.
    """
    label = "worst element" if maxError else "element"
    place = tuple(int(i) for i in index)
    return f"{label} at {place}: {names[0]}={a[index]:.8g}, {names[1]}={b[index]:.8g}"


def _violations(a: Array, b: Array, rtol: float, atol: float) -> Array:
    """Return each element's error as a multiple of its tolerance; infinite where either is NaN."""
    with np.errstate(all="ignore"):
        error = np.where(a == b, 0.0, np.abs(a.astype(np.float64) - b.astype(np.float64)))
        ratio = error / (atol + rtol * np.abs(b.astype(np.float64)) + 1e-20)
    return np.where(np.isnan(ratio), np.inf, ratio)


def _report(a: Array, b: Array, rtol: float, atol: float, wrong: Array, names: Names, shown: int) -> str:
    """Return a message with the number of wrong elements and the worst of them."""
    if a.dtype == bool:
        a, b = a.astype(np.int8), b.astype(np.int8)
    a, b, wrong = np.broadcast_arrays(a, b, wrong)
    ratio = np.where(wrong, _violations(a, b, rtol, atol), -1.0)
    order = np.argsort(-ratio, axis=None, kind="stable")[: min(max(shown, 1), int(wrong.sum()))]
    lines = [
        f"{names[0]} and {names[1]} differ: worst error is {ratio.max():.4g} times the tolerance of rtol={rtol:g}, "
        f"atol={atol:g}; {int(wrong.sum())} of {wrong.size} elements are wrong"
    ]
    for rank, flat in enumerate(order):
        index = np.unravel_index(flat, ratio.shape)
        lines.append("  " + locationError(a, b, index, names, maxError=rank == 0))
    return "\n".join(lines)


def _wrong(a: Array, b: Array, rtol: float, atol: float, equal_nan: bool) -> Array:
    if a.dtype == bool and b.dtype == bool:
        return np.asarray(a != b)
    return ~np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)


def assert_almost_equal(
    a: Any,
    b: Any,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    names: Names = ("a", "b"),
    equal_nan: bool = False,
    use_broadcast: bool = True,
    mismatches: tuple[int, int] = (10, 10),
) -> None:
    """Check that ``|a - b| <= atol + rtol * |b|`` holds everywhere.

    Args:
        a: NDArray, NumPy array, list or number.
        b: the expected values, in one of the same forms.
        rtol: relative tolerance, as a number or by dtype; None means the default of the coarser dtype.
        names: names of the two in the message.
        equal_nan: True to treat NaN as equal to NaN.
        use_broadcast: True to broadcast the arrays.
        mismatches: number of elements that the message lists; the second number is ignored, all are counted.

    Raises:
        AssertionError: an element differs by more, or the shapes do not match.

    Example:
        >>> assert_almost_equal(mx.nd.ones((2,)), np.array([1.0, 1.00005]))
    """
    if not use_broadcast:
        checkShapes(a, b)
    relative, absolute = get_tols(a, b, rtol, atol)
    left, right = _host(a), _host(b)
    try:
        wrong = _wrong(left, right, relative, absolute, equal_nan)
    except ValueError:
        raise AssertionError(
            f"{names[0]} {left.shape} and {names[1]} {right.shape} do not broadcast"
        ) from None
    if wrong.any():
        raise AssertionError(_report(left, right, relative, absolute, wrong, names, mismatches[0]))


def assert_allclose(
    a: Any, b: Any, rtol: Tolerance = 1e-07, atol: Tolerance = 0, equal_nan: bool = True
) -> None:
    """Call `assert_almost_equal` with NumPy's tolerances: 1e-7 relative, 0 absolute, NaN equals NaN.

    Args:
        a: NDArray, NumPy array, list or number.
        b: the expected values, in one of the same forms.
        rtol: relative tolerance, as a number or by dtype; None means the default of the coarser dtype.
        equal_nan: True to treat NaN as equal to NaN.
    """
    assert_almost_equal(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)


def assert_almost_equal_with_err(
    a: Any,
    b: Any,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    etol: float | None = None,
    names: Names = ("a", "b"),
    equal_nan: bool = False,
    mismatches: tuple[int, int] = (10, 10),
) -> None:
    """Check like `assert_almost_equal`, but allow a fraction `etol` (0 to 1) of the elements to be wrong.

    Args:
        a: NDArray, NumPy array, list or number.
        b: the expected values, in one of the same forms.
        rtol: relative tolerance, as a number or by dtype; None means the default of the coarser dtype.
        etol: fraction of the elements that may differ, 0 to 1; None means 0.
        names: names of the two in the message.
        equal_nan: True to treat NaN as equal to NaN.
        mismatches: number of elements that the message lists; the second number is ignored, all are counted.

    Raises:
        AssertionError: more elements are wrong.
    """
    share = get_etol(etol)
    if share <= 0:
        assert_almost_equal(a, b, rtol, atol, names, equal_nan, mismatches=mismatches)
        return
    relative, absolute = get_tols(a, b, rtol, atol)
    left, right = _host(a), _host(b)
    wrong = _wrong(left, right, relative, absolute, equal_nan)
    if wrong.mean() > share:
        raise AssertionError(_report(left, right, relative, absolute, wrong, names, mismatches[0]))


def assert_almost_equal_ignore_nan(
    a: Any, b: Any, rtol: Tolerance = None, atol: Tolerance = None, names: Names = ("a", "b")
) -> None:
    """Check like `assert_almost_equal`, leaving out elements where either array has NaN.

    Args:
        a: NDArray, NumPy array, list or number.
        b: the expected values, in one of the same forms.
        rtol: relative tolerance, as a number or by dtype; None means the default of the coarser dtype.
        names: names of the two in the message.
    """
    left, right = _host(a).copy(), _host(b).copy()
    unknown = np.isnan(left) | np.isnan(right)
    left[unknown] = 0
    right[unknown] = 0
    assert_almost_equal(left, right, rtol, atol, names)


def assert_exception(f: Callable[..., Any], exception_type: Any, *args: Any, **kwargs: Any) -> None:
    """Check that ``f(*args, **kwargs)`` raises `exception_type`.

    Args:
        f: function to call.
        exception_type: an exception class, or a tuple of them.
        *args: arguments of `f`.
        **kwargs: arguments of `f` by name.

    Raises:
        AssertionError: the function returned. Other exceptions propagate.
    """
    try:
        f(*args, **kwargs)
    except exception_type:
        return
    raise AssertionError(f"{getattr(f, '__name__', f)} returned; expected it to raise {exception_type}")


def compare_ndarray_tuple(t1: Any, t2: Any, rtol: Tolerance = None, atol: Tolerance = None) -> None:
    """Check that two arrays, or nested tuples or lists of arrays, are almost equal.

    None on either side is not compared.

    Args:
        t1: an array, or a nested list of arrays.
        t2: the same, with the expected values.
        rtol: relative tolerance, see `assert_almost_equal`.
    """
    if t1 is None or t2 is None:
        return
    if isinstance(t1, (tuple, list)):
        for one, other in zip(t1, t2):
            compare_ndarray_tuple(one, other, rtol, atol)
    else:
        assert_almost_equal(t1, t2, rtol=rtol, atol=atol)


def same_symbol_structure(sym1: Symbol, sym2: Symbol) -> bool:
    """Return True if two symbols have the same operators in the same order, whatever their names."""
    operators = [[node["op"] for node in json.loads(sym.tojson())["nodes"]] for sym in (sym1, sym2)]
    return operators[0] == operators[1]
