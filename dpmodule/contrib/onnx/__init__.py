"""ONNX under the names that it had before MXNet 1.9; see `dpmodule.onnx`."""

from __future__ import annotations

from ...compat import lazy
from ...onnx.export import export_model as export_model

_LATER = {"load": "get_model_metadata import_model"}

__all__ = [*lazy.modules_of(_LATER), "export_model", "mx2onnx", "onnx2mx"]

__getattr__, __dir__ = lazy.attributes(__name__, __all__, _LATER, package="dpmodule.onnx")
