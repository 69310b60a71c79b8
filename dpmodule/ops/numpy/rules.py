"""Type rules and attributes that NumPy's operators share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import DTypeError
from ..attrs import boolean, dtype, ints, optional, real
from ..dtypes import name_of, torch_dtype
from ..spec import Attr, InferType, Types

AXIS = Attr(optional(ints), "axes to reduce; None means all", None)
KEEP = Attr(boolean, "keep reduced axes with size 1", False)
INITIAL = Attr(optional(real), "first value of the reduction, in addition to the elements", None)
RESULT_TYPE = Attr(optional(dtype), "dtype of the result; None means the default of the operator", None)


def common(*types: str) -> str:
    """Return the name of the type to which types are promoted: floats before integers, then the wider."""
    result = torch_dtype(types[0])
    try:
        for each in types[1:]:
            result = torch.promote_types(result, torch_dtype(each))
    except RuntimeError:  # torch has no rule for wide unsigned integers
        raise DTypeError(
            f"{' and '.join(types)} have no common type; convert one of them with Cast"
        ) from None
    return name_of(result)


def to_common(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Convert tensors to their common type."""
    if all(t.dtype == tensors[0].dtype for t in tensors):
        return tensors
    target = torch_dtype(common(*(name_of(t.dtype) for t in tensors)))
    return tuple(t.to(target) for t in tensors)


def types_by(rule: Callable[..., str | None], count: int = 1) -> InferType:
    """Return a type rule from ``rule(a, *types of the inputs) -> type of the outputs``.

    An unknown input has the type of a known one.
    """

    def infer(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
        known = next((t for t in ins if t is not None), None)
        filled = [t or known for t in ins]
        if known is None and ins:
            return ins, outs
        result = rule(a, *filled)
        return filled, [t or result for t in outs]

    return infer


promoted = types_by(lambda a, *types: common(*types))
"""Type rule: the common type of the inputs."""

truths = types_by(lambda a, *types: "bool")
"""Type rule: booleans."""


def each_type(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    """Infer the type of each output from the input of the same number."""
    return [t or o for t, o in zip(ins, outs)], [o or t for t, o in zip(ins, outs)]


def first_type(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    """Infer the type of the first input for all outputs; other inputs may have any."""
    return ins, [t or ins[0] for t in outs]
