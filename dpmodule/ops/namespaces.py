"""Which operators a namespace of `nd` or `sym` shows, and under which names."""

from __future__ import annotations

from functools import cache

from ..base import did_you_mean
from .registry import names, namespace_of


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


def named_in(face: str, space: str, name: str) -> str:
    """Return the operator of a public name in a namespace of `face`, which is "nd" or "sym"."""
    known = names_in(space)
    if name not in known:
        where = f"{face}.{space}" if space else face
        hint = "" if name.startswith("__") else did_you_mean(name, known)
        raise AttributeError(f"{where} has no operator {name!r}{hint}")
    return known[name]
