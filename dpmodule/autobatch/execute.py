"""Running one batch forward and backward: what every engine shares."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..compat import torch_private
from .ops.spec import BatchCall

__all__ = ["aux_tensor", "grad_call", "run_call"]

Tensor = torch.Tensor


def aux_tensor(kind: str, values: list[Any], device: torch.device, dtype: torch.dtype) -> Any:
    """Turn the nodes' own arguments (`Op.aux`) into what `BatchCall.aux` promises.

    Shape:
        returns: (nodes,) or (nodes, ...), as `Op.aux` says.

    Args:
        kind: `Op.aux`.
        values: one entry a node.
        device: where integers and numbers go.
        dtype: the element type of the graph.
    """
    if kind == "":
        return None
    if kind == "float":
        return torch.from_numpy(np.array(values, np.float64)).to(device, dtype)
    if kind in ("int", "ints"):  # by way of numpy, which reads lists ten times as fast
        return torch.from_numpy(np.array(values, np.int64)).to(device)
    return values


def run_call(call: BatchCall, run: Any, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """Compute the results of a batch; keeps the first one in ``call.result``.

    Shape:
        inputs, returns: each (nodes or 1, batch, *d).
    """
    found = run(call, *inputs)
    results: tuple[Tensor, ...] = found if isinstance(found, tuple) else (found,)
    call.result = results[0]
    return results


def grad_call(call: BatchCall, op: Any, gradients: list[Tensor], inputs: list[Tensor]) -> list[Tensor | None]:
    """Compute the gradient of every operand of a batch, of the operand's shape.

    Shape:
        gradients: each (nodes, batch, *d).
        inputs, returns: each (nodes or 1, batch, *d).

    Args:
        call: as `run_call` left it, with `wants` and `defer` set.
        op: the operation.
        gradients: those of its results.
        inputs: the operands.
    """
    found: list[Tensor | None] | None = None
    if op.grad is not None:
        found = op.grad(call, gradients[0] if len(gradients) == 1 else tuple(gradients), *inputs)
    if found is None:
        found = _by_autograd(call, op.run, gradients, inputs)
    for place, (each, x) in enumerate(zip(found, inputs)):
        if each is not None and each.shape[0] != x.shape[0]:
            found[place] = each.sum(0, keepdim=True)
    return found


def _by_autograd(
    call: BatchCall, run: Any, gradients: list[Tensor], inputs: list[Tensor]
) -> list[Tensor | None]:
    wants = call.wants or (True,) * len(inputs)
    leaves = [x.detach().requires_grad_() if want else x for x, want in zip(inputs, wants)]
    wanted = [x for x, want in zip(leaves, wants) if want]
    if not wanted:
        return [None] * len(inputs)
    with torch.enable_grad():
        found = run(call, *leaves)
        results = found if isinstance(found, tuple) else (found,)
        pairs = [(r.expand_as(g), g) for r, g in zip(results, gradients) if r.requires_grad]
    if not pairs:
        return [None] * len(inputs)
    grads = iter(torch_private.run_backward(*zip(*pairs), inputs=tuple(wanted)))
    return [next(grads) if want else None for want in wants]
