"""Which function translates what: all of them, found by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module

from .call import OperatorCall

__all__ = ["SUBJECTS", "builder", "builders"]

Builder = Callable[[OperatorCall], str | Sequence[str]]

SUBJECTS = (
    "array",
    "attention",
    "contrib",
    "control_flow",
    "create",
    "detection",
    "image",
    "indexing",
    "linalg",
    "losses",
    "math",
    "nn",
    "norm",
    "order",
    "pooling",
    "quantize",
    "random",
    "reduce",
    "rnn",
    "sequence",
    "spatial",
)
"""Files that hold builders: every name in their ``__all__`` is one."""


@cache
def builders() -> dict[str, Builder]:
    """Return all builders by name."""
    found: dict[str, Builder] = {}
    for subject in SUBJECTS:
        module = import_module(f"{__package__}.{subject}")
        found.update({name.rstrip("_"): getattr(module, name) for name in module.__all__})
    return found


def builder(name: str) -> Builder:
    """Return the function that a record of an operator names."""
    return builders()[name]
