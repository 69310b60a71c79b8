"""Cells that compute one step: the plain network, LSTM and GRU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import initializer
from .. import symbol as sym
from ..base import ArgumentError
from ..ops.nn import rnn_weights
from ..symbol import Symbol
from .base import BaseRNNCell, RNNParams
from .gates import Activation, activate, update_gru, update_lstm


class GatedCell(BaseRNNCell):
    """A cell with one weight and bias from the input, and one from the hidden state, for all gates together.

    Args:
        attributes: arguments of `sym.Variable` for each weight, such as ``i2h_bias={"init": ...}``.
    """

    def __init__(
        self, num_hidden: int, mode: str, prefix: str, params: RNNParams | None, **attributes: dict[str, Any]
    ) -> None:
        super().__init__(prefix, params)
        if isinstance(num_hidden, bool) or not isinstance(num_hidden, int) or num_hidden < 1:
            raise ArgumentError(
                f"{type(self).__name__}: num_hidden is {num_hidden!r}, expected an integer from 1"
            )
        self.num_hidden = self._num_hidden = num_hidden
        self.gates = rnn_weights.gates(mode)
        names = ("i2h_weight", "i2h_bias", "h2h_weight", "h2h_bias")
        self._variables = {name: self.params.get(name, **attributes.get(name, {})) for name in names}

    # what cells derived from these reach for, under MXNet's names

    @property
    def _gate_names(self) -> tuple[str, ...]:
        return tuple(self.gates)

    @property
    def _iW(self) -> Symbol:
        return self._variables["i2h_weight"]

    @property
    def _iB(self) -> Symbol:
        return self._variables["i2h_bias"]

    @property
    def _hW(self) -> Symbol:
        return self._variables["h2h_weight"]

    @property
    def _hB(self) -> Symbol:
        return self._variables["h2h_bias"]

    @property
    def state_info(self) -> list[dict[str, Any]]:
        return [{"shape": (0, self.num_hidden), "__layout__": "NC"}]

    def next_name(self) -> str:
        """Return what the names of the next step's nodes begin with."""
        self._counter += 1
        return f"{self.prefix}t{self._counter}_"

    def project(self, part: str, data: Symbol, name: str) -> Symbol:
        """Map data linearly to the room of all gates.

        Args:
            part: "i2h" or "h2h".
        """
        weight, bias = self._variables[f"{part}_weight"], self._variables[f"{part}_bias"]
        width = self.num_hidden * len(self.gates)
        found: Symbol = sym.FullyConnected(data, weight, bias, num_hidden=width, name=name)
        return found

    def _weight_names(self) -> list[tuple[str, str]]:
        found = []
        for variable in self._variables.values():
            name, _, kind = str(variable.name).rpartition("_")
            found.append((name, kind))
        return found


class RNNCell(GatedCell):
    """Compute one step of a plain recurrent network: ``activation(W x + b + R h + c)``.

    Args:
        activation: `act_type` of `sym.Activation`, or a function of symbols.
        prefix: put before the names of its nodes and weights.
        params: weights to share with other cells.
    """

    def __init__(
        self,
        num_hidden: int,
        activation: Activation = "tanh",
        prefix: str = "rnn_",
        params: RNNParams | None = None,
    ) -> None:
        super().__init__(num_hidden, "rnn_tanh", prefix, params)
        self._activation = activation

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """Add one step to the graph; see `BaseRNNCell`."""
        self.check_states(states)
        name = self.next_name()
        i2h = self.project("i2h", inputs, f"{name}i2h")
        h2h = self.project("h2h", states[0], f"{name}h2h")
        output = activate(i2h + h2h, self._activation, name=f"{name}out")
        return output, [output]


class LSTMCell(GatedCell):
    """Compute one step of an LSTM; its states are (hidden, cell).

    Args:
        num_hidden: features of each state.
        prefix: put before the names of its nodes and weights.
        params: weights to share with other cells.
        forget_bias: where the forget gate's bias begins, so that cells remember at first.
    Source: Hochreiter and Schmidhuber, "Long short-term memory", 1997; MXNet 1.9.1 `rnn.LSTMCell`.
    """

    def __init__(
        self,
        num_hidden: int,
        prefix: str = "lstm_",
        params: RNNParams | None = None,
        forget_bias: float = 1.0,
    ) -> None:
        bias = {"init": initializer.LSTMBias(forget_bias=forget_bias)}
        super().__init__(num_hidden, "lstm", prefix, params, i2h_bias=bias)

    @property
    def state_info(self) -> list[dict[str, Any]]:
        return super().state_info * 2

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """Add one step to the graph; see `BaseRNNCell`."""
        self.check_states(states)
        name = self.next_name()
        i2h = self.project("i2h", inputs, f"{name}i2h")
        h2h = self.project("h2h", states[0], f"{name}h2h")
        new = update_lstm(name, i2h + h2h, states)
        return new[0], new


class GRUCell(GatedCell):
    """Compute one step of a GRU, whose reset gate acts after the linear map of the state, as cuDNN's does.

    Args:
        prefix: put before the names of its nodes and weights.
        params: weights to share with other cells.
    Source: Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014; MXNet 1.9.1 `rnn.GRUCell`.
    """

    def __init__(self, num_hidden: int, prefix: str = "gru_", params: RNNParams | None = None) -> None:
        super().__init__(num_hidden, "gru", prefix, params)

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """Add one step to the graph; see `BaseRNNCell`."""
        self.check_states(states)
        name = self.next_name()
        i2h = self.project("i2h", inputs, f"{name}_i2h")
        h2h = self.project("h2h", states[0], f"{name}_h2h")
        output = update_gru(name, i2h, h2h, states[0])
        return output, [output]
