"""ONNX graphs made into symbols: one file for each subject, see `table`."""
