"""The fused recurrent network on ragged values: each row is a sequence, run to its own end."""

from __future__ import annotations

from typing import Any

import torch

from ...base import OpError
from ..nn.rnn import check_states, run, weights_of
from ..spec import Env
from .ragged import Ragged
from .rule import SparseRule, Stypes, add_ragged_rule

Tensor = torch.Tensor


def _storage(a: Any, stypes: Stypes) -> Stypes:
    if stypes[0] != "ragged" or any(stype != "default" for stype in stypes[1:]):
        raise OpError(f"RNN takes ragged data beside dense parameters and states, got {', '.join(stypes)}")
    if a.use_sequence_length:
        raise OpError(
            "RNN: use_sequence_length is True, expected False for ragged data, whose rows have lengths"
        )
    states = 1 + (a.mode == "lstm") if a.state_outputs else 0
    return ("ragged", *("default",) * states)


def _grad_storage(a: Any, stypes: Stypes) -> Stypes:
    return stypes


def packed(data: Ragged, from_end: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Return how torch packs rows: the longest first, element by element.

    Returns:
        places: of each element among the packed ones, (T,).
        order: the rows from the longest on, (N,).
        batch_sizes: how many rows have an element at each step, (longest,) on the CPU.
    """
    lengths, rows = data.lengths(), data.row_numbers()
    order = lengths.argsort(descending=True, stable=True)
    ranks = torch.empty_like(order).index_copy_(0, order, torch.arange(order.numel(), device=order.device))
    steps = torch.arange(rows.numel(), device=rows.device) - data.offsets.index_select(0, rows)
    if from_end:
        steps = lengths.index_select(0, rows) - 1 - steps
    batch_sizes = steps.bincount()
    starts = batch_sizes.cumsum(0) - batch_sizes
    return starts.index_select(0, steps) + ranks.index_select(0, rows), order, batch_sizes.cpu()


def _run(a: Any, env: Env, data: Ragged, parameters: Tensor, *states: Tensor) -> Any:
    """Run all rows; the last states are those at each row's end, those given where a row is empty."""
    values = data.values
    check_states(a, data.values.new_empty(0, *data.shape), states)
    weights = weights_of(a, parameters, values.shape[-1])
    if not values.shape[0]:
        hidden = (a.projection_size or a.state_size) * (2 if a.bidirectional else 1)
        found = data.replaced(values.new_zeros(0, hidden))
        return (found, *states) if a.state_outputs else found
    places, order, batch_sizes = packed(data)
    filled = int(batch_sizes[0])
    sorted_states = [state.index_select(1, order) for state in states]
    begin = [state[:, :filled].contiguous() for state in sorted_states]
    out, *last = run(a, env, values.index_select(0, places.argsort()), batch_sizes, begin, weights)
    found = data.replaced(out.index_select(0, places))
    if not a.state_outputs:
        return found
    back = order.argsort()
    whole = [torch.cat([new, old[:, filled:]], 1) for new, old in zip(last, sorted_states, strict=True)]
    return (found, *(state.index_select(1, back) for state in whole))


def _recorded(a: Any, env: Env, takes_rows: Any, *inputs: Any) -> Any:
    return _run(a, env, *inputs)


add_ragged_rule("RNN", SparseRule(_storage, _run, None, _grad_storage, _recorded))
