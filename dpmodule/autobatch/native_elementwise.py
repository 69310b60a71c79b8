"""How operations on every element alone become nodes of the native engine."""

from __future__ import annotations

from typing import Any

from .native_names import BINARY, DRAWS, OP, UNARY, Maker

__all__ = ["ELEMENTWISE"]


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


def _drawn(name: str) -> Maker:
    kind = DRAWS.index(name)

    def make(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
        node: int = engine.kernel(OP["drawn"], kind, args, attrs[0])
        return node

    return make


def _power(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    name = {2.0: "square", 3.0: "cube"}.get(aux)
    return -1 if name is None else ELEMENTWISE[name](engine, (), args, None)


ELEMENTWISE: dict[str, Maker] = {
    **{
        name: _unary(name) for name in ("tanh", "logistic", "rectify", "exp", "sqrt", "log", "square", "cube")
    },
    **{name: _unary(name) for name in ("abs", "softsign", "negate", "identity")},
    "multiply_number": _unary("scale"),
    "add_number": _unary("shift"),
    "number_divided": _unary("recip"),
    "power_number": _power,
    "elu": _elu,
    "sum": _sum,
    "average": _average,
    "subtract": _binary("sub"),
    "cmult": _binary("mul"),
    "cdiv": _binary("div"),
    "max": _binary("max"),
    "min": _binary("min"),
    **{name: _drawn(name) for name in ("dropout", "noise")},
}
"""Makers by the name of the operation."""
