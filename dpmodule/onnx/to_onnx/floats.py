"""Builders that compute in the types for which runtimes have kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps

from .call import OperatorCall

__all__ = ["in_floats"]

Builder = Callable[[OperatorCall], str | Sequence[str]]

_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})


def in_floats(half: bool = True, double: bool = False) -> Callable[[Builder], Builder]:
    """Make a builder compute in one floating type that ONNX Runtime has its operators in.

    Values of other floating types are cast before, and what it returns is cast to the types that are wanted. Values
    that are all float32 stay as they are.

    Args:
        half: whether float16 stays, if everything has that type.
        double: whether float64 stays.
    """

    def declare(builder: Builder) -> Builder:
        @wraps(builder)
        def build(c: OperatorCall) -> str | Sequence[str]:
            types = {t for t in (*c.dtypes, *c.out_dtypes) if t in _FLOATS}
            dtype = _computed_in(types, half, double)
            if types <= {dtype}:
                return builder(c)
            found = builder(_converted(c, dtype))
            outputs = [found] if isinstance(found, str) else found
            return [
                c.cast(value, wanted) if wanted in types - {dtype} else value
                for value, wanted in zip(outputs, c.out_dtypes)
            ]

        return build

    return declare


def _computed_in(types: set[str], half: bool, double: bool) -> str:
    if double and "float64" in types:
        return "float64"
    return "float16" if half and types == {"float16"} else "float32"


def _converted(c: OperatorCall, dtype: str) -> OperatorCall:
    """Return a call whose floating inputs have been cast."""
    inputs = [c.cast(x, dtype) if t in _FLOATS - {dtype} else x for x, t in zip(c.inputs, c.dtypes)]
    return c.on(inputs, [dtype if t in _FLOATS else t for t in (*c.dtypes, *c.out_dtypes)])
