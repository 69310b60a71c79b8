"""Compute softmax(queries @ keys) @ values in one call, with or without a mask.

torch's attention computes the scores a block at a time, and stores none of them. A mask that depends only on shapes,
such as that of a language model, is computed once for each shape. Results differ by rounding.

Needs:
    storage: dense
    rank: queries, keys and values (N, L, D) or (N, heads, L, D), of one D and not empty
    type: one of float32 and float64 on the CPU
    layout: any with adjacent features
    gradients: any except of the mask, and first order only

With other operands, and if a query sees no key or is NaN, the operators run one by one.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import torch

from ..._core import torch_private
from ...ops.array.index import without_repeats
from ...ops.tracing import is_tracing
from ..lowering import Lowered, Step

Tensor = torch.Tensor
_PRODUCTS = frozenset({"_linalg_gemm2", "batch_dot"})
_SUMS = frozenset({"broadcast_add", "elemwise_add"})
_MAX_KNOWN = 8
_VECTOR, _MIN_RATIO, _FEW_SCORES = 16, 12, 4096
"""Keys that torch's call computes together; it takes as long for each of the others as for these. The others may be one
of so many keys. Up to so many scores, only the number of calls counts."""
_NARROW, _LONG = 16, 192
"""Features up to which, and keys from which, torch's call is also the fastest for training with contiguous queries."""
_Options = dict[str, Any]


class Mask:
    """A mask of scores.

    Args:
        kind: "add" for a summand, "keep" for a condition under which scores stay, "drop" under which they become -inf.
        steps: the calls that compute it from the shapes of its inputs; none if it is the only input.
        inputs: numbers of its inputs.
    """

    def __init__(self, kind: str, steps: list[Step], inputs: list[int]) -> None:
        self._kind, self._steps, self.inputs = kind, steps, inputs
        self._known: dict[tuple[object, ...], _Options | None] = {}

    def options(self, queries: Tensor, keys: Tensor, given: tuple[Tensor, ...]) -> _Options | None:
        """Return options of the call; None if its result would not be the operators'."""
        if not all(x.is_cpu for x in given) or torch_private.is_transformed(*given):
            return None
        shape = (*queries.shape[:-1], keys.shape[-2])
        if not self._steps:
            return self._options(queries.dtype, shape, given[0])
        key = queries.dtype, shape, *(x.shape for x in given)
        if key not in self._known:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            with torch.inference_mode(False), torch.no_grad():  # backward may keep it
                self._known[key] = self._options(queries.dtype, shape, self._value(given))
        return self._known[key]

    def _value(self, given: tuple[Tensor, ...]) -> Tensor:
        values = dict(zip(self.inputs, given))
        for step in self._steps:
            values[step.outputs[0]] = step.function(*(values[v] for v in step.inputs))
        return values[self._steps[-1].outputs[0]] if self._steps else given[0]

    def apply(self, scores: Tensor, given: tuple[Tensor, ...]) -> Tensor:
        """Return masked scores."""
        mask = self._value(given)
        if self._kind == "add":
            return scores + mask
        return torch.where(self._is_kept(mask), scores, -math.inf)

    def _is_kept(self, mask: Tensor) -> Tensor:
        return mask != 0 if self._kind == "keep" else mask == 0

    def _options(self, dtype: torch.dtype, shape: tuple[int, ...], mask: Tensor) -> _Options | None:
        mask = without_repeats(mask)
        if mask.requires_grad or not all(m in (1, n) for m, n in zip(mask.shape[::-1], shape[::-1])):
            return None
        by_shapes = bool(self._steps)  # and computed once, so that comparing costs nothing
        while mask.dim() > 2 and (
            len(mask) == 1 or (by_shapes and torch.equal(mask, mask[:1].expand_as(mask)))
        ):
            mask = mask[0]
        if mask.dim() not in (2, len(shape)):
            return None
        if self._kind != "add":
            kept = self._is_kept(mask)
            if kept.shape == shape[-2:] and torch.equal(kept, torch.ones_like(kept).tril()):
                return {"is_causal": True}
            mask = torch.zeros(kept.shape, dtype=dtype).masked_fill_(~kept, -math.inf)
        elif mask.dtype is not dtype:
            return None
        return {"attn_mask": mask.unsqueeze(0) if mask.dim() == 3 else mask}


