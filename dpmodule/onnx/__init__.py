"""ONNX files: symbols and their parameters go out as such files, and come in."""

from __future__ import annotations

from .._core import lazy

_LATER = {
    "export": "export_model",
    "load": "get_model_metadata import_model",
    "mx2onnx": "get_operator_support",
}

__all__ = [*lazy.modules_of(_LATER), "mx2onnx"]

__getattr__, __dir__ = lazy.attributes(__name__, __all__, _LATER)
