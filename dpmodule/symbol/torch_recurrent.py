"""Recurrent networks as single operators of torch, which torch.export would otherwise take apart step by step.

Apart, they take long to export, and the number of their steps is fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..base import ArgumentError

NAMESPACE = "dpmodule"
"""Where torch keeps these operators: ``torch.ops.dpmodule.lstm`` and the others."""

_REST = (
    "Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, "
    "bool batch_first) -> "
)
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "lstm": torch.lstm,
    "gru": torch.gru,
    "rnn_tanh": torch.rnn_tanh,
    "rnn_relu": torch.rnn_relu,
}


def _output(data: torch.Tensor, state: torch.Tensor, bidirectional: bool) -> torch.Tensor:
    """Return an empty array of the output's shape: that of the data, with the features of the states."""
    return data.new_empty(*data.shape[:-1], state.shape[-1] * (2 if bidirectional else 1))


def _empty(
    data: torch.Tensor,
    states: torch.Tensor | Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """Return empty arrays of the results' shapes."""
    given = [states] if isinstance(states, torch.Tensor) else states
    return (_output(data, given[0], bidirectional), *(torch.empty_like(s) for s in given))


def _define(name: str, function: Callable[..., Any]) -> None:
    """Tell torch of the operator that stands for one of its functions."""
    full = f"{NAMESPACE}::{name}"
    several = name == "lstm"
    states, last = ("Tensor[] hx", "Tensor, Tensor") if several else ("Tensor hx", "Tensor")
    torch.library.define(full, f"(Tensor input, {states}, {_REST}(Tensor, {last})")
    torch.library.impl(full, "CompositeExplicitAutograd", function)
    torch.library.register_fake(full, _empty)


for _name, _function in _FUNCTIONS.items():
    _define(_name, _function)


class WholeNetworks(TorchFunctionMode):
    """While it is active, torch's recurrent networks over padded sequences are single operators."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch, or what stands for it."""
        name = getattr(func, "__name__", "")
        if name == "_pack_padded_sequence":
            raise ArgumentError(
                "packed sequences have lengths that are known only when it runs; pad them instead"
            )
        if _FUNCTIONS.get(name) is func and len(args) == 9 and isinstance(args[3], bool):
            states = list(args[1]) if name == "lstm" else args[1]
            return getattr(getattr(torch.ops, NAMESPACE), name)(args[0], states, *args[2:])
        return func(*args, **(kwargs or {}))
