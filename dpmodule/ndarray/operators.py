"""Arithmetic and comparison of arrays: Python's operators and the corresponding functions of MXNet.

Source: MXNet 1.9.1's functions of these names.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .._core import mode
from ..base import DTypeError
from ..ops import get
from ..ops.dtypes import name_of
from .convert import is_number, tensor_of
from .execution import execute
from .handle import Handle, Operand
from .op_dispatch import PreparedOp, plan_for

if TYPE_CHECKING:
    from ..types import Number

Method = Callable[[Handle, Operand], Any]


class Binary:
    """The operators of one Python operator: for two arrays, array and number, number and array.

    Attributes:
        right: method of the left operand, an array; NotImplemented unless the right one is a number or array.
        left: reflected method, for a number or NumPy array on the left.
        within: in-place method.
    """

    def __init__(
        self,
        arrays: str,
        scalar: str,
        plain: Callable[[Any, Any], Any],
        reflected: str | None = None,
        inplace: Callable[..., torch.Tensor] | None = None,
    ) -> None:
        self.arrays = arrays
        self.plain = plain
        right = self._right(scalar)
        self.right: Method = right
        self.left: Method = self._left(reflected or scalar)
        self.within: Method = self._within(right, inplace)

    def _right(self, scalar: str) -> Callable[..., Any]:
        plan: PreparedOp | None = None

        def right(lhs: Handle, rhs: Operand, out: Handle | None = None) -> Any:
            nonlocal plan
            if isinstance(rhs, Handle):
                if plan is None:  # first use
                    plan = PreparedOp(get(self.arrays), {}, 2)
                return execute(plan, (lhs, rhs), None, out)
            if is_number(rhs):
                return execute(_scalar_plan(scalar, rhs), (lhs,), None, out)
            return (
                right(lhs, _as_array_like(lhs, rhs), out) if isinstance(rhs, np.ndarray) else NotImplemented
            )

        return right

    def _left(self, scalar: str) -> Method:
        def left(rhs: Handle, lhs: Operand) -> Any:
            if is_number(lhs):
                return execute(_scalar_plan(scalar, lhs), (rhs,))
            return (
                self.right(_as_array_like(rhs, lhs), rhs) if isinstance(lhs, np.ndarray) else NotImplemented
            )

        return left

    def _within(self, right: Callable[..., Any], inplace: Callable[..., torch.Tensor] | None) -> Method:
        def within(lhs: Handle, rhs: Operand) -> Any:
            if inplace is not None and not mode.is_recording() and lhs.raw.is_floating_point():
                value = _direct(lhs.raw, rhs)
                if value is not None:
                    inplace(lhs.raw.detach(), value)
                    return lhs
            return right(lhs, rhs, lhs)

        return within

    def compared(self) -> Callable[[Handle, Any], Any]:
        """Return `right` for a comparison: unlike for arithmetic, Python would return False for unknown operands."""
        right = self.right

        def compare(lhs: Handle, rhs: Any) -> Any:
            """Compare an array with the right operand."""
            result = right(lhs, rhs)
            if result is NotImplemented and rhs is not None:
                raise DTypeError(
                    f"an NDArray cannot be compared with a {type(rhs).__name__}; convert it with nd.array(x)"
                )
            return result

        return compare

    def function(self, lhs: Operand, rhs: Operand) -> Any:
        """Run on any combination of arrays and numbers."""
        if isinstance(lhs, Handle):
            result = self.right(lhs, rhs)
        elif isinstance(rhs, Handle):
            result = self.left(rhs, lhs)
        else:
            both = is_number(lhs) and is_number(rhs)
            result = self.plain(lhs, rhs) if both else NotImplemented
        if result is NotImplemented:
            given = f"{type(lhs).__name__} and {type(rhs).__name__}"
            raise DTypeError(f"{self.arrays} takes NDArrays and numbers, got {given}")
        return result


def _scalar_plan(name: str, number: Number) -> PreparedOp:
    return plan_for(get(name), {"scalar": number.item() if isinstance(number, np.generic) else number}, 1)


def _as_array_like(array: Handle, values: np.ndarray[Any, Any]) -> Handle:
    """Return a NumPy array as an array of the other operand's type and context."""
    dtype = array.raw.dtype
    return Handle(tensor_of(values, dtype, name_of(dtype), array.raw.device), array.context)


def _direct(tensor: torch.Tensor, other: Operand) -> Any:
    """Return the operand that torch may write into `tensor` directly, or None.

    Arrays that partly overlap need a copy.
    """
    if type(other) in (int, float):
        return other
    if not isinstance(other, Handle):
        return None
    operand = other.raw
    if operand.dtype != tensor.dtype or operand.shape != tensor.shape or operand.device != tensor.device:
        return None
    apart = operand.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr()
    same_place = operand.data_ptr() == tensor.data_ptr() and operand.stride() == tensor.stride()
    return operand if apart or same_place else None


