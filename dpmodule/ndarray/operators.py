"""Arithmetic and comparison of arrays: Python's operators, and MXNet's functions of the same meaning."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .. import mode
from ..base import DTypeError
from ..ops import get
from ..ops.dtypes import name_of
from .convert import is_number, tensor_of
from .execution import execute
from .handle import Handle
from .methods import OpMethods
from .plan import Plan, plan_for

__all__ = [
    "Arithmetic",
    "add",
    "divide",
    "equal",
    "greater",
    "greater_equal",
    "lesser",
    "lesser_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "modulo",
    "multiply",
    "not_equal",
    "power",
    "subtract",
    "true_divide",
]


class _Binary:
    """The operators behind one symbol: of two arrays, of array and number, of number and array."""

    def __init__(
        self,
        arrays: str,
        scalar: str,
        plain: Callable[[Any, Any], Any],
        reflected: str | None = None,
        inplace: Callable[..., torch.Tensor] | None = None,
    ) -> None:
        self.arrays = arrays
        self.scalar = scalar
        self.reflected = reflected or scalar
        self.plain = plain
        self.inplace = inplace
        self._plan: Plan | None = None

    def both(self, lhs: Handle, rhs: Handle, out: Handle | None = None) -> Any:
        """Run on two arrays, with broadcasting."""
        if self._plan is None:
            self._plan = Plan(get(self.arrays), {}, 2)
        return execute(self._plan, (lhs, rhs), None, out)

    def right(self, lhs: Handle, rhs: Any, out: Handle | None = None) -> Any:
        """Run on an array and whatever stands on its right; NotImplemented if that is no number or array."""
        if isinstance(rhs, Handle):
            return self.both(lhs, rhs, out)
        if is_number(rhs):
            return execute(_scalar_plan(self.scalar, rhs), (lhs,), None, out)
        return self.both(lhs, _beside(lhs, rhs), out) if isinstance(rhs, np.ndarray) else NotImplemented

    def left(self, lhs: Any, rhs: Handle) -> Any:
        """Run on a number or NumPy array and an array."""
        if is_number(lhs):
            return execute(_scalar_plan(self.reflected, lhs), (rhs,))
        return self.both(_beside(rhs, lhs), rhs) if isinstance(lhs, np.ndarray) else NotImplemented

    def within(self, lhs: Handle, rhs: Any) -> Any:
        """Run on an array and write the result into it."""
        if self.inplace is not None and not mode.is_recording() and lhs.raw.is_floating_point():
            value = _direct(lhs.raw, rhs)
            if value is not None:
                self.inplace(lhs.raw.detach(), value)
                return lhs
        return self.right(lhs, rhs, lhs)

    def function(self, lhs: Any, rhs: Any) -> Any:
        """Run on any mixture of arrays and numbers.

        Raises:
            DTypeError: one is neither.
        """
        if isinstance(lhs, Handle):
            result = self.right(lhs, rhs)
        elif isinstance(rhs, Handle):
            result = self.left(lhs, rhs)
        else:
            both = is_number(lhs) and is_number(rhs)
            result = self.plain(lhs, rhs) if both else NotImplemented
        if result is NotImplemented:
            given = f"{type(lhs).__name__} and {type(rhs).__name__}"
            raise DTypeError(f"{self.arrays} takes NDArrays and numbers, got {given}")
        return result


def _scalar_plan(name: str, number: Any) -> Plan:
    return plan_for(get(name), {"scalar": number.item() if isinstance(number, np.generic) else number}, 1)


def _beside(array: Handle, values: Any) -> Handle:
    """Return a NumPy array as one of the other operand's type and context."""
    dtype = array.raw.dtype
    return Handle(tensor_of(values, dtype, name_of(dtype), array.raw.device), array.context)


def _direct(tensor: torch.Tensor, other: Any) -> Any:
    """Return what torch may write into `tensor` without a detour, or None.

    Two arrays that overlap in part need the detour.
    """
    if type(other) in (int, float):
        return other
    if not isinstance(other, Handle):
        return None
    found = other.raw
    if found.dtype != tensor.dtype or found.shape != tensor.shape or found.device != tensor.device:
        return None
    apart = found.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr()
    same_place = found.data_ptr() == tensor.data_ptr() and found.stride() == tensor.stride()
    return found if apart or same_place else None


