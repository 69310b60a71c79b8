"""Functions of symbols generated from operator declarations."""

from __future__ import annotations

from ..ops.registry import find_operator_name
from ..ops.registry import names_in as names_in
from .symbol import OpFunction, op_function


def op_function_in(space: str, name: str) -> OpFunction:
    """Return a namespace's function by its public name; it is created at the first use.

    Args:
        space: "" for the main namespace, else "contrib", "linalg", "random", "sparse", "image" or "_internal".
    """
    return op_function(find_operator_name("sym", space, name))
