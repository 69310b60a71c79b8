"""What MXNet keeps under `mx.contrib.onnx`; `mx.onnx` has the same."""

from __future__ import annotations

from ... import later

_LATER = {"load": "get_model_metadata import_model"}

__all__ = list(later.modules_of(_LATER))

__getattr__, __dir__ = later.attributes(__name__, __all__, _LATER, package="dpmodule.onnx")
