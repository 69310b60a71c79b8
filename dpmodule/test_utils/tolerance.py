"""How far two results may be apart: tolerances by element type."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ..context import Context

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
    """Return the relative tolerance for each dtype; whole numbers have to be equal."""
    return _table(1e-2, 1e-4, 1e-5) | dict.fromkeys(map(np.dtype, _EXACT), 0.0)


def default_atols() -> dict[DType, float]:
    """Return the absolute tolerance for each dtype; whole numbers have to be equal."""
    return _table(1e-1, 1e-3, 1e-20) | dict.fromkeys(map(np.dtype, _EXACT), 0.0)


def default_numeric_eps() -> dict[DType, float]:
    """Return the step of finite differences for each dtype: powers of two, which add without rounding."""
    return _table(2.0**-6, 2.0**-9, 2.0**-14)


def _rounds_inputs(ctx: Context) -> bool:
    """Say whether products on this device may be taken in TF32, with about the precision of float16."""
    if ctx.device_type != "gpu" or os.environ.get("NVIDIA_TF32_OVERRIDE") == "0":
        return False
    allowed = torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32
    return bool(allowed) and torch.cuda.get_device_capability(ctx.device_id) >= (8, 0)


def effective_dtype(dat: Any) -> DType:
    """Return the dtype that governs how exactly `dat` can be expected to be known.

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
        tol: what the caller asked for.
        default_tol: a number for each dtype, used where `tol` says nothing.
    """
    if tol is not None and not isinstance(tol, Mapping):
        return tol
    dtype = effective_dtype(dat)
    wanted = {np.dtype(kind): value for kind, value in (tol or {}).items()}
    return wanted[dtype] if dtype in wanted else default_tol[dtype]


def get_tols(x: Any, y: Any, rtol: Tolerance, atol: Tolerance) -> tuple[float, float]:
    """Return the (relative, absolute) tolerance for comparing two arrays or numbers: the wider of the two.

    Args:
        x: one of the two, by whose type None is replaced.
        rtol: relative tolerance, as a number or by dtype; None for that of the type.
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
    """Return the share of elements that may be wrong: `etol`, or 0 if it is None.

    Args:
        etol: a share from 0 to 1, or None.
    """
    return 0 if etol is None else etol
