"""Custom functions of the user's, which stay single operators."""

from __future__ import annotations

from collections.abc import Sequence

from ..torch_functions import applied_function
from .builder import SymbolBuilder
from .sizes import dims_of
from .table import translates
from .value import TorchValue


@translates("autograd_function")
def _autograd_function(b: SymbolBuilder, number: int, values: Sequence[TorchValue]) -> list[TorchValue]:
    applied, fakes = applied_function(number), b.result
    parts = b.module(applied, values, len(fakes))
    return [b.value(part, dims_of(fake), applied.floating) for part, fake in zip(parts, fakes)]
