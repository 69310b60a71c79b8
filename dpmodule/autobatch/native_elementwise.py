"""How operations on every element alone become nodes of the native engine."""

from __future__ import annotations

from typing import Any

from .native_names import BINARY, DRAW, OP, REDUCTION, TOO_LARGE, UNARY, Maker
from .ops.unary import UNARY as PLAIN

__all__ = ["ELEMENTWISE"]


def _unary(name: str) -> Maker:
    kind = UNARY[name]

    def make(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
        node: int = engine.kernel(OP["unary"], kind, args, float(aux or 0.0))
        return node

    return make


def _with_attribute(name: str) -> Maker:
    kind = UNARY[name]

    def make(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
        node: int = engine.kernel(OP["unary"], kind, args, float(attrs[0]))
        return node

    return make


def _binary(name: str) -> Maker:
    kind = BINARY[name]

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
    node: int = engine.kernel(OP["unary"], UNARY["scale"], (total,), 1.0 / len(args))
    return node


def _max(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    if len(args) == 2:
        return _binary("max")(engine, attrs, args, aux)
    node: int = engine.kernel(OP["sum"], REDUCTION["max_dim"], args)
    return node


def _drawn(name: str) -> Maker:
    kind = DRAW[name]

    def make(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
        rate, *axis = attrs
        fits = all(0 <= each < TOO_LARGE for each in axis)
        node: int = engine.kernel(OP["drawn"], kind, args, rate, *axis) if fits else -1
        return node

    return make


def _power(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    name = {2.0: "square", 3.0: "cube"}.get(aux, "power_number")
    node: int = engine.kernel(OP["unary"], UNARY[name], args, aux if name == "power_number" else 0.0)
    return node


ELEMENTWISE: dict[str, Maker] = {
    **{name: _unary(name) for name in (*PLAIN, "negate", "identity", "nobackprop")},
    **{name: _unary(name) for name in ("number_power", "scale_gradient", "poisson_loss")},
    **{name: _with_attribute(name) for name in ("elu", "silu", "round", "ceil", "floor")},
    "multiply_number": _unary("scale"),
    "add_number": _unary("shift"),
    "number_divided": _unary("recip"),
    "power_number": _power,
    "sum": _sum,
    "average": _average,
    "subtract": _binary("sub"),
    "cmult": _binary("mul"),
    "cdiv": _binary("div"),
    "max": _max,
    "max_many": _max,
    "min": _binary("min"),
    "pow": _binary("pow"),
    **{name: _drawn(name) for name in ("dropout", "noise", "dropout_dim", "dropout_batch", "block_dropout")},
}
"""Makers by the name of the operation."""
