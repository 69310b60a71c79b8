"""ONNX under the names that it had before MXNet 1.9; see `dpmodule.onnx`."""

from __future__ import annotations

from ... import later
from . import mx2onnx as mx2onnx
from . import onnx2mx as onnx2mx
from .mx2onnx import export_model as export_model

_LATER = {"load": "get_model_metadata import_model"}

__all__ = [*later.modules_of(_LATER), "export_model", "mx2onnx", "onnx2mx"]

__getattr__, __dir__ = later.attributes(__name__, __all__, _LATER, package="dpmodule.onnx")
