"""Translations of torch's operators into symbols, one file a subject."""

from __future__ import annotations

from . import (
    activations,
    arithmetic,
    array,
    attention,
    creation,
    indexing,
    layers,
    losses,
    recurrent,
    reductions,
)
from .builder import SymbolBuilder
from .sizes import as_size, dims_of, is_number
from .table import find, known_overloads
from .value import NoCounterpart, TorchValue

__all__ = [
    "SymbolBuilder",
    "NoCounterpart",
    "TorchValue",
    "activations",
    "arithmetic",
    "array",
    "as_size",
    "attention",
    "creation",
    "dims_of",
    "find",
    "indexing",
    "is_number",
    "known_overloads",
    "layers",
    "losses",
    "recurrent",
    "reductions",
]
