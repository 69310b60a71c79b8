"""The import of ONNX files under MXNet's name of the module."""

from .... import later
from ....onnx.load import get_model_metadata, import_model

__all__ = ["get_model_metadata", "import_model"]

later.publish(__name__, __all__)
