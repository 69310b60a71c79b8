"""Shapes and types of one operator's outputs, by its rule or by running it on torch's meta device."""

from __future__ import annotations

from typing import Any

import torch

from ..base import OpError, Shape, ShapeError
from .shapes import known, output_shape, same_types
from .spec import Env, Op, Shapes, Types
from .user_code import is_users

_META = torch.device("meta")


def _by_meta(op: Op, a: Any, ins: list[Shape], outs: list[Shape]) -> list[Shape]:
    """Run the operator on tensors without memory; only for operators that have no rule."""
    tensors = [torch.empty(s or (), device=_META) for s in ins]
    try:
        with torch.no_grad():
            result = op.run(a, Env(_META, None, False, tuple(s or () for s in outs)), *tensors)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise ShapeError(f"{op.name} does not take inputs of shape {ins}: {error}") from error
    results = result if isinstance(result, (tuple, list)) else (result,)
    return [output_shape(o, tuple(r.shape)) for o, r in zip(outs, results)]


def infer_shape(op: Op, a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Fill in the input and output shapes that follow from the known ones."""
    if op.infer is not None:
        try:
            return op.infer(a, ins, outs)
        except (IndexError, TypeError, ZeroDivisionError, OpError) as error:
            if is_users(error):
                raise
            raise ShapeError(f"{op.name} does not take inputs of shape {ins}: {error}") from error
    if all(known(s) for s in ins):
        return ins, _by_meta(op, a, ins, outs)
    return ins, outs


def infer_type(op: Op, a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    """Fill in the input and output types that follow from the known ones."""
    return (op.infer_type or same_types)(a, ins, outs)
