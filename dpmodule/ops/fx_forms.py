"""Operators whose own implementation a tracer of torch cannot follow, in a form that it can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from ..base import StateError
from .array.codes import resolve
from .fx_opaque import is_exporting
from .registry import get
from .spec import Env


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


def _cond(a: Any, env: Env, *tensors: torch.Tensor) -> Any:
    """Run one of two branches."""
    _refuse_export("_cond")
    return get("_cond").run(a, env, *tensors)


def _while_loop(a: Any, env: Env, *tensors: torch.Tensor) -> Any:
    """Run a loop; of one without steps, a step is tried for the shapes of outputs that are stacked."""
    _refuse_export("_while_loop")
    test, body = a.bodies
    if test(env, [tensors[i] for i in a.cond_input_locs])[0].item():
        sizes = ((a.max_iterations,),) * a.num_out_data
        return get("_while_loop").run(a, Env(env.device, env.generator, env.is_train, sizes), *tensors)
    values = [tensors[i] for i in a.func_input_locs]
    with torch.no_grad():
        made = body(Env(env.device, env.generator, False), values)[: a.num_out_data]
    stacked = [
        torch.zeros((a.max_iterations, *one.shape), dtype=one.dtype, device=one.device) for one in made
    ]
    results = (*stacked, *(values[i] for i in a.func_var_locs))
    return results[0] if len(results) == 1 else results


def _refuse_export(name: str) -> None:
    """Refuse to be recorded."""
    if is_exporting():
        raise StateError(
            f"{name} looks at its data to decide what runs, which torch.export cannot record; export the symbol with "
            "mx.onnx.export_model, or the parts of it beside the loop or branch"
        )


FORMS: dict[str, Callable[..., Any]] = {
    "Dropout": _dropout,
    "FullyConnected": _fully_connected,
    "Reshape": _reshape,
    "_cond": _cond,
    "_while_loop": _while_loop,
}
"""Functions ``(a, env, *tensors)`` by the operator's name."""
