"""Exporting symbols and parameters to ONNX files, and importing them."""

from __future__ import annotations

import typing

from .._core import lazy

if typing.TYPE_CHECKING:
    from .export import export_model as export_model
    from .load import get_model_metadata as get_model_metadata
    from .load import import_model as import_model
    from .mx2onnx import get_operator_support as get_operator_support

_LATER = {
    "export": "export_model",
    "load": "get_model_metadata import_model",
    "mx2onnx": "get_operator_support",
}

__all__ = [*lazy.modules_of(_LATER), "mx2onnx"]

__getattr__, __dir__ = lazy.attributes(__name__, __all__, _LATER)