def _compared(kind: _Binary, lhs: Handle, rhs: Any) -> Any:
    """Compare; unlike arithmetic, Python would answer an unknown right-hand side silently with False."""
    result = kind.right(lhs, rhs)
    if result is NotImplemented and rhs is not None:
        raise DTypeError(
            f"an NDArray cannot be compared with a {type(rhs).__name__}; convert it with nd.array(x)"
        )
    return result


_ADD = _Binary("broadcast_add", "_plus_scalar", operator.add, inplace=torch.Tensor.add_)
_SUB = _Binary("broadcast_sub", "_minus_scalar", operator.sub, "_rminus_scalar", torch.Tensor.sub_)
_MUL = _Binary("broadcast_mul", "_mul_scalar", operator.mul, inplace=torch.Tensor.mul_)
_DIV = _Binary("broadcast_div", "_div_scalar", operator.truediv, "_rdiv_scalar", torch.Tensor.div_)
_MOD = _Binary("broadcast_mod", "_mod_scalar", operator.mod, "_rmod_scalar")
_POW = _Binary("broadcast_power", "_power_scalar", operator.pow, "_rpower_scalar")
_MAX = _Binary("broadcast_maximum", "_maximum_scalar", max)
_MIN = _Binary("broadcast_minimum", "_minimum_scalar", min)
_EQ = _Binary("broadcast_equal", "_equal_scalar", lambda x, y: int(x == y))
_NE = _Binary("broadcast_not_equal", "_not_equal_scalar", lambda x, y: int(x != y))
_GT = _Binary("broadcast_greater", "_greater_scalar", lambda x, y: int(x > y), "_lesser_scalar")
_GE = _Binary(
    "broadcast_greater_equal", "_greater_equal_scalar", lambda x, y: int(x >= y), "_lesser_equal_scalar"
)
_LT = _Binary("broadcast_lesser", "_lesser_scalar", lambda x, y: int(x < y), "_greater_scalar")
_LE = _Binary(
    "broadcast_lesser_equal", "_lesser_equal_scalar", lambda x, y: int(x <= y), "_greater_equal_scalar"
)
_AND = _Binary("broadcast_logical_and", "_logical_and_scalar", lambda x, y: int(bool(x and y)))
_OR = _Binary("broadcast_logical_or", "_logical_or_scalar", lambda x, y: int(bool(x or y)))
_XOR = _Binary("broadcast_logical_xor", "_logical_xor_scalar", lambda x, y: int(bool(x) != bool(y)))


