"""Operators whose own implementation a tracer of torch cannot follow, in a form that it can."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from ..base import StateError
from .registry import get
from .array.codes import resolve
from .spec import Env

__all__ = ["FORMS"]


def _fully_connected(
    a: Any, env: Env, data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Multiply by torch's own choice of kernels, whatever the size."""
    if a.flatten and data.dim() != 2:
        data = data.flatten(1) if data.dim() > 1 else data.unsqueeze(1)
    return F.linear(data, weight, bias if bias is None or bias.dim() == 1 else bias.reshape(-1))


def _dropout(a: Any, env: Env, data: torch.Tensor) -> torch.Tensor:
    """Drop by torch's operator, which compilers know; one decision for whole axes, and p = 1, by hand."""
    if a.p == 0 or not (env.is_train or a.mode == "always"):
        return data
    if not a.axes and a.p < 1:
        return F.dropout(data, a.p, True)
    axes = {axis % data.dim() for axis in a.axes}
    dims = [1 if i in axes else n for i, n in enumerate(data.shape)]
    return data * torch.empty(dims, dtype=data.dtype, device=data.device).bernoulli_(1 - a.p).div_(1 - a.p)


def _reshape(a: Any, env: Env, data: torch.Tensor) -> torch.Tensor:
    """Reshape by codes that are worked out on sizes that a tracer does not know."""
    codes, reverse = a.shape, a.reverse
    if not codes:
        codes = tuple(
            0 if a.keep_highest and i == 0 else -1 if d == 0 else d for i, d in enumerate(a.target_shape)
        )
    if not reverse and min(codes) >= -1:
        return data.reshape([data.shape[i] if code == 0 else code for i, code in enumerate(codes)])
    return data.reshape(resolve.__wrapped__(tuple(data.shape), codes, reverse))


def _loop_or_branch(name: str) -> Callable[..., Any]:
    """Return the run of an operator that reads numbers to decide what to do."""
    run = get(name).run

    def compute(a: Any, env: Env, *tensors: torch.Tensor) -> Any:
        if torch.compiler.is_exporting():
            raise StateError(
                f"{name} looks at its data to decide what runs, which torch.export cannot record; export the symbol "
                "with mx.onnx.export_model, or the parts around it"
            )
        if name == "_while_loop":
            env = _with_sizes(a, env, tensors)
        return run(a, env, *tensors)

    return compute


def _with_sizes(a: Any, env: Env, tensors: Sequence[torch.Tensor]) -> Env:
    """Return an environment with the shapes of stacked outputs, which one run of the body tells."""
    with torch.no_grad():
        made = a.bodies[1](env, [tensors[i] for i in a.func_input_locs])
    sizes = tuple((a.max_iterations, *one.shape) for one in made[: a.num_out_data])
    return Env(env.device, env.generator, env.is_train, sizes)


FORMS: dict[str, Callable[..., Any]] = {
    "Dropout": _dropout,
    "FullyConnected": _fully_connected,
    "Reshape": _reshape,
    "_cond": _loop_or_branch("_cond"),
    "_while_loop": _loop_or_branch("_while_loop"),
}
"""Functions ``(a, env, *tensors)`` by the operator's name."""