class Attention:
    """Attention. Called with queries, keys, values and the inputs of the mask.

    Args:
        products: attributes of both products.
        scale: factor of the scores.
        steps: the operators in order, without the mask.
    """

    makes_memory = True

    def __init__(self, products: tuple[Any, Any], scale: float, mask: Mask | None, steps: list[Step]) -> None:
        self._flips = products[0].transpose_a, not products[0].transpose_b, products[1].transpose_b
        self._scale, self._mask = scale, mask
        self._first, *self._scalings, self._softmax, self._last = (step.function for step in steps)

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor, *rest: Tensor) -> Tensor:
        """Return the weighted values, of the shape of the queries."""
        given = [x.mT if flip else x for x, flip in zip((queries, keys, values), self._flips) if x.dim() > 2]
        if len(given) == 3 and _fit(*given):
            options = {} if self._mask is None else self._mask.options(given[0], given[1], rest)
            if options is not None:
                is_flat = given[0].dim() == 3
                q, k, v = (x.unsqueeze(0) for x in given) if is_flat else given
                out, sums = torch_private.attention(q, k, v, scale=self._scale, **options)
                if sums.all():  # 0 marks a query that is NaN or sees no key, for which torch returns 0
                    return out.squeeze(0) if is_flat else out
        scores = self._first(queries, keys)
        for scaling in self._scalings:
            scores = scaling(scores)
        if self._mask is not None:
            scores = self._mask.apply(scores, rest)
        found: Tensor = self._last(self._softmax(scores), values)
        return found


