"""ONNX under the names that it had before MXNet 1.9; see `dpmodule.onnx`."""

from ... import later
from . import mx2onnx as mx2onnx
from .mx2onnx import export_model

__all__ = ["export_model", "mx2onnx"]

later.publish(__name__, __all__)
