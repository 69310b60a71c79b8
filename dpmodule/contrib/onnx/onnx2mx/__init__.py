"""Where MXNet keeps the import of ONNX files."""

from .... import later

__all__ = ["import_model"]

__getattr__, __dir__ = later.attributes(__name__, __all__, {"import_model": ""})
