"""Formulas written as such: each operation on a term writes an ONNX node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import common
from .call import OperatorCall
from .types import working_type

__all__ = ["Term", "in_type", "result", "term", "terms"]


class Term:
    """A value in a formula. Numbers beside it become constants of its type.

    Args:
        c: the call.
        value: the ONNX name.
        dtype: the name of its type.
    """

    def __init__(self, c: OperatorCall, value: str, dtype: str) -> None:
        self.c = c
        self.value = value
        self.dtype = dtype

    def then(self, operator: str, *others: Any, **attributes: Any) -> Term:
        """Apply an ONNX operator to this, and to more terms or numbers."""
        names = [self._name(other) for other in others]
        return Term(self.c, self.c.emit(operator, self.value, *names, **attributes), self.dtype)

    def _name(self, other: Any) -> str:
        return other.value if isinstance(other, Term) else self.c.const(other, self.dtype)

    def _reversed(self, operator: str, other: Any) -> Term:
        return Term(self.c, self.c.emit(operator, self._name(other), self.value), self.dtype)

    def __add__(self, other: Any) -> Term:
        return self.then("Add", other)

    def __radd__(self, other: Any) -> Term:
        return self.then("Add", other)

    def __sub__(self, other: Any) -> Term:
        return self.then("Sub", other)

    def __rsub__(self, other: Any) -> Term:
        return self._reversed("Sub", other)

    def __mul__(self, other: Any) -> Term:
        return self.then("Mul", other)

    def __rmul__(self, other: Any) -> Term:
        return self.then("Mul", other)

    def __truediv__(self, other: Any) -> Term:
        return self.then("Div", other)

    def __rtruediv__(self, other: Any) -> Term:
        return self._reversed("Div", other)

    def __pow__(self, other: Any) -> Term:
        return self.then("Pow", other)

    def __neg__(self) -> Term:
        return self.then("Neg")

    def __abs__(self) -> Term:
        return self.then("Abs")

    def __lt__(self, other: Any) -> Term:
        return self.test("Less", other)

    def __le__(self, other: Any) -> Term:
        return self.test("LessOrEqual", other)

    def __gt__(self, other: Any) -> Term:
        return self.test("Greater", other)

    def __ge__(self, other: Any) -> Term:
        return self.test("GreaterOrEqual", other)

    def test(self, operator: str, other: Any) -> Term:
        """Apply a comparison, whose result are truth values."""
        return Term(self.c, self.c.emit(operator, self.value, self._name(other)), "bool")

    def equals(self, other: Any) -> Term:
        """Return where both are equal, as truth values."""
        return self.test("Equal", other)

    def choose(self, yes: Any, no: Any) -> Term:
        """Return one of two terms, of which one may be a number, where these truth values say so."""
        one = yes if isinstance(yes, Term) else no
        return Term(self.c, self.c.emit("Where", self.value, one._name(yes), one._name(no)), one.dtype)

    def cast(self, dtype: str) -> Term:
        """Return the elements in another type."""
        return self if dtype == self.dtype else Term(self.c, self.c.cast(self.value, dtype), dtype)

    def reduce(self, operator: str, *axes: int, keepdims: bool = False) -> Term:
        """Reduce axes, counted from the front or from the end."""
        return Term(self.c, common.reduce(self.c, operator, self.value, axes, keepdims), self.dtype)

    def unsqueeze(self, *axes: int) -> Term:
        """Insert axes of length 1."""
        return Term(self.c, common.unsqueeze(self.c, self.value, *axes), self.dtype) if axes else self

    def squeeze(self, *axes: int) -> Term:
        """Leave out axes of length 1."""
        return Term(self.c, common.squeeze(self.c, self.value, *axes), self.dtype)

    def transpose(self, *order: int) -> Term:
        """Put the axes into another order."""
        return self if list(order) == sorted(order) else self.then("Transpose", perm=list(order))

    def gather(self, index: Any, axis: int) -> Term:
        """Pick positions along an axis; a single number leaves the axis out."""
        return Term(
            self.c, self.c.emit("Gather", self.value, self.c.const(index, "int64"), axis=axis), self.dtype
        )

    def slice(self, axis: int, begin: int, end: int) -> Term:
        """Cut out positions along an axis."""
        names = [self.c.ints(begin), self.c.ints(end), self.c.ints(axis)]
        return Term(self.c, self.c.emit("Slice", self.value, *names), self.dtype)

    def concat(self, others: Sequence[Term], axis: int) -> Term:
        """Join this and others."""
        return self.then("Concat", *others, axis=axis) if others else self


def term(c: OperatorCall, i: int, dtype: str | None = None) -> Term:
    """Return input `i` in a type; default: the one in which formulas are computed."""
    return Term(c, c.inputs[i], c.dtypes[i]).cast(dtype or working_type(c.dtypes[i]))


def terms(c: OperatorCall) -> list[Term]:
    """Return all inputs in the type in which formulas are computed with the first."""
    return [term(c, i, working_type(c.dtypes[0])) for i in range(len(c.inputs))]


def in_type(found: Term, wanted: str) -> Term:
    """Return a term in a type of ours: what has a fraction loses it, and what is too great for integers wraps."""
    return Term(found.c, common.in_type(found.c, found.value, found.dtype, wanted), wanted)


def result(found: Term, i: int = 0) -> str:
    """Return a term in the type of the operator's output `i`."""
    return in_type(found, found.c.out_dtypes[i]).value
