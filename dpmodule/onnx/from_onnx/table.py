"""All translators, by the domain and type of the ONNX operator."""

from __future__ import annotations

from . import array, control, conv, index, linear, math, norm, reduce, rnn
from .call import Translator

__all__ = ["TRANSLATORS"]

_MAIN = (array, control, conv, index, linear, math, norm, reduce, rnn)

TRANSLATORS: dict[tuple[str, str], Translator] = {
    ("", name): function for module in _MAIN for name, function in module.TABLE.items()
}
