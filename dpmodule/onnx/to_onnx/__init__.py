"""Translating operators to ONNX: a function for every mapping that is more than a change of names.

The record `ops.spec.Onnx` of an operator names its function. The function takes an `OperatorCall` and returns its
values, one for each visible output.
"""
