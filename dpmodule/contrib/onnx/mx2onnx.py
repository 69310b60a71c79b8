"""ONNX out under its old name."""

from ... import later
from ...onnx.export import export_model

__all__ = ["export_model"]

later.publish(__name__, __all__)
