"""Functions over symbols made from operator declarations."""

from __future__ import annotations

from ..ops.registry import find_operator_name
from ..ops.registry import names_in as names_in
from .symbol import Face, face


def face_of(space: str, name: str) -> Face:
    """Return a namespace's function by its public name, making it on first use.

    Args:
        space: "" for the main namespace, else "contrib", "linalg", "random", "sparse", "image" or "_internal".
    """
    return face(find_operator_name("sym", space, name))
