"""Compute softmax(queries @ keys) @ values in one call, with or without a mask.

torch's `scaled_dot_product_attention` computes the scores a block at a time, and stores none of them. Results differ
by rounding; a row all of whose scores are -inf without a mask becomes 0 instead of NaN.

Needs:
    storage: dense
    rank: queries, keys and values (N, L, D) or (N, heads, L, D), of one D and not empty
    type: one of float32 and float64 on the CPU
    layout: any with adjacent features
    gradients: any except of the mask, and first order only

Operands that lack something, and masks that hide all keys from a query, make the operators run one by one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from ..._core import torch_private
from ...ops.array.index import without_repeats
from ...ops.tracing import is_tracing
from ..lowering import Lowered, Step

Tensor = torch.Tensor
PRODUCTS = frozenset({"_linalg_gemm2", "batch_dot"})
_SUMS = frozenset({"broadcast_add", "elemwise_add"})


class Attention:
    """Attention. Called with queries, keys, values and what the operators between both products read besides scores.

    Args:
        products: attributes of both products.
        scale: factor of the scores.
        masks: "where" or "add", by which a mask changes the scores; "" without a mask.
        steps: the operators in order.
    """

    makes_memory = True

    def __init__(self, products: tuple[Any, Any], scale: float, masks: str, steps: list[Step]) -> None:
        self._flips = products[0].transpose_a, not products[0].transpose_b, products[1].transpose_b
        self._scale, self._masks = scale, masks
        self._first, *self._between, self._last = (step.function for step in steps)
        self._places = [_place(*pair) for pair in zip(steps, steps[1:-1])]

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor, *rest: Tensor) -> Tensor:
        """Return the weighted values, of the shape of the queries."""
        given = [x.mT if flip else x for x, flip in zip((queries, keys, values), self._flips) if x.dim() > 2]
        if len(given) == 3 and self._fit(*given):
            mask = self._mask(given[0], given[1], *rest)
            if mask is not None:
                is_matrix = given[0].dim() == 3
                if is_matrix:
                    given = [x.unsqueeze(0) for x in given]
                out = F.scaled_dot_product_attention(*given, scale=self._scale, **mask)
                return out.squeeze(0) if is_matrix else out
        others, scores = iter(rest), self._first(queries, keys)
        for function, (place, count) in zip(self._between, self._places):
            operands = [next(others) for _ in range(count)]
            operands.insert(place, scores)
            scores = function(*operands)
        found: Tensor = self._last(scores, values)
        return found

    def _fit(self, queries: Tensor, keys: Tensor, values: Tensor) -> bool:
        given = queries, keys, values
        dtype, lead, (length, size) = queries.dtype, queries.shape[:-2], keys.shape[-2:]
        return (
            dtype in (torch.float32, torch.float64)
            and queries.dim() in (3, 4)
            and queries.shape[-1] == size
            and keys.shape == values.shape == (*lead, length, size)
            and 0 < queries.numel()
            and 0 < keys.numel()
            and all(x.dtype is dtype and x.is_cpu and x.stride(-1) == 1 for x in given)
            and not any(map(torch_private.is_batched, given))
            and not is_tracing()
        )

    def _mask(self, queries: Tensor, keys: Tensor, *rest: Tensor) -> dict[str, Any] | None:
        """Return the options of the call; None if the call would not have the operators' results."""
        if not rest:
            return {}
        mask, shape = without_repeats(rest[0]), (*queries.shape[:-1], keys.shape[-2])
        if rest[0].requires_grad or torch_private.is_batched(mask) or not mask.is_cpu:
            return None
        if self._masks == "where":
            fill = without_repeats(rest[1])
            if rest[0].shape != shape or fill.requires_grad or fill.amax() != -math.inf:
                return None
            mask = mask != 0
        elif mask.dtype is not queries.dtype or not all(map(_repeats, mask.shape[::-1], shape[::-1])):
            return None
        while mask.dim() > 2 and len(mask) == 1:
            mask = mask[0]
        if mask.dim() not in (2, len(shape)):
            return None
        if mask.dtype is torch.bool:
            if mask.shape == shape[-2:] and torch.equal(mask, torch.ones_like(mask).tril()):
                return {"is_causal": True}
            usable = mask.any(-1).all()
        else:
            usable = mask.amax(-1).isfinite().all()
        return {"attn_mask": mask.unsqueeze(0) if mask.dim() == 3 else mask} if usable else None


