"""ONNX files, both ways; the package onnx is imported when it is first needed."""

from __future__ import annotations

from .. import later

_LATER = {
    "load": "get_model_metadata import_model",
}

__all__ = list(later.modules_of(_LATER))

__getattr__, __dir__ = later.attributes(__name__, __all__, _LATER)