ADD = Binary("broadcast_add", "_plus_scalar", operator.add, inplace=torch.Tensor.add_)
SUB = Binary("broadcast_sub", "_minus_scalar", operator.sub, "_rminus_scalar", torch.Tensor.sub_)
MUL = Binary("broadcast_mul", "_mul_scalar", operator.mul, inplace=torch.Tensor.mul_)
DIV = Binary("broadcast_div", "_div_scalar", operator.truediv, "_rdiv_scalar", torch.Tensor.div_)
MOD = Binary("broadcast_mod", "_mod_scalar", operator.mod, "_rmod_scalar")
POW = Binary("broadcast_power", "_power_scalar", operator.pow, "_rpower_scalar")
MAX = Binary("broadcast_maximum", "_maximum_scalar", max)
MIN = Binary("broadcast_minimum", "_minimum_scalar", min)
EQ = Binary("broadcast_equal", "_equal_scalar", lambda x, y: int(x == y))
NE = Binary("broadcast_not_equal", "_not_equal_scalar", lambda x, y: int(x != y))
GT = Binary("broadcast_greater", "_greater_scalar", lambda x, y: int(x > y), "_lesser_scalar")
GE = Binary(
    "broadcast_greater_equal", "_greater_equal_scalar", lambda x, y: int(x >= y), "_lesser_equal_scalar"
)
LT = Binary("broadcast_lesser", "_lesser_scalar", lambda x, y: int(x < y), "_greater_scalar")
LE = Binary(
    "broadcast_lesser_equal", "_lesser_equal_scalar", lambda x, y: int(x <= y), "_greater_equal_scalar"
)
AND = Binary("broadcast_logical_and", "_logical_and_scalar", lambda x, y: int(bool(x and y)))
OR = Binary("broadcast_logical_or", "_logical_or_scalar", lambda x, y: int(bool(x or y)))
XOR = Binary("broadcast_logical_xor", "_logical_xor_scalar", lambda x, y: int(bool(x) != bool(y)))


def add(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs + rhs, with broadcasting; either may be an array or a number."""
    return ADD.function(lhs, rhs)


def subtract(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs - rhs, with broadcasting; either may be an array or a number."""
    return SUB.function(lhs, rhs)


def multiply(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs * rhs, with broadcasting; either may be an array or a number."""
    return MUL.function(lhs, rhs)


def divide(lhs: Operand, rhs: Operand) -> Any:
    """Return lhs / rhs with broadcasting, truncated towards 0 for integers; either may be an array or a number."""
    return DIV.function(lhs, rhs)


true_divide = divide


def modulo(lhs: Operand, rhs: Operand) -> Any:
    """Return the remainder of lhs / rhs, with the sign of rhs and broadcasting; either may be an array or a number."""
    return MOD.function(lhs, rhs)


def power(base: Operand, exp: Operand) -> Any:
    """Return base to the power of exp, with broadcasting; either may be an array or a number.

    Args:
        exp: the exponent; its shape broadcasts with that of `base`.
    """
    return POW.function(base, exp)


def maximum(lhs: Operand, rhs: Operand) -> Any:
    """Return the greater of lhs and rhs, with broadcasting; either may be an array or a number."""
    return MAX.function(lhs, rhs)


def minimum(lhs: Operand, rhs: Operand) -> Any:
    """Return the smaller of lhs and rhs, with broadcasting; either may be an array or a number."""
    return MIN.function(lhs, rhs)


def equal(lhs: Operand, rhs: Operand) -> Any:
    """Return 1 where lhs == rhs, else 0, in the arrays' type, with broadcasting."""
    return EQ.function(lhs, rhs)


def not_equal(lhs: Operand, rhs: Operand) -> Any:
    """Return 1 where lhs != rhs, else 0, in the arrays' type, with broadcasting."""
    return NE.function(lhs, rhs)


def greater(lhs: Operand, rhs: Operand) -> Any:
    """Return 1 where lhs > rhs, else 0, in the arrays' type, with broadcasting."""
    return GT.function(lhs, rhs)


def greater_equal(lhs: Operand, rhs: Operand) -> Any:
    """Return 1 where lhs >= rhs, else 0, in the arrays' type, with broadcasting."""
    return GE.function(lhs, rhs)


def lesser(lhs: Operand, rhs: Operand) -> Any:
    """Return 1 where lhs < rhs, else 0, in the arrays' type, with broadcasting."""
    return LT.function(lhs, rhs)


def lesser_equal(lhs: Operand, rhs: Operand) -> Any:
    """Return 1 where lhs <= rhs, else 0, in the arrays' type, with broadcasting."""
    return LE.function(lhs, rhs)


def logical_and(lhs: Operand, rhs: Operand) -> Any:
    """Return 1 where neither lhs nor rhs is 0, else 0, in the arrays' type, with broadcasting."""
    return AND.function(lhs, rhs)


def logical_or(lhs: Operand, rhs: Operand) -> Any:
    """Return 1 where lhs or rhs is not 0, else 0, in the arrays' type, with broadcasting."""
    return OR.function(lhs, rhs)


def logical_xor(lhs: Operand, rhs: Operand) -> Any:
    """Return 1 where exactly one of lhs and rhs is not 0, else 0, in the arrays' type, with broadcasting."""
    return XOR.function(lhs, rhs)
