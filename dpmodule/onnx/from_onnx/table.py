"""All translators, by the domain and type of the ONNX operator."""

from __future__ import annotations

from . import array, conv, index, linear, math, norm, reduce
from .call import Translator

__all__ = ["TRANSLATORS"]

_MAIN = (array, conv, index, linear, math, norm, reduce)

TRANSLATORS: dict[tuple[str, str], Translator] = {
    ("", name): function for module in _MAIN for name, function in module.TABLE.items()
}
