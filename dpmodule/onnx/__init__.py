"""Exporting symbols and parameters to ONNX files, and importing them."""

from __future__ import annotations

from .._core import lazy

_LATER = {
    "export": "export_model",
    "load": "get_model_metadata import_model",
    "mx2onnx": "get_operator_support",
}

__all__ = [*lazy.modules_of(_LATER), "mx2onnx"]

__getattr__, __dir__ = lazy.attributes(__name__, __all__, _LATER)
