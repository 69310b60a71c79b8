"""Where MXNet keeps the import of ONNX files."""
