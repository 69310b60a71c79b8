"""Functions over symbols made from operator declarations."""

from __future__ import annotations

from ..ops.registry import named_in
from ..ops.registry import names_in as names_in
from .symbol import Face, face


def face_of(space: str, name: str) -> Face:
    """Return a namespace's function by its public name, making it on first use.

    Args:
        space: "" for the main namespace, else "contrib", "linalg", "random", "sparse", "image" or "_internal".
    """
    return face(named_in("sym", space, name))
