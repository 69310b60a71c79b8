"""The operations of the native engine: their numbers, and the names by which users know them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .whole import TOO_LARGE

__all__ = [
    "ARRANGEMENTS",
    "BINARY",
    "DRAWS",
    "LAST_AXIS",
    "OP",
    "OPS",
    "REDUCTIONS",
    "SOURCES",
    "TOO_LARGE",
    "UNARY",
    "CONVOLUTIONS",
    "Maker",
    "kernel_name",
]

Maker = Callable[[Any, tuple[Any, ...], tuple[int, ...], Any], int]
"""Adds an operation's node: (engine, attributes, operands, own number), and returns it.

-1 where the operands are not what the kernel takes: then the operation runs in torch, a batch at a time.
"""

LAST_AXIS = 29
"""A set of axes is a number of 32 bits, one of which is for the minibatch."""

# the enumerations of native/autobatch/signature.hpp and kernels.hpp
OPS = [
    "input",
    "param",
    "lookup",
    "view",
    "affine",
    "unary",
    "binary",
    "concat",
    "sum",
    "lstm",
    "loss",
    "softmax",
]
OPS += ["log_softmax", "sum_elems", "dot", "squared_norm", "call", "unary_each"]
OPS += ["multiply", "colwise_add", "concatenate_cols", "columns", "arrangement"]
OPS += ["hinge", "drawn", "reduction", "conv2d", "maxpooling2d", "broadcast", "select"]
OPS += ["pick_batch", "kmax_pooling", "cumsum", "sparsemax", "recurrent_step"]
OPS += ["constrained_softmax", "argmax", "inverse"]
OP = {name: index for index, name in enumerate(OPS)}
UNARY = [
    "tanh",
    "logistic",
    "rectify",
    "exp",
    "sqrt",
    "elu",
    "selu",
    "log",
    "square",
    "cube",
    "abs",
    "recip",
    "softsign",
    "silu",
    "huber",
]
UNARY += ["sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"]
UNARY += ["erf", "log_sigmoid", "lgamma", "power_number", "number_power", "poisson_loss"]
UNARY += ["negate", "scale", "shift", "rsub", "identity"]
UNARY += ["scale_gradient", "nobackprop", "round", "ceil", "floor"]
BINARY = ["add", "sub", "mul", "div", "max", "min", "pow", "binary_log_loss"]
REDUCTIONS = ["sum_dim", "mean_dim", "max_dim", "min_dim", "logsumexp_dim", "std_dim", "l2_norm"]
ARRANGEMENTS = ["transpose", "reshape", "strided_select", "kmh_ngram", "circ_conv", "circ_corr"]
CONVOLUTIONS = ["conv2d", "filter1d_narrow"]
DRAWS = ["dropout", "noise", "normal", "uniform", "bernoulli", "gumbel"]
DRAWS += ["dropout_dim", "dropout_batch", "block_dropout"]
SOURCES = frozenset([*DRAWS[2:6], "lookup_batch"])
"""Kernels of operations that have no operands for their users."""
_KINDS = {
    "unary": UNARY,
    "unary_each": UNARY,
    "binary": BINARY,
    "broadcast": BINARY,
    "reduction": REDUCTIONS,
    "drawn": DRAWS,
    "arrangement": ARRANGEMENTS,
    "conv2d": CONVOLUTIONS,
}


_NAMES = {
    "affine": "affine_transform",
    "concat": "concatenate",
    "concatenate_cols": "concatenate",
    "columns": "pick_range",
    "lstm": "affine_transform + lstm_step",
    "loss": "pickneglogsoftmax",
    "mean_dim": "moment_dim",
    "dot": "dot_product",
    "param": "parameter",
    "recip": "number_divided",
    "scale": "multiply_number",
    "shift": "add_number",
    "rsub": "negate + add_number",
    "add": "sum",
    "sub": "subtract",
    "mul": "cmult",
    "div": "cdiv",
    "huber": "huber_distance",
}


def kernel_name(op: int, kind: int, parameters: tuple[int, ...]) -> str:
    """Return what a kernel computes, by the names of operations, with "+" between several.

    Args:
        op: which kernel, as in `OPS`.
        kind: which one of those that the kernel computes.
        parameters: those that belong to its signature.
    """
    name = OPS[op]
    if name == "affine" and len(parameters) == 2 and parameters[0] < 0:
        return "multiply"
    if name == "concat" and kind < 0:
        return {-2: "lookup_batch", -3: "pick_batch_elems"}.get(kind, "concatenate_to_batch")
    if name == "reduction" and len(parameters) > 2:
        return REDUCTIONS[kind].removesuffix("_dim") if parameters[2] == 1 else "fold_rows"
    if name == "columns" and kind < 0:
        return "pick"
    if name == "log_softmax" and len(parameters) > 2:
        return "log_softmax_restricted"
    if name == "hinge" and kind == 2:
        return "hinge_dim"
    if name in ("loss", "hinge") and kind == 1:
        return f"{_NAMES.get(name, name)}_batch"
    name = _KINDS[name][kind] if name in _KINDS else name
    return _NAMES.get(name, name)
