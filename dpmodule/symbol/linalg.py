"""Operators named ``_linalg_*``, as functions over symbols: ``sym.linalg``."""

from __future__ import annotations

from functools import partial

from ..compat import lazy
from .op_functions import face_of, names_in

__all__: list[str] = []

__getattr__, __dir__ = lazy.attributes(
    __name__, __all__, otherwise=partial(face_of, "linalg"), operators=partial(names_in, "linalg")
)
