"""All translators, by the domain and type of the ONNX operator."""

from __future__ import annotations

from . import (
    array,
    control,
    conv,
    detect,
    draws,
    index,
    linear,
    math,
    ml,
    norm,
    quantize,
    reduce,
    resize,
    rnn,
)
from .call import Translator

_MAIN = (array, control, conv, detect, draws, index, linear, math, norm, quantize, reduce, resize, rnn)

TRANSLATORS: dict[tuple[str, str], Translator] = {
    **{("", name): function for module in _MAIN for name, function in module.TABLE.items()},
    **{("ai.onnx.ml", name): function for name, function in ml.TABLE.items()},
}
