"""Operations without operands: inputs, constants, parameters, lookups, random numbers."""

from __future__ import annotations

import numpy as np
import torch

from .native_kernels import Attrs
from .spec import BatchCall, Dim, Dims, Grads, declare

Tensor = torch.Tensor


def _declared_shape(attrs: Attrs, dims: Dims) -> Dim:
    found: Dim = attrs[0]
    return found


def _input(call: BatchCall) -> Tensor:
    """Stack the arrays of the nodes, each (batch, *d)."""
    stacked = call.aux[0][None] if len(call.aux) == 1 else np.stack(call.aux)
    return torch.from_numpy(stacked).to(call.device, call.dtype)


def _constant(call: BatchCall) -> Tensor:
    value = call.aux.to(call.dtype).view(-1, 1, *[1] * len(call.out.d))
    answer: Tensor = value.expand(call.count, call.out.batch, *call.out.d)
    return answer


def _one_hot(call: BatchCall) -> Tensor:
    indices = torch.tensor(list(call.aux), device=call.device).view(call.count, call.out.batch, 1)
    found = torch.zeros(call.count, call.out.batch, *call.out.d, device=call.device, dtype=call.dtype)
    return found.scatter_(2, indices, 1.0)


def _parameter(call: BatchCall) -> Tensor:
    """Return the value without a copy; a parameter is never stacked."""
    tensor: Tensor = call.attrs[1]().tensor
    return tensor[None, None]


def _lookup(call: BatchCall) -> Tensor:
    """Look up rows of a table."""
    storage = call.attrs[1]()
    storage.check_fits(call.device, call.dtype)
    table: Tensor = storage.tensor
    return table.index_select(0, call.aux.reshape(-1)).view(call.count, call.out.batch, *call.out.d)


def _lookup_grad(call: BatchCall, g: Tensor) -> Grads:
    storage = call.attrs[1]()
    if storage.updated:
        call.rows.append((storage, call.aux.reshape(-1), g.reshape(-1, *call.out.d)))
    return []


def draw_random(
    found: Tensor, kind: str, first: float, second: float, generator: torch.Generator | None
) -> Tensor:
    """Fill a tensor with random numbers."""
    if kind == "normal":
        return found.normal_(first, second, generator=generator)
    if kind == "uniform":
        return found.uniform_(first, second, generator=generator)
    if kind == "bernoulli":
        return found.bernoulli_(first, generator=generator).mul_(second)
    tiny = torch.finfo(found.dtype).tiny
    return (
        found.exponential_(1.0, generator=generator).clamp_(min=tiny).log_().neg_().mul_(second).add_(first)
    )


def _random(call: BatchCall) -> Tensor:
    _, kind, first, second = call.attrs
    shape = (call.count, call.out.batch, *call.out.d)
    found = torch.empty(shape, device=call.device, dtype=call.dtype)
    return draw_random(found, kind, first, second, call.generator)


def _nothing(call: BatchCall, g: Tensor) -> Grads:
    return []


INPUT = declare("input", _declared_shape, _input, _nothing, aux="object", constant=True)
CONSTANT = declare("constant", _declared_shape, _constant, _nothing, aux="float", constant=True)
ONE_HOT = declare("one_hot", _declared_shape, _one_hot, _nothing, aux="object", constant=True)
PARAMETER = declare("parameter", _declared_shape, _parameter, _nothing, aux="object")
LOOKUP = declare("lookup", _declared_shape, _lookup, _lookup_grad, aux="int")
CONST_LOOKUP = declare("const_lookup", _declared_shape, _lookup, _nothing, aux="int", constant=True)
LOOKUP_BATCH = declare("lookup_batch", _declared_shape, _lookup, _lookup_grad, aux="ints")
CONST_LOOKUP_BATCH = declare(
    "const_lookup_batch", _declared_shape, _lookup, _nothing, aux="ints", constant=True
)
RANDOM = declare("random", _declared_shape, _random, _nothing, random=True, constant=True)

READING = frozenset([PARAMETER, LOOKUP, CONST_LOOKUP, LOOKUP_BATCH, CONST_LOOKUP_BATCH])
"""Operations that read a parameter, whose weak reference is the second attribute."""
