"""Values for a symbol's arguments and states, given by name or in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base import ArgumentError
from ..context import Context
from ..ndarray import NDArray, array
from ..symbol import Symbol

Values = Mapping[str, Any] | Sequence[Any]


def check_dtype(dtype: Any, *, keep: bool = True) -> None:
    """Refuse anything but float16, float32, float64 and, with `keep`, "asnumpy"."""
    if (
        dtype in (np.float16, np.float32, np.float64)
        or keep
        and isinstance(dtype, str)
        and dtype == "asnumpy"
    ):
        return
    raise ArgumentError(
        f"dtype is {dtype!r}, expected numpy.float16, float32 or float64, or 'asnumpy' to keep it"
    )


def as_array(value: Any, ctx: Context | None, dtype: Any) -> NDArray:
    """Make an NDArray of `value`, which keeps its dtype if `dtype` is "asnumpy"."""
    kept = isinstance(dtype, str) and dtype == "asnumpy"
    return array(value, ctx=ctx, dtype=value.dtype if kept else dtype)


def _by_name(what: str, names: Sequence[str], given: Values) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        return dict(zip(names, given))
    if set(given) != set(names):
        raise ArgumentError(f"{what} are {sorted(given)}, expected those of the symbol: {sorted(names)}")
    return dict(given)


def named_arguments(sym: Symbol, location: Values, ctx: Context | None, dtype: Any) -> dict[str, NDArray]:
    """Return the arguments' values by name, in the names' order, NumPy arrays turned into NDArrays."""
    given = _by_name("arguments", sym.list_arguments(), location)
    return {
        name: as_array(value, ctx, dtype) if isinstance(value, np.ndarray) else value
        for name, value in sorted(given.items())
    }


def named_states(
    sym: Symbol, aux_states: Values | None, ctx: Context | None, dtype: Any
) -> dict[str, NDArray] | None:
    """Return copies of the auxiliary states by name, None if none were given."""
    if aux_states is None:
        return None
    given = _by_name("aux_states", sym.list_auxiliary_states(), aux_states)
    return {name: as_array(value, ctx, dtype) for name, value in given.items()}


def named_requests(sym: Symbol, grad_req: Any) -> dict[str, str]:
    """Return "write", "add" or "null" for each argument, from one word, words in order, or words by name."""
    if isinstance(grad_req, str):
        return dict.fromkeys(sym.list_arguments(), grad_req)
    if isinstance(grad_req, Mapping):
        return dict(grad_req)
    return dict(zip(sym.list_arguments(), grad_req))