def _place(before: Step, step: Step) -> tuple[int, int]:
    """Return the position of the scores among a step's inputs, and the number of the others."""
    return step.inputs.index(before.outputs[0]), len(step.inputs) - 1


def _repeats(size: int, wanted: int) -> bool:
    return size in (1, wanted)


def _matched(low: Lowered, steps: list[Step]) -> Attention | None:
    """Return the attention that steps compute, which read each other's results; None for others."""
    scale, masks = 1.0, ""
    (first, a), (last, b) = low.operator(steps[0]), low.operator(steps[-1])
    soft, c = low.operator(steps[-2])
    for step, before in zip(steps[1:-2], steps):
        op, d = low.operator(step)
        name = "" if op is None else op.name
        place, _ = _place(before, step)
        if masks:
            return None
        if name in ("_mul_scalar", "_div_scalar"):
            scale = scale * d.scalar if name == "_mul_scalar" else scale / d.scalar
        elif name in _SUMS or (name == "where" and place == 1):
            masks = "where" if name == "where" else "add"
        else:
            return None
    is_plain = first is not None and first.name in PRODUCTS and last is not None and last.name in PRODUCTS
    if not is_plain or any(getattr(each, "axis", -2) != -2 for each in (a, b)) or b.transpose_a:
        return None
    if soft is None or soft.name != "softmax" or c.axis != -1 or getattr(b, "alpha", 1.0) != 1.0:
        return None
    scale *= getattr(a, "alpha", 1.0)
    return Attention((a, b), scale, masks, steps) if math.isfinite(scale) else None


def fused_attention(low: Lowered) -> int:
    """Replace two products and the softmax between them, together with scaling and a mask.

    Returns:
        Number of replaced softmaxes.
    """
    if low.is_subgraph or low.mirrored:  # a subgraph may be differentiated twice
        return 0
    made_by = {value: step for step in low.steps for value in step.outputs}
    readers = Counter(value for step in low.steps for value in step.inputs)
    kept, held = low.kept(), low.held_by_operators()

    def chain(last: Step) -> list[Step]:
        """Return the steps from the product that makes the scores to the one that weights the values."""
        steps = [last]
        value = last.inputs[0]
        while value in made_by and readers[value] == 1 and value not in kept and not made_by[value].takes_env:
            step = made_by[value]
            op, _ = low.operator(step)
            if op is None or step.covers or not held.isdisjoint(step.inputs):
                break
            steps.append(step)
            if op.name in PRODUCTS:
                break
            value = step.inputs[op.name == "where"]
        return steps[::-1]

    gone: set[int] = set()
    count = 0
    for step in low.steps:
        op, _ = low.operator(step)
        if op is None or op.name not in PRODUCTS or step.covers or step.inputs[0] == step.inputs[1]:
            continue
        steps = chain(step)
        attention = _matched(low, steps) if len(steps) > 2 else None
        if attention is None:
            continue
        rest = [v for before, each in zip(steps, steps[1:-1]) for v in each.inputs if v != before.outputs[0]]
        step.inputs = [*steps[0].inputs, step.inputs[1], *rest]
        step.function, step.name = attention, "attention"
        step.covers = tuple(each.node for each in steps[:-1])
        gone.update(map(id, steps[:-1]))
        count += 1
    low.steps = [step for step in low.steps if id(step) not in gone]
    return count