class Arithmetic(OpMethods):
    """Python's operators on arrays.

    Arrays broadcast, must have one type, and may meet numbers and NumPy arrays (which take the array's type).
    Comparisons answer 0 and 1 in the operands' type. ``a += b`` writes into a's memory; every view sees it.
    """

    __slots__ = ()
    __array_priority__ = 1000.0  # NumPy arrays leave ``array + ndarray`` to this class
    __hash__ = object.__hash__

    def __add__(self, other: Any) -> Any:
        return _ADD.right(self, other)

    __radd__ = __add__

    def __iadd__(self, other: Any) -> Any:
        return _ADD.within(self, other)

    def __sub__(self, other: Any) -> Any:
        return _SUB.right(self, other)

    def __rsub__(self, other: Any) -> Any:
        return _SUB.left(other, self)

    def __isub__(self, other: Any) -> Any:
        return _SUB.within(self, other)

    def __mul__(self, other: Any) -> Any:
        return _MUL.right(self, other)

    __rmul__ = __mul__

    def __imul__(self, other: Any) -> Any:
        return _MUL.within(self, other)

    def __truediv__(self, other: Any) -> Any:
        return _DIV.right(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _DIV.left(other, self)

    def __itruediv__(self, other: Any) -> Any:
        return _DIV.within(self, other)

    def __mod__(self, other: Any) -> Any:
        return _MOD.right(self, other)

    def __rmod__(self, other: Any) -> Any:
        return _MOD.left(other, self)

    def __imod__(self, other: Any) -> Any:
        return _MOD.within(self, other)

    def __pow__(self, other: Any) -> Any:
        return _POW.right(self, other)

    def __rpow__(self, other: Any) -> Any:
        return _POW.left(other, self)

    def __ipow__(self, other: Any) -> Any:
        return _POW.within(self, other)

    def __neg__(self) -> Any:
        return _MUL.right(self, -1)

    def __abs__(self) -> Any:
        return execute(plan_for(get("abs"), {}, 1), (self,))

    def __eq__(self, other: Any) -> Any:
        return _compared(_EQ, self, other)

    def __ne__(self, other: Any) -> Any:
        return _compared(_NE, self, other)

    def __gt__(self, other: Any) -> Any:
        return _compared(_GT, self, other)

    def __ge__(self, other: Any) -> Any:
        return _compared(_GE, self, other)

    def __lt__(self, other: Any) -> Any:
        return _compared(_LT, self, other)

    def __le__(self, other: Any) -> Any:
        return _compared(_LE, self, other)


def add(lhs: Any, rhs: Any) -> Any:
    """Return lhs + rhs; either may be an array or a number."""
    return _ADD.function(lhs, rhs)


def subtract(lhs: Any, rhs: Any) -> Any:
    """Return lhs - rhs; either may be an array or a number."""
    return _SUB.function(lhs, rhs)


def multiply(lhs: Any, rhs: Any) -> Any:
    """Return lhs * rhs; either may be an array or a number."""
    return _MUL.function(lhs, rhs)


def divide(lhs: Any, rhs: Any) -> Any:
    """Return lhs / rhs, cut towards 0 for integer arrays; either may be an array or a number."""
    return _DIV.function(lhs, rhs)


true_divide = divide


def modulo(lhs: Any, rhs: Any) -> Any:
    """Return the remainder of lhs / rhs, with the sign of rhs; either may be an array or a number."""
    return _MOD.function(lhs, rhs)


def power(base: Any, exp: Any) -> Any:
    """Return base to the power of exp; either may be an array or a number."""
    return _POW.function(base, exp)


def maximum(lhs: Any, rhs: Any) -> Any:
    """Return the greater of lhs and rhs, element by element; either may be an array or a number."""
    return _MAX.function(lhs, rhs)


def minimum(lhs: Any, rhs: Any) -> Any:
    """Return the smaller of lhs and rhs, element by element; either may be an array or a number."""
    return _MIN.function(lhs, rhs)


def equal(lhs: Any, rhs: Any) -> Any:
    """Return 1 where lhs == rhs, else 0, in the arrays' type."""
    return _EQ.function(lhs, rhs)


def not_equal(lhs: Any, rhs: Any) -> Any:
    """Return 1 where lhs != rhs, else 0, in the arrays' type."""
    return _NE.function(lhs, rhs)


def greater(lhs: Any, rhs: Any) -> Any:
    """Return 1 where lhs > rhs, else 0, in the arrays' type."""
    return _GT.function(lhs, rhs)


def greater_equal(lhs: Any, rhs: Any) -> Any:
    """Return 1 where lhs >= rhs, else 0, in the arrays' type."""
    return _GE.function(lhs, rhs)


def lesser(lhs: Any, rhs: Any) -> Any:
    """Return 1 where lhs < rhs, else 0, in the arrays' type."""
    return _LT.function(lhs, rhs)


def lesser_equal(lhs: Any, rhs: Any) -> Any:
    """Return 1 where lhs <= rhs, else 0, in the arrays' type."""
    return _LE.function(lhs, rhs)


def logical_and(lhs: Any, rhs: Any) -> Any:
    """Return 1 where neither lhs nor rhs is 0, else 0, in the arrays' type."""
    return _AND.function(lhs, rhs)


def logical_or(lhs: Any, rhs: Any) -> Any:
    """Return 1 where lhs or rhs is not 0, else 0, in the arrays' type."""
    return _OR.function(lhs, rhs)


def logical_xor(lhs: Any, rhs: Any) -> Any:
    """Return 1 where exactly one of lhs and rhs is not 0, else 0, in the arrays' type."""
    return _XOR.function(lhs, rhs)
