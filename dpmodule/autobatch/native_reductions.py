"""How operations along dimensions, and over a minibatch, become nodes of the native engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .native_elementwise import ELEMENTWISE
from .native_names import LAST_AXIS, OP, REDUCTION, TOO_LARGE, Maker
from .native_shapes import Layout, arranged

__all__ = ["ALONG_DIMENSIONS", "reduced"]


def reduced(engine: Any, kind: str, x: int, axes: Sequence[int], is_batch: bool, divisor: int = 0) -> int:
    """Return the node of a reduction; -1 where the engine does not take it.

    Args:
        engine: which one.
        kind: one of `REDUCTION`.
        x: the operand.
        axes: along which dimensions.
        is_batch: over the minibatch, too.
        divisor: what a mean or a deviation divides by; 0 for the number of elements.
    """
    known = set(axes)
    if len(known) != len(axes) or not all(0 <= axis <= LAST_AXIS for axis in known):
        return -1
    node = _kernel(engine, kind, x, known, is_batch, divisor)
    layout = Layout(engine, x)
    if node >= 0 or not (known or is_batch) or any(axis >= len(layout.d) for axis in known):
        return node
    return _kernel(engine, kind, _side_by_side(engine, x, layout, known, is_batch), {0}, False, divisor)


def _kernel(engine: Any, kind: str, x: int, axes: set[int], is_batch: bool, divisor: int) -> int:
    bits = sum(2 << axis for axis in axes) + is_batch
    node: int = engine.kernel(OP["reduction"], REDUCTION[kind], (x,), divisor, bits)
    return node


def _side_by_side(engine: Any, x: int, layout: Layout, axes: set[int], is_batch: bool) -> int:
    """Return a node whose first dimension is all those that `reduced` is given; elsewhere they lie unevenly."""
    loops = list(zip(layout.d, layout.steps))
    inside = [loops[axis] for axis in axes]
    outside = [loop for axis, loop in enumerate(loops) if axis not in axes]
    batch = 1 if is_batch else layout.batch
    count = math.prod(size for size, _ in inside) * layout.batch // batch
    dims = [count, *(size for size, _ in outside)]
    return arranged(engine, "transpose", x, [(layout.batch, layout.size), *inside, *outside], (dims, batch))


def _sum_dim(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    return reduced(engine, "sum_dim", args[0], *attrs)


def _sum_batches(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    return reduced(engine, "sum_dim", args[0], (), True)


def _moment(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    axes, is_batch, power, divisor = attrs
    (x,) = args
    if (
        divisor >= TOO_LARGE
        or abs(power) >= TOO_LARGE
        or any(not 0 <= axis < len(engine.dim(x)[0]) for axis in axes)
    ):
        return -1
    if power != 1:
        x = ELEMENTWISE["power_number"](engine, (), args, float(power))
    return reduced(engine, "mean_dim", x, axes, is_batch, max(divisor, 0))


def _std(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    axes, is_batch, divisor = attrs
    if divisor >= TOO_LARGE:
        return -1
    return reduced(engine, "std_dim", args[0], axes, is_batch, max(divisor, 0))


def _l2_norm(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    return reduced(engine, "l2_norm", args[0], range(len(engine.dim(args[0])[0])), False)


def _one_axis(name: str) -> Maker:
    def make(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
        return reduced(engine, name, args[0], attrs, False)

    return make


def _logsumexp(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    node: int = engine.kernel(OP["sum"], REDUCTION["logsumexp_dim"], args)
    return node


def _fold_rows(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    node: int = engine.kernel(OP["reduction"], -1, args, 0.0, attrs[0]) if 0 < attrs[0] < TOO_LARGE else -1
    return node


def _along(name: str) -> Maker:
    def make(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
        axis = attrs[0] if attrs else 0
        node: int = engine.kernel(OP[name], axis, args) if 0 <= axis <= LAST_AXIS else -1
        return node

    return make


def _restricted(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    node: int = engine.kernel_with_labels(OP["log_softmax"], args[0], 0.0, attrs[0]) if attrs[0] else -1
    return node


ALONG_DIMENSIONS: dict[str, Maker] = {
    "sum_dim": _sum_dim,
    "sum_batches": _sum_batches,
    "moment_dim": _moment,
    "std_dim": _std,
    "l2_norm": _l2_norm,
    "logsumexp": _logsumexp,
    **{name: _one_axis(name) for name in ("max_dim", "min_dim", "logsumexp_dim")},
    "fold_rows": _fold_rows,
    "softmax": _along("softmax"),
    "log_softmax": _along("log_softmax"),
    "log_softmax_restricted": _restricted,
    "cumsum": _along("cumsum"),
}
"""Makers by the name of the operation."""
