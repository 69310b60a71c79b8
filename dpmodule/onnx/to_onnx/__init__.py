"""From our operators to ONNX's: a function for every mapping that is more than a change of names.

Each function is named by the record `ops.spec.Onnx` of the operators that it translates. It takes a `Call` and
returns the names of the values that it made, one for each visible output.
"""
