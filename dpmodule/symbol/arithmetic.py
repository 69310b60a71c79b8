"""Python's operators on symbols."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..base import NotImplementedForSymbol
from .inference import Inference

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Arithmetic"]

_NUMBERS = (int, float, np.number, np.bool_)


class Arithmetic(Inference):
    """Operators between symbols of one shape, and between symbols and numbers.

    The names under which operators are called here decide the automatic names of their nodes.
    """

    __array_ufunc__ = None
    """NumPy's numbers leave operators to us."""

    def _apply(self, alias: str, *inputs: Any, **attributes: Any) -> Self:
        """Return the symbol of an operator call."""
        raise NotImplementedError

    def _binary(self, alias: str, scalar_alias: str, other: Any) -> Self:
        if isinstance(other, Arithmetic):
            return self._apply(alias, self, other)
        return self._with_number(scalar_alias, other)

    def _with_number(self, alias: str, other: Any) -> Self:
        if isinstance(other, _NUMBERS):
            return self._apply(alias, self, scalar=other)
        return NotImplemented  # type: ignore[no-any-return]

    def __add__(self, other: Any) -> Self:
        return self._binary("_Plus", "_PlusScalar", other)

    def __radd__(self, other: Any) -> Self:
        return self._with_number("_PlusScalar", other)

    def __sub__(self, other: Any) -> Self:
        return self._binary("_Minus", "_MinusScalar", other)

    def __rsub__(self, other: Any) -> Self:
        return self._with_number("_RMinusScalar", other)

    def __mul__(self, other: Any) -> Self:
        return self._binary("_Mul", "_MulScalar", other)

    def __rmul__(self, other: Any) -> Self:
        return self._with_number("_MulScalar", other)

    def __truediv__(self, other: Any) -> Self:
        return self._binary("_Div", "_DivScalar", other)

    def __rtruediv__(self, other: Any) -> Self:
        return self._with_number("_RDivScalar", other)

    def __mod__(self, other: Any) -> Self:
        return self._binary("_Mod", "_ModScalar", other)

    def __rmod__(self, other: Any) -> Self:
        return self._with_number("_RModScalar", other)

    def __pow__(self, other: Any) -> Self:
        return self._binary("_Power", "_PowerScalar", other)

    def __rpow__(self, other: Any) -> Self:
        return self._with_number("_rpower_scalar", other)

    def __neg__(self) -> Self:
        return self._apply("_MulScalar", self, scalar=-1.0)

    def __abs__(self) -> Self:
        return self._apply("abs", self)

    def __eq__(self, other: object) -> Any:
        return self._binary("_Equal", "_equal_scalar", other)

    def __ne__(self, other: object) -> Any:
        return self._binary("_Not_Equal", "_not_equal_scalar", other)

    def __gt__(self, other: Any) -> Self:
        return self._binary("_Greater", "_greater_scalar", other)

    def __ge__(self, other: Any) -> Self:
        return self._binary("_Greater_Equal", "_greater_equal_scalar", other)

    def __lt__(self, other: Any) -> Self:
        return self._binary("_Lesser", "_lesser_scalar", other)

    def __le__(self, other: Any) -> Self:
        return self._binary("_Lesser_Equal", "_lesser_equal_scalar", other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise NotImplementedForSymbol("__bool__", "a comparison with `is`")

    def __iadd__(self, other: Any) -> Self:
        raise NotImplementedForSymbol("__iadd__", "a = a + b")

    def __isub__(self, other: Any) -> Self:
        raise NotImplementedForSymbol("__isub__", "a = a - b")

    def __imul__(self, other: Any) -> Self:
        raise NotImplementedForSymbol("__imul__", "a = a * b")

    def __itruediv__(self, other: Any) -> Self:
        raise NotImplementedForSymbol("__itruediv__", "a = a / b")
