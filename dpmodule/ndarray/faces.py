"""Functions over arrays made from operator declarations."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from ..base import MXNetError
from ..ops import find, names, namespace_of
from ..ops.signature import docstring, signature
from ..ops.spec import Op
from .invoke import call
from .plan import Plan, execute

__all__ = ["face", "face_of", "listed", "make_face", "names_in"]

Face = Callable[..., Any]
_faces: dict[str, Face] = {}


def make_face(op: Op, name: str) -> Face:
    """Return the function of an operator under one of its names.

    It takes inputs, then attributes, by position or name, and the keywords `out` and `name`.
    """
    count = len(op.inputs) if isinstance(op.inputs, tuple) and op.variadic is None else -1
    bare: Plan | None = None

    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal bare
        if kwargs or len(args) != count or not count:
            return call(op, args, kwargs)
        if bare is None:
            try:
                bare = Plan(op, {}, count)
            except MXNetError:  # an attribute is required
                return call(op, args, kwargs)
        if bare.count != count:  # some inputs exist under other attributes only
            return call(op, args, kwargs)
        return execute(bare, args)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = docstring(op)
    run.__module__ = "dpmodule.ndarray"
    run.__signature__ = signature(op, ("out", "name"))  # type: ignore[attr-defined]
    return run


def face(name: str) -> Face:
    """Return the function of an operator's name or alias, making it on first use.

    Raises:
        AttributeError: there is no such operator; the text offers names that look alike.
    """
    found = _faces.get(name)
    if found is None:
        op = find(name)
        if op is None:
            near = difflib.get_close_matches(name, names(), 3)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise AttributeError(f"there is no operator {name!r}{hint}")
        found = _faces[name] = make_face(op, namespace_of(name)[1])
    return found


def names_in(space: str) -> dict[str, str]:
    """Return the public names of a namespace and the operator names they stand for.

    "" is the main one. "_internal" holds every name with a leading underscore, those of other namespaces too,
    as code written for MXNet looks some of them up there. "random" has no ``_sample_`` operators: its
    functions choose between those and the ``_random_`` ones by their arguments.
    """
    return _names_in(space, len(names()))


@cache
def _names_in(space: str, count: int) -> dict[str, str]:
    """Do the work of `names_in` once, and again when the number of operators has grown."""
    if space == "_internal":
        return {n: n for n in names() if n.startswith("_")}
    pairs = ((n, *namespace_of(n)) for n in names() if not n.startswith("_sample_"))
    return {public: name for name, where, public in pairs if where == space}


def face_of(space: str, name: str) -> Face:
    """Return a namespace's function by its public name.

    Raises:
        AttributeError: the namespace has no such operator.
    """
    known = names_in(space)
    if name not in known:
        where = f"nd.{space}" if space else "nd"
        near = [] if name.startswith("__") else difflib.get_close_matches(name, known, 3)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise AttributeError(f"{where} has no operator {name!r}{hint}")
    return face(known[name])


def listed(space: str, own: Iterable[str]) -> list[str]:
    """Return what ``dir()`` of a namespace module shows: its operators and its own names."""
    return sorted({*names_in(space), *own})
