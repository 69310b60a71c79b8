"""Operators as methods of symbols: ``x.sum(axis=1)`` is ``sym.sum(x, axis=1)``."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..base import NotImplementedForSymbol
from ..later import Method
from ..ndarray.methods import FLUENT
from ..ops import names
from .creation import split_v2
from .faces import face_of
from .symbol import Symbol, call

__all__ = ["attach"]

_NEEDS_VALUES = {
    "asnumpy": "eval() or bind()",
    "asscalar": "eval() or bind()",
    "as_in_context": "bind(ctx=...)",
    "wait_to_read": None,
    "copy": "copy.copy()",
    "backward": "Executor.backward()",
    "detach": "sym.BlockGrad()",
}


def _reshape(self: Symbol, *shape: Any, **kwargs: Any) -> Symbol:
    """Return this symbol in another shape; takes numbers, or one tuple."""
    if shape:
        kwargs["shape"] = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    return call("Reshape", self, **kwargs)


def _astype(self: Symbol, dtype: Any, **kwargs: Any) -> Symbol:
    """Return this symbol with another element type."""
    return call("Cast", self, dtype=dtype, **kwargs)


def _refusal(name: str, instead: str | None) -> Any:
    def method(self: Symbol, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedForSymbol(name, instead)

    method.__name__ = name
    method.__doc__ = (
        f"Raise NotImplementedForSymbol: a symbol has no values{f'; use {instead}' if instead else ''}."
    )
    return method


def attach() -> None:
    """Give `Symbol` its operator methods."""
    for name in set(FLUENT).intersection(names()):
        if not hasattr(Symbol, name):
            setattr(Symbol, name, Method(Symbol, name, partial(face_of, "", name)))
    for name, function in (("reshape", _reshape), ("astype", _astype), ("split_v2", split_v2)):
        setattr(Symbol, name, function)
    for name, instead in _NEEDS_VALUES.items():
        setattr(Symbol, name, _refusal(name, instead))


attach()