def _fit(queries: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Return True if torch's call supports the operands, and is the fastest for them."""
    dtype, lead, given = queries.dtype, queries.shape[:-2], (queries, keys, values)
    return (
        dtype in (torch.float32, torch.float64)
        and queries.dim() in (3, 4)
        and keys.shape == values.shape == (*lead, keys.shape[-2], queries.shape[-1])
        and queries.numel() > 0
        and keys.numel() > 0
        and _is_fastest(queries, keys.shape[-2])
        and all(x.dtype is dtype and x.is_cpu and x.stride(-1) == 1 for x in given)
        and not torch_private.is_transformed(*given)
        and not is_tracing()
    )


def _is_fastest(queries: Tensor, length: int) -> bool:
    """Return True for sizes at which torch's call is faster than the operators."""
    size = queries.shape[-1]
    if queries.numel() // size * length <= _FEW_SCORES:
        return True
    if length % _VECTOR * _MIN_RATIO > length:
        return False
    # products copy queries of several heads that are not contiguous
    return not torch.is_grad_enabled() or not queries.is_contiguous() or size <= _NARROW or length >= _LONG


class _Finder:
    """Finds attention among steps."""

    def __init__(self, low: Lowered) -> None:
        self._low = low
        self._made_by = {value: step for step in low.steps for value in step.outputs}
        self._readers = Counter(value for step in low.steps for value in step.inputs)
        self._readers.update(low.kept())
        self._held = low.held_by_operators()

    def _operator(self, value: int, read_once: bool = True) -> tuple[str, Any, Step | None]:
        """Return the name, the attributes and the step of the operator whose only result is a value."""
        step = self._made_by.get(value)
        if step is None or step.covers or (read_once and (self._readers[value] > 1 or step.takes_env)):
            return "", None, None
        op, a = self._low.operator(step)
        return (
            ("", None, None) if op is None or not self._held.isdisjoint(step.inputs) else (op.name, a, step)
        )

    def match(self, last: Step) -> tuple[Attention, list[Step], list[int]] | None:
        """Return the attention that ends with a step, its steps, and what it reads."""
        name, b, _ = self._operator(last.outputs[0], read_once=False)
        softmax, c, step = self._operator(last.inputs[0])
        if name not in _PRODUCTS or softmax != "softmax" or step is None or c.axis != -1 or last.takes_env:
            return None
        steps, masks, mask, scale = [step, last], [], None, 1.0
        name, a, step = self._operator(step.inputs[0])
        if step is not None and (name in _SUMS or name == "where"):
            place, mask = self._mask(name, step)
            masks.append(step)
            name, a, step = self._operator(step.inputs[place])
        while step is not None and name in ("_mul_scalar", "_div_scalar"):
            scale = scale * a.scalar if name == "_mul_scalar" else scale / (a.scalar or math.nan)
            steps.insert(0, step)
            name, a, step = self._operator(step.inputs[0])
        scale *= getattr(a, "alpha", 1.0)
        if (
            step is None
            or name not in _PRODUCTS
            or (masks and mask is None)
            or any(getattr(each, "axis", -2) != -2 for each in (a, b))
            or b.transpose_a
            or getattr(b, "alpha", 1.0) != 1.0
            or not math.isfinite(scale)
        ):
            return None
        steps.insert(0, step)
        inputs = [*step.inputs, last.inputs[1], *([] if mask is None else mask.inputs)]
        return Attention((a, b), scale, mask, steps), [*steps[:-1], *masks], inputs

    def _mask(self, name: str, step: Step) -> tuple[int, Mask | None]:
        """Return the position of the scores among a step's inputs, and the mask."""
        if name == "where":
            place = 1 if self._is_minus_infinity(step.inputs[2]) else 2
            if place == 2 and not self._is_minus_infinity(step.inputs[1]):
                return place, None
            other, kind = 0, "keep" if place == 1 else "drop"
        else:
            place = 0 if self._leads_to_product(step.inputs[0]) else 1
            other, kind = 1 - place, "add"
        return place, Mask(kind, *self._by_shapes(step.inputs[other]))

    def _leads_to_product(self, value: int) -> bool:
        name, _, step = self._operator(value)
        while step is not None and name in ("_mul_scalar", "_div_scalar"):
            name, _, step = self._operator(step.inputs[0])
        return name in _PRODUCTS

    def _is_minus_infinity(self, value: int) -> bool:
        name, a, step = self._operator(value, read_once=False)
        while step is not None and name in ("broadcast_axis", "broadcast_like", "Reshape"):
            name, a, step = self._operator(step.inputs[0], read_once=False)
        return name == "_full" and a.value == -math.inf

    def _by_shapes(self, value: int) -> tuple[list[Step], list[int]]:
        """Return the calls that compute a value from shapes, and the values of these shapes; else no calls."""
        steps: list[Step] = []
        inputs: list[int] = []
        open_values = [value]
        while open_values:
            name, _, step = self._operator(open_values.pop(), read_once=False)
            if step is None or step.takes_env or len(step.outputs) > 1:
                return [], [value]
            steps.append(step)
            cut = {"_contrib_arange_like": 0, "broadcast_like": 1}.get(name, len(step.inputs))
            inputs += step.inputs[cut:]
            open_values += step.inputs[:cut]
        return steps[::-1], list(dict.fromkeys(inputs))


def fused_attention(low: Lowered) -> int:
    """Replace two products and the softmax between them, together with scaling and a mask.

    Returns:
        Number of replaced softmaxes.
    """
    if low.is_subgraph or low.mirrored:  # a subgraph may be differentiated twice
        return 0
    finder = _Finder(low)
    gone: set[int] = set()
    count = 0
    for step in low.steps:
        found = finder.match(step) if len(step.inputs) == 2 else None
        if found is not None:
            step.function, steps, step.inputs = found
            step.name, step.covers = "attention", tuple(each.node for each in steps)
            gone.update(map(id, steps))
            count += 1
    low.steps = [step for step in low.steps if id(step) not in gone]
    return count
