"""Functions over arrays made from operator declarations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import did_you_mean
from ..ops import find, names, namespace_of
from ..ops.registry import named_in
from ..ops.registry import names_in as names_in
from ..ops.signature import docstring, signature
from ..ops.spec import Op
from .call_cache import Forms
from .execution import execute
from .invoke import call

Face = Callable[..., Any]
_faces: dict[str, Face] = {}


def make_face(op: Op, name: str) -> Face:
    """Return the function of an operator under one of its names.

    It takes inputs, then attributes, by position or name, and the keywords `out` and `name`.
    """
    forms: Forms = {}

    def run(*args: Any, **kwargs: Any) -> Any:
        form = forms.get((len(args), *kwargs))
        found = form.find(args, kwargs) if form is not None else None
        if found is None:
            return call(op, args, kwargs, forms)
        return execute(found[0], found[1], None, kwargs.get("out"))

    run.__name__ = run.__qualname__ = name
    run.__doc__ = docstring(op)
    run.__module__ = "dpmodule.ndarray"
    run.__signature__ = signature(op, ("out", "name"))  # type: ignore[attr-defined]
    return run


def face(name: str) -> Face:
    """Return the function of an operator's name or alias, making it on first use."""
    found = _faces.get(name)
    if found is None:
        op = find(name)
        if op is None:
            raise AttributeError(f"there is no operator {name!r}{did_you_mean(name, names())}")
        found = _faces[name] = make_face(op, namespace_of(name)[1])
    return found


def face_of(space: str, name: str) -> Face:
    """Return a namespace's function by its public name."""
    return face(named_in("nd", space, name))
