"""What MXNet keeps under `mx.contrib.onnx`; `mx.onnx` has the same."""

from __future__ import annotations

from ... import later
from . import onnx2mx as onnx2mx

_LATER = {"load": "get_model_metadata import_model"}

__all__ = [*later.modules_of(_LATER), "onnx2mx"]

__getattr__, __dir__ = later.attributes(__name__, __all__, _LATER, package="dpmodule.onnx")
