"""Operators as methods of arrays: ``x.sum(axis=1)`` is ``nd.sum(x, axis=1)``."""

from __future__ import annotations

from functools import partial

from ..later import Method
from ..ops import names
from .faces import face
from .handle import Handle

__all__ = ["FLUENT", "OpMethods"]

_NAMES = """
abs arccos arccosh arcsin arcsinh arctan arctanh argmax argmax_channel argmin argsort broadcast_axes
broadcast_like broadcast_to cbrt ceil clip cos cosh degrees depth_to_space diag exp expand_dims expm1 fix
flatten flip floor log log10 log1p log2 log_softmax max mean min nanprod nansum norm one_hot ones_like pad
pick prod radians rcbrt reciprocal relu repeat reshape reshape_like rint round rsqrt shape_array sigmoid sign
sin sinh size_array slice slice_axis slice_like softmax softmin sort space_to_depth split sqrt square squeeze
sum swapaxes take tan tanh tile topk transpose trunc zeros_like
"""
FLUENT = tuple(_NAMES.split())
"""MXNet's operator methods; those of operators that this package has become methods of `OpMethods`."""


class OpMethods(Handle):
    """A handle with the operators of `FLUENT` as methods; `methods.pyi` lists them with their signatures."""

    __slots__ = ()


for _name in set(FLUENT).intersection(names()):
    setattr(OpMethods, _name, Method(OpMethods, _name, partial(face, _name)))
