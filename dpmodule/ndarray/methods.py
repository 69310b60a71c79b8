"""Operators as methods of arrays and symbols: ``x.sum(axis=1)`` is ``nd.sum(x, axis=1)``.

Source: the operator methods of MXNet 1.9.1's `NDArray` and `Symbol`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from .._core.lazy import Method
from ..ops import names

T = TypeVar("T", bound=type)

_NAMES = """
abs arccos arccosh arcsin arcsinh arctan arctanh argmax argmax_channel argmin argsort broadcast_axes
broadcast_like broadcast_to cbrt ceil clip cos cosh degrees depth_to_space diag exp expand_dims expm1 fix
flatten flip floor log log10 log1p log2 log_softmax max mean min nanprod nansum norm one_hot ones_like pad
pick prod radians rcbrt reciprocal relu repeat reshape reshape_like rint round rsqrt shape_array sigmoid sign
sin sinh size_array slice slice_axis slice_like softmax softmin sort space_to_depth split sqrt square squeeze
sum swapaxes take tan tanh tile topk transpose trunc zeros_like
"""
FLUENT = tuple(_NAMES.split())
"""MXNet's operator methods."""

OpMethods = object
"""Base class for type checkers with the methods that `fluent` adds; `methods.pyi` lists them."""


def fluent(make: Callable[[str], Callable[..., Any]]) -> Callable[[T], T]:
    """Return a class decorator that adds the methods of `FLUENT` whose operators this package has.

    Methods that the class defines are kept.

    Args:
        make: returns the function of an operator; called at the first use of the method.
    """

    def decorate(home: T) -> T:
        for name in set(FLUENT).intersection(names()).difference(vars(home)):
            setattr(home, name, Method(home, name, partial(make, name)))
        return home

    return decorate
