"""Checks of the arrays given to an operator, and errors that say what was expected and what came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..base import DTypeError, MXNetError, OpError, ShapeError
from ..ops import shapes
from ..ops.dtypes import name_of
from ..ops.spec import Op
from .handle import Handle, Out
from .op_dispatch import PreparedOp


def check_alike(plan: PreparedOp, arrays: Sequence[Handle], tensors: Sequence[torch.Tensor]) -> None:
    """Refuse inputs of different types, and of different shapes where the operator does not broadcast."""
    first = tensors[0]
    for tensor in tensors[1:]:
        if plan.same_type and tensor.dtype != first.dtype:
            raise DTypeError(
                f"{plan.op.name} takes inputs of one type, got {_listed(arrays)}; convert with astype"
            )
        if plan.same_shape and tensor.shape != first.shape:
            raise ShapeError(
                f"{plan.op.name} takes inputs of one shape, got {_listed(arrays)}; "
                "the broadcast_* operators stretch lengths of 1"
            )


def _listed(arrays: Sequence[Any]) -> str:
    return (
        ", ".join(x.describe() if isinstance(x, Handle) else type(x).__name__ for x in arrays) or "no inputs"
    )


def no_array(op: Op, arrays: Sequence[Any]) -> OpError:
    """Name the input that is no array."""
    position, value = next((i, x) for i, x in enumerate(arrays) if not isinstance(x, Handle))
    names = [i.name for i in op.inputs] if isinstance(op.inputs, tuple) else []
    name = names[position] if position < len(names) else f"input {position}"
    hint = "nd.from_torch(x)" if isinstance(value, torch.Tensor) else "nd.array(x)"
    shown = f" {value!r}" if isinstance(value, (int, float, str)) else ""
    return OpError(
        f"{op.name}: {name} is {type(value).__name__}{shown}, expected NDArray; convert it with {hint}"
    )


def failure(plan: PreparedOp, arrays: Sequence[Handle], error: Exception) -> MXNetError:
    """Turn torch's complaint into an error that names the operator and its inputs."""
    text = f"{plan.op.name} failed on {_listed(arrays)}"
    try:
        shapes.infer_shape(plan.op, plan.a, [x.shape for x in arrays], [None] * plan.visible)
    except ShapeError as reason:
        return ShapeError(f"{text}: {reason}")
    except MXNetError:  # the rule is asked for a better message only
        pass
    words = str(error).splitlines() or [type(error).__name__]
    return OpError(f"{text}: {words[0]}")


def targets_of(plan: PreparedOp, results: Sequence[torch.Tensor], out: Out) -> list[Handle]:
    """Return the arrays given as `out`, which fit the results."""
    targets: list[Any] = list(out) if isinstance(out, (list, tuple)) else [out]
    if len(targets) != len(results):
        raise OpError(f"{plan.op.name}: out has {len(targets)} arrays, expected {len(results)}")
    for target, result in zip(targets, results, strict=True):
        if not isinstance(target, Handle):
            raise OpError(f"{plan.op.name}: out is {type(target).__name__}, expected NDArray")
        if target.shape != result.shape:
            raise ShapeError(f"{plan.op.name}: out has shape {target.shape}, expected {tuple(result.shape)}")
        kind = target.raw.dtype
        if kind != result.dtype:
            have, want = name_of(kind), name_of(result.dtype)
            raise DTypeError(f"{plan.op.name}: out has type {have}, expected {want}")
    return targets
