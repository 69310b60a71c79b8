"""Translating ONNX graphs to symbols; `translate.TRANSLATORS` maps operators to functions."""
