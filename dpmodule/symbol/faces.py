"""Functions over symbols made from operator declarations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import did_you_mean
from ..ops import get as get_op
from ..ops import namespace_of
from ..ops.namespaces import names_in as names_in
from ..ops.signature import docstring, signature
from .symbol import Symbol, call

__all__ = ["face_of", "names_in"]

Face = Callable[..., Symbol]
_faces: dict[str, Face] = {}


def _make(alias: str) -> Face:
    op = get_op(alias)

    def function(
        *args: Any, name: str | None = None, attr: Any = None, out: Any = None, **kwargs: Any
    ) -> Symbol:
        return call(alias, *args, name=name, attr=attr, **kwargs)

    function.__name__ = function.__qualname__ = namespace_of(alias)[1]
    function.__module__ = "dpmodule.symbol"
    function.__doc__ = docstring(op)
    function.__signature__ = signature(op, ("name", "attr", "out"))  # type: ignore[attr-defined]
    return function


def face_of(space: str, name: str) -> Face:
    """Return a namespace's function by its public name, making it on first use.

    Args:
        space: "" for the main namespace, else "contrib", "linalg", "random", "sparse", "image" or "_internal".
        name: public name of the operator.

    Raises:
        AttributeError: the namespace has no such operator; the text offers names that look alike.
    """
    known = names_in(space)
    if name not in known:
        where = f"sym.{space}" if space else "sym"
        hint = "" if name.startswith("__") else did_you_mean(name, known)
        raise AttributeError(f"{where} has no operator {name!r}{hint}")
    alias = known[name]
    if alias not in _faces:
        _faces[alias] = _make(alias)
    return _faces[alias]
