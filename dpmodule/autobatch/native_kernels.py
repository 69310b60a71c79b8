"""Which operations the native engine has kernels for, and how their nodes are added to it."""

from __future__ import annotations

from typing import Any

from .native_composed import COMPOSED
from .native_elementwise import ELEMENTWISE
from .native_names import BINARY, CONVOLUTION, OP, TOO_LARGE, UNARY, Maker
from .native_reductions import ALONG_DIMENSIONS, reduced
from .native_shapes import SHAPES

__all__ = ["KERNELS"]


def _plain(name: str) -> Maker:
    def make(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
        node: int = engine.kernel(OP[name], 0, args, 0.0, int(aux or 0))
        return node

    return make


def _hinge(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    node: int = engine.kernel(OP["hinge"], 0, args, attrs[0], aux)
    return node


def _labels(name: str) -> Maker:
    def make(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
        margin = attrs[0] if name == "hinge" else 0.0
        node: int = engine.kernel_with_labels(OP[name], args[0], margin, aux)
        return node

    return make


def _hinge_dim(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    axis, margin = attrs
    node: int = engine.kernel_with_labels(OP["hinge"], args[0], margin, aux, axis) if axis in (0, 1) else -1
    return node


def _argmax(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    node: int = engine.kernel(OP["argmax"], int(attrs[0]), args)
    return node


def _conv2d(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    stride, is_valid = attrs
    node: int = engine.slide(OP["conv2d"], args, 1, 1, *stride, is_valid) if max(stride) < TOO_LARGE else -1
    return node


def _maxpooling2d(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    window, stride, is_valid = attrs
    if max(*window, *stride) >= TOO_LARGE:
        return -1
    node: int = engine.slide(OP["maxpooling2d"], args, *window, *stride, is_valid)
    return node


def _filter1d(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    node: int = engine.kernel(OP["conv2d"], CONVOLUTION["filter1d_narrow"], args)
    return node


def _kmax_pooling(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    if not all(0 <= each < TOO_LARGE for each in attrs):
        return -1
    node: int = engine.kernel(OP["kmax_pooling"], attrs[0], args, 0.0, attrs[1])
    return node


def _chain(engine: Any, first: int, *steps: tuple[str, Any]) -> int:
    """Apply one operation after the other; -1 where the engine does not take one."""
    found = first
    for name, other in steps:
        if found >= 0:
            found = KERNELS[name](engine, (), (found,) if other is None else (found, other), None)
    return found


def _difference(name: str) -> Maker:
    """Return the maker of the sum of a function of differences."""
    kind = UNARY[name]

    def make(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
        if engine.dim(args[0])[0] != engine.dim(args[1])[0]:
            return -1
        apart = _chain(engine, args[0], ("subtract", args[1]))
        if apart < 0:
            return -1
        apart = engine.kernel(OP["unary"], kind, (apart,), attrs[0] if attrs else 0.0)
        return _chain(engine, apart, ("sum_elems", None))

    return make


def _binary_log(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    losses = engine.kernel(OP["binary"], BINARY["binary_log_loss"], args)
    return _chain(engine, losses, ("sum_elems", None))


def _rank(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    left, right = [engine.dim(arg)[0] for arg in args]
    apart = _chain(engine, args[1], ("subtract", args[0])) if left == right and left[0] == 1 else -1
    return (
        -1
        if apart < 0
        else _chain(engine, KERNELS["add_number"](engine, (), (apart,), attrs[0]), ("rectify", None))
    )


def _layer_norm(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    x, gains, biases = args
    dims = [engine.dim(arg)[0] for arg in args]
    if len(dims[0]) > 1 or dims[1:] != dims[:1] * 2:
        return -1
    centred = _chain(engine, x, ("subtract", reduced(engine, "mean_dim", x, (0,), False)))
    deviation = _chain(
        engine,
        reduced(engine, "mean_dim", _chain(engine, centred, ("square", None)), (0,), False),
        ("sqrt", None),
    )
    return _chain(engine, centred, ("cdiv", deviation), ("cmult", gains), ("sum", biases))


KERNELS: dict[str, Maker] = {
    **ELEMENTWISE,
    **SHAPES,
    **ALONG_DIMENSIONS,
    **COMPOSED,
    "sum_many": _plain("sum"),
    "sum_elems": _plain("sum_elems"),
    "squared_norm": _plain("squared_norm"),
    "dot_product": _plain("dot"),
    "trace_of_product": _plain("dot"),
    "multiply": _plain("multiply"),
    "inverse": _plain("inverse"),
    "affine_transform": _plain("affine"),
    "colwise_add": _plain("colwise_add"),
    "pickneglogsoftmax": _plain("loss"),
    "pickneglogsoftmax_batch": _labels("loss"),
    "hinge": _hinge,
    "hinge_batch": _labels("hinge"),
    "hinge_dim": _hinge_dim,
    "sparsemax": _plain("sparsemax"),
    "constrained_softmax": _plain("constrained_softmax"),
    "argmax": _argmax,
    "conv2d": _conv2d,
    "maxpooling2d": _maxpooling2d,
    "filter1d_narrow": _filter1d,
    "kmax_pooling": _kmax_pooling,
    "squared_distance": _difference("square"),
    "l1_distance": _difference("abs"),
    "huber_distance": _difference("huber"),
    "binary_log_loss": _binary_log,
    "pairwise_rank_loss": _rank,
    "layer_norm": _layer_norm,
}
"""Makers by the name of the operation."""
