"""The projected LSTM, which MXNet's language model unrolls into a symbol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import symbol as sym
from ..._core import lazy
from ...base import ArgumentError
from ...initializer import Zero
from ...name import current
from ...rnn import BaseRNNCell, RNNParams
from ...symbol import Symbol
from ..names_left_out import left_out_getattr, names_of

__all__ = ["LSTMPCell", *names_of("contrib.rnn")]

__getattr__, __dir__ = lazy.attributes(__name__, __all__, otherwise=left_out_getattr("gluon.contrib.rnn"))

_GATES = 4


class LSTMPCell(BaseRNNCell):
    """Compute one step of an LSTM whose hidden state is projected to fewer features; states are (projected, cell).

    The cell builds symbols only, with the weights ``<prefix>i2h_weight``, ``i2h_bias``, ``h2h_weight``,
    ``h2h_bias`` and ``h2r_weight``, in the order of gates input, forget, candidate, output.

    Shape:
        inputs: (N, C) in a step, (N, T, C) in `unroll`.
        states: (N, projection_size) and (N, hidden_size).
        outputs: (N, projection_size).

    Args:
        i2h_weight_initializer: initializer of the input's weight; None for the module's.
        i2h_bias_initializer: initializer of the input's bias; None for zeros.
        h2h_bias_initializer: initializer of the state's bias; None for zeros.
        input_size: accepted as in MXNet; the size is inferred.
        prefix: put before the names of weights and nodes; ``lstmp0_`` and so on by default.
    """

    def __init__(
        self,
        hidden_size: int,
        projection_size: int,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        h2r_weight_initializer: Any = None,
        i2h_bias_initializer: Any = None,
        h2h_bias_initializer: Any = None,
        input_size: int = 0,
        prefix: str | None = None,
        params: RNNParams | None = None,
    ) -> None:
        for name, size in (("hidden_size", hidden_size), ("projection_size", projection_size)):
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ArgumentError(f"LSTMPCell: {name} is {size!r}, expected an integer from 1")
        super().__init__(current().get(None, "lstmp") + "_" if prefix is None else prefix, params)
        self.hidden_size, self.projection_size = hidden_size, projection_size
        first = {
            "i2h_weight": i2h_weight_initializer,
            "h2h_weight": h2h_weight_initializer,
            "h2r_weight": h2r_weight_initializer,
            "i2h_bias": Zero() if i2h_bias_initializer is None else i2h_bias_initializer,
            "h2h_bias": Zero() if h2h_bias_initializer is None else h2h_bias_initializer,
        }
        self._weights = {
            name: self.params.get(name, **({} if init is None else {"init": init}))
            for name, init in first.items()
        }

    @property
    def state_info(self) -> list[dict[str, Any]]:
        sizes = (self.projection_size, self.hidden_size)
        return [{"shape": (0, size), "__layout__": "NC"} for size in sizes]

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """Add one step to the graph; see `BaseRNNCell`."""
        self.check_states(states)
        self._counter += 1
        name = f"{self.prefix}t{self._counter}_"
        rows = _GATES * self.hidden_size
        w = self._weights
        i2h = sym.FullyConnected(inputs, w["i2h_weight"], w["i2h_bias"], num_hidden=rows, name=f"{name}i2h")
        h2h = sym.FullyConnected(
            states[0], w["h2h_weight"], w["h2h_bias"], num_hidden=rows, name=f"{name}h2h"
        )
        gates = sym.split(i2h + h2h, num_outputs=_GATES, axis=1, name=f"{name}slice")
        keep = sym.sigmoid(gates[1]) * states[1]
        cell = keep + sym.sigmoid(gates[0]) * sym.tanh(gates[2])
        hidden = sym.sigmoid(gates[3]) * sym.tanh(cell)
        output = sym.FullyConnected(
            hidden, w["h2r_weight"], no_bias=True, num_hidden=self.projection_size, name=f"{name}out"
        )
        return output, [output, cell]
