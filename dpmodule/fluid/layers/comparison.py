"""Comparisons, logic, and positions of the largest elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import symbol as sym
from ...base import ArgumentError
from ..variable import Variable
from .layer_helper import add_layer, as_variable, program_of


def _refuse_output(layer: str, **given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise ArgumentError(f"{layer}: {name} is not supported; use the result of the layer")


def _binary(layer: str, operator: str, text: str) -> Callable[..., Variable]:
    """Return the layer of a binary operator with the result True or False."""

    def compared(x: Any, y: Any, cond: None = None, **more: Any) -> Variable:
        _refuse_output(layer, cond=cond, out=more.pop("out", None))
        for name in ("name", "force_cpu"):
            more.pop(name, None)
        if more:
            raise ArgumentError(f"{layer}: got {', '.join(more)}, expected x, y and cond")
        left, right = as_variable(layer, x, "x"), as_variable(layer, y, "y")
        program_of(layer, left, right)

        def made(name: str) -> Any:
            both = [left.symbol, right.symbol]
            if left.dtype != right.dtype:
                both = [sym.Cast(each, dtype="float64") for each in both]
            found = getattr(sym, f"broadcast_{operator}")(*both, name=f"{name}_number")
            return sym.Cast(found, dtype="bool", name=name)

        shape = left.shape if left.shape == right.shape else None
        return add_layer(layer, [left, right], made, shape=shape, dtype="bool")

    compared.__name__ = compared.__qualname__ = layer
    compared.__doc__ = f"""Return True where {text}, with broadcasting.

    Args:
        x: a variable.
        y: a variable.
        cond: must be None; so must `out`.
        more: `name` and `force_cpu`, which are ignored.

    Raises:
        ArgumentError: an argument is not valid.
    """
    return compared


less_than = _binary("less_than", "lesser", "x < y")
less_equal = _binary("less_equal", "lesser_equal", "x <= y")
greater_than = _binary("greater_than", "greater", "x > y")
greater_equal = _binary("greater_equal", "greater_equal", "x >= y")
equal = _binary("equal", "equal", "x == y")
not_equal = _binary("not_equal", "not_equal", "x != y")
logical_and = _binary("logical_and", "logical_and", "x and y are not zero")
logical_or = _binary("logical_or", "logical_or", "x or y is not zero")
logical_xor = _binary("logical_xor", "logical_xor", "only one of x and y is not zero")


def logical_not(x: Any, out: None = None, name: str | None = None) -> Variable:
    """Return True where a variable is zero.

    Args:
        out: must be None.
    """
    _refuse_output("logical_not", out=out)
    given = as_variable("logical_not", x, "x")

    def made(name: str) -> Any:
        return sym.Cast(sym.logical_not(given.symbol, name=f"{name}_number"), dtype="bool", name=name)

    return add_layer("logical_not", [given], made, name, dtype="bool")


def _place(layer: str, operator: Any, x: Any, axis: int) -> Variable:
    given = as_variable(layer, x, "x")

    def made(name: str) -> Any:
        return sym.Cast(operator(given.symbol, axis=axis, name=f"{name}_number"), dtype="int64", name=name)

    return add_layer(layer, [given], made, shape=None, dtype="int64")


def argmax(x: Any, axis: int = 0) -> Variable:
    """Return the index of the largest element along an axis, as int64.

    Args:
        axis: the axis, which the result lacks.
    """
    return _place("argmax", sym.argmax, x, axis)


def argmin(x: Any, axis: int = 0) -> Variable:
    """Return the index of the smallest element along an axis, as int64.

    Args:
        axis: the axis, which the result lacks.
    """
    return _place("argmin", sym.argmin, x, axis)


def argsort(
    input: Any, axis: int = -1, descending: bool = False, name: str | None = None
) -> tuple[Variable, Variable]:
    """Sort the elements along an axis; return them, and their indices as int64.

    Args:
        axis: the axis.
        descending: whether the largest element comes first.
    """
    given = as_variable("argsort", input)
    own = given.program.unique("argsort") if name is None else name

    def ordered(name: str) -> Any:
        return sym.sort(given.symbol, axis=axis, is_ascend=not descending, name=name)

    def places(name: str) -> Any:
        return sym.argsort(given.symbol, axis=axis, is_ascend=not descending, dtype="int64", name=name)

    values = add_layer("argsort", [given], ordered, own)
    return values, add_layer("argsort", [given], places, f"{own}_indices", dtype="int64")
