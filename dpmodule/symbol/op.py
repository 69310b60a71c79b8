"""Every operator without leading underscore as a function over symbols; ``op.pyi`` lists them with signatures."""

from __future__ import annotations

from functools import partial

from ..compat import lazy
from .op_functions import face_of, names_in

__all__: list[str] = []

__getattr__, __dir__ = lazy.attributes(
    __name__, __all__, otherwise=partial(face_of, ""), operators=partial(names_in, "")
)
