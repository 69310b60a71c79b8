"""Which operations the native engine has kernels for, and how their nodes are added to it.

A maker takes (engine, attributes, operands, own number) and returns the node, or -1 where the operands are not what
the kernel takes (many with minibatches): then the operation runs in torch, a batch at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["BINARY", "KERNELS", "OP", "OPS", "UNARY", "Maker", "kernel_name"]

Maker = Callable[[Any, tuple[Any, ...], tuple[int, ...], Any], int]

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
OPS += ["multiply", "colwise_add", "concatenate_cols", "columns", "transpose"]
OPS += ["hinge", "drawn", "reduction", "conv2d", "maxpooling2d", "broadcast", "select"]
OPS += ["pick_batch", "kmax_pooling"]
OP = {name: index for index, name in enumerate(OPS)}
UNARY = [
    "tanh",
    "logistic",
    "rectify",
    "exp",
    "sqrt",
    "elu",
    "log",
    "square",
    "cube",
    "abs",
    "recip",
    "softsign",
]
UNARY += ["negate", "scale", "shift", "rsub", "identity"]
_TOO_LARGE, _LAST_AXIS = 1 << 31, 29
BINARY = ["add", "sub", "mul", "div", "max", "min"]
REDUCTIONS = ["sum_dim", "mean_dim", "max_dim", "min_dim", "logsumexp_dim", "std_dim", "l2_norm"]
_SELECTIONS = ["select", "strided_select"]
_CONVOLUTIONS = ["conv2d", "filter1d_narrow"]
DRAWS = ["dropout", "noise", "normal", "uniform", "bernoulli", "gumbel"]
SOURCES = frozenset([*DRAWS[2:], "lookup_batch"])
"""Kernels of operations that have no operands for their users."""
_KINDS = {
    "unary": UNARY,
    "unary_each": UNARY,
    "binary": BINARY,
    "broadcast": BINARY,
    "reduction": REDUCTIONS,
    "drawn": DRAWS,
    "select": _SELECTIONS,
    "conv2d": _CONVOLUTIONS,
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
        return {-1: "concatenate_to_batch", -2: "lookup_batch", -3: "pick_batch_elems"}[kind]
    if name == "reduction" and len(parameters) > 2:
        return "logsumexp" if parameters[2] == 1 else "fold_rows"
    if name == "columns" and kind < 0:
        return "pick"
    if name in ("loss", "hinge") and kind == 1:
        return f"{_NAMES.get(name, name)}_batch"
    name = _KINDS[name][kind] if name in _KINDS else name
    return _NAMES.get(name, name)


def _unary(name: str) -> Maker:
    kind = UNARY.index(name)

    def make(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
        node: int = engine.kernel(OP["unary"], kind, args, float(aux or 0.0))
        return node

    return make


def _elu(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    node: int = engine.kernel(OP["unary"], UNARY.index("elu"), args, attrs[0])
    return node


def _binary(name: str) -> Maker:
    kind = BINARY.index(name)

    def make(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
        node: int = engine.kernel(OP["binary"], kind, args) if len(args) == 2 else -1
        return node

    return make


def _sum(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    node: int = engine.kernel(OP["binary"], 0, args) if len(args) == 2 else engine.kernel(OP["sum"], 0, args)
    return node


def _average(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    total = engine.kernel(OP["sum"], 0, args)
    if total < 0:
        return -1
    node: int = engine.kernel(OP["unary"], UNARY.index("scale"), (total,), 1.0 / len(args))
    return node


def _plain(name: str) -> Maker:
    def make(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
        node: int = engine.kernel(OP[name], 0, args, 0.0, int(aux or 0))
        return node

    return make


def _concat(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    node: int = engine.kernel(OP["concat"], attrs[0], args) if 0 <= attrs[0] < _TOO_LARGE else -1
    return node


def _along(name: str) -> Maker:
    def make(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
        axis = attrs[0] if attrs else 0
        node: int = engine.kernel(OP[name], axis, args) if axis in (0, 1) else -1
        return node

    return make


def _pick(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    if not 0 <= attrs[0] <= _LAST_AXIS or not isinstance(aux, int):
        return -1
    node: int = engine.kernel(OP["view"], 0, args, attrs[0], aux)
    return node


def _range(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    axis, start, stop = attrs
    if not 0 <= axis <= _LAST_AXIS or not 0 <= start < stop < _TOO_LARGE:
        return -1
    node: int = engine.kernel(OP["view"], stop - start, args, axis, start)
    return node


def _transpose(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    node: int = engine.kernel(OP["transpose"], -1, args) if attrs[0] == (1, 0) else -1
    return node


def _reshape(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    dims, batch = engine.dim(args[0])
    target = attrs[0]
    size = math.prod(dims)
    if target.size * target.batch not in (size, size * batch):  # the minibatch may be left out
        return -1
    node: int = engine.kernel(OP["transpose"], engine.shape(target.d, target.batch), args)
    return node


def _hinge(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    node: int = engine.kernel(OP["hinge"], 0, args, attrs[0], aux)
    return node


def _labels(name: str) -> Maker:
    def make(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
        margin = attrs[0] if name == "hinge" else 0.0
        node: int = engine.kernel_with_labels(OP[name], args[0], margin, aux)
        return node

    return make


def _pick_each(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    return _labels("pick_batch")(engine, attrs, args, aux) if attrs[0] == 0 else -1


def _chain(engine: Any, first: int, *steps: tuple[str, Any]) -> int:
    """Apply one operation after the other; -1 where the engine does not take one."""
    found = first
    for name, other in steps:
        if found >= 0:
            found = KERNELS[name](engine, (), (found,) if other is None else (found, other), None)
    return found


def _squared_distance(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    if engine.dim(args[0])[0] != engine.dim(args[1])[0]:
        return -1
    return _chain(engine, args[0], ("subtract", args[1]), ("squared_norm", None))


def _layer_norm(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    x, gains, biases = args
    dims = [engine.dim(arg)[0] for arg in args]
    if len(dims[0]) > 1 or dims[1:] != dims[:1] * 2:
        return -1
    centred = _chain(engine, x, ("subtract", _reduced(engine, "mean_dim", x, (0,), False)))
    deviation = _chain(
        engine,
        _reduced(engine, "mean_dim", _chain(engine, centred, ("square", None)), (0,), False),
        ("sqrt", None),
    )
    return _chain(engine, centred, ("cdiv", deviation), ("cmult", gains), ("sum", biases))


def _elements(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    (places,) = attrs
    node: int = (
        engine.kernel_with_labels(OP["view"], args[0], 0.0, places) if max(places) < _TOO_LARGE else -1
    )
    return node


def _drawn(name: str) -> Maker:
    kind = DRAWS.index(name)

    def make(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
        node: int = engine.kernel(OP["drawn"], kind, args, attrs[0])
        return node

    return make


def _power(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    name = {2.0: "square", 3.0: "cube"}.get(aux)
    return -1 if name is None else KERNELS[name](engine, (), args, None)


def _to_batch(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    node: int = engine.kernel(OP["concat"], -1, args)
    return node


def _reduced(engine: Any, kind: str, x: int, axes: Sequence[int], is_batch: bool, divisor: int = 0) -> int:
    known = set(axes)
    if len(known) != len(axes) or not all(0 <= axis <= _LAST_AXIS for axis in known):
        return -1
    bits = sum(2 << axis for axis in known) + is_batch
    node: int = engine.kernel(OP["reduction"], REDUCTIONS.index(kind), (x,), divisor, bits)
    return node


def _sum_dim(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    return _reduced(engine, "sum_dim", args[0], *attrs)


def _sum_batches(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    return _reduced(engine, "sum_dim", args[0], (), True)


def _moment(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    axes, is_batch, power, divisor = attrs
    if power != 1 or divisor >= _TOO_LARGE:
        return -1
    return _reduced(engine, "mean_dim", args[0], axes, is_batch, max(divisor, 0))


def _std(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    axes, is_batch, divisor = attrs
    if divisor >= _TOO_LARGE:
        return -1
    return _reduced(engine, "std_dim", args[0], axes, is_batch, max(divisor, 0))


def _l2_norm(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    return _reduced(engine, "l2_norm", args[0], range(len(engine.dim(args[0])[0])), False)


def _logsumexp(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    node: int = engine.kernel(OP["sum"], 1, args)
    return node


def _all_of(sizes: Sequence[int]) -> list[Sequence[int]]:
    """Return the places of rows and columns of a vector or a matrix."""
    return [range(size) for size in (*sizes, 1)[:2]]


def _select(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    axis, chosen = attrs
    dims = engine.dim(args[0])[0]
    if len(dims) > 2 or axis >= len(dims) or max(chosen, default=_TOO_LARGE) >= _TOO_LARGE:
        return -1
    places = _all_of(dims)
    places[axis] = chosen
    node: int = engine.select(_SELECTIONS.index("select"), args[0], *places)
    return node


def _strided(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    dims = engine.dim(args[0])[0]
    if len(dims) > 2 or any(len(each) > len(dims) for each in attrs):
        return -1
    steps, starts, stops = attrs
    places = _all_of(dims)
    for axis, size in enumerate(dims):
        stop = stops[axis] if axis < len(stops) else size
        start = starts[axis] if axis < len(starts) else 0
        step = steps[axis] if axis < len(steps) else 1
        if step < 1 or not 0 <= start < stop <= size:
            return -1
        places[axis] = range(start, stop, step)
    node: int = engine.select(_SELECTIONS.index("strided_select"), args[0], *places)
    return node


def _one_axis(name: str) -> Maker:
    def make(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
        return _reduced(engine, name, args[0], attrs, False)

    return make


def _conv2d(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    stride, is_valid = attrs
    node: int = engine.slide(OP["conv2d"], args, 1, 1, *stride, is_valid) if max(stride) < _TOO_LARGE else -1
    return node


def _filter1d(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    node: int = engine.kernel(OP["conv2d"], _CONVOLUTIONS.index("filter1d_narrow"), args)
    return node


def _fold_rows(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    node: int = engine.kernel(OP["reduction"], -1, args, 0.0, attrs[0]) if 0 < attrs[0] < _TOO_LARGE else -1
    return node


def _kmax_pooling(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    if not all(0 <= each < _TOO_LARGE for each in attrs):
        return -1
    node: int = engine.kernel(OP["kmax_pooling"], attrs[0], args, 0.0, attrs[1])
    return node


def _maxpooling2d(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    window, stride, is_valid = attrs
    if max(*window, *stride) >= _TOO_LARGE:
        return -1
    node: int = engine.slide(OP["maxpooling2d"], args, *window, *stride, is_valid)
    return node


KERNELS: dict[str, Maker] = {
    **{
        name: _unary(name) for name in ("tanh", "logistic", "rectify", "exp", "sqrt", "log", "square", "cube")
    },
    **{name: _unary(name) for name in ("abs", "softsign", "negate", "identity")},
    "multiply_number": _unary("scale"),
    "add_number": _unary("shift"),
    "number_divided": _unary("recip"),
    "elu": _elu,
    "sum": _sum,
    "sum_many": _plain("sum"),
    "average": _average,
    "subtract": _binary("sub"),
    "cmult": _binary("mul"),
    "cdiv": _binary("div"),
    "max": _binary("max"),
    "min": _binary("min"),
    "multiply": _plain("multiply"),
    "affine_transform": _plain("affine"),
    "colwise_add": _plain("colwise_add"),
    "concatenate": _concat,
    "concatenate_many": _concat,
    "transpose": _transpose,
    "reshape": _reshape,
    "pickneglogsoftmax": _plain("loss"),
    "softmax": _along("softmax"),
    "log_softmax": _along("log_softmax"),
    "sum_elems": _plain("sum_elems"),
    "squared_norm": _plain("squared_norm"),
    "dot_product": _plain("dot"),
    "hinge": _hinge,
    "squared_distance": _squared_distance,
    "layer_norm": _layer_norm,
    "hinge_batch": _labels("hinge"),
    "pickneglogsoftmax_batch": _labels("loss"),
    "pick_batch": _pick_each,
    "pick_batch_elems": _elements,
    **{name: _drawn(name) for name in ("dropout", "noise")},
    "power_number": _power,
    "concatenate_to_batch": _to_batch,
    "concatenate_to_batch_many": _to_batch,
    "sum_dim": _sum_dim,
    "sum_batches": _sum_batches,
    "moment_dim": _moment,
    "std_dim": _std,
    "l2_norm": _l2_norm,
    "logsumexp": _logsumexp,
    "select": _select,
    "strided_select": _strided,
    **{name: _one_axis(name) for name in ("max_dim", "min_dim", "logsumexp_dim")},
    "conv2d": _conv2d,
    "maxpooling2d": _maxpooling2d,
    "filter1d_narrow": _filter1d,
    "fold_rows": _fold_rows,
    "kmax_pooling": _kmax_pooling,
    "pick": _pick,
    "pick_range": _range,
}
"""Makers by the name of the operation."""
