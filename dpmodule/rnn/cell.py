"""Cells that compute one step: the plain network, LSTM and GRU; what all cells share; their parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .. import initializer
from .. import ndarray as nd
from .. import symbol as sym
from ..base import ArgumentError, StateError
from ..ndarray import NDArray
from ..ops.nn import rnn_weights
from ..symbol import Symbol
from .steps import Steps, as_list, last_valid, mask, shaped, time_axis

__all__ = ["BaseRNNCell", "GRUCell", "LSTMCell", "RNNCell", "RNNParams", "activate", "flatten_states", "update_gru", "update_lstm"]

Activation = str | Callable[..., Symbol]
Arrays = dict[str, NDArray]


class RNNParams:
    """Hold the variables of a cell's weights; cells that are given the same one share them.

    Args:
        prefix: put before the name of each variable.
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._params: dict[str, Symbol] = {}

    def get(self, name: str, **kwargs: Any) -> Symbol:
        """Return the variable of a name, made on first use.

        Args:
            name: its name without the prefix.
            kwargs: arguments of `sym.Variable`, used when it is made.
        """
        name = self._prefix + name
        if name not in self._params:
            self._params[name] = sym.Variable(name, **kwargs)
        return self._params[name]

    def names(self) -> list[str]:
        """Return the full names of the variables made so far."""
        return list(self._params)

    def adopt(self, other: RNNParams) -> None:
        """Take in the variables of another container."""
        self._params.update(other._params)


class BaseRNNCell:
    """Interface of everything that reads a sequence step by step.

    A cell makes symbols: calling it adds one step to a graph, `unroll` as many as a sequence has. Its weights are
    the same variables in every step, and in every graph it makes: call `reset` before starting another one.

    Args:
        prefix: put before the names of its nodes and weights.
        params: weights to share with other cells; None makes new ones.
    """

    steppable = True
    """Whether the cell can be called for a single step."""

    def __init__(self, prefix: str = "", params: RNNParams | None = None) -> None:
        self.prefix = prefix
        self.modified = False
        self._params = RNNParams(prefix) if params is None else params
        self._init_counter = -1
        self._counter = -1
        self.reset()

    def reset(self) -> None:
        """Number steps and begin states from 0 again, for a new graph."""
        self._init_counter = -1
        self._counter = -1

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """Add one step to the graph.

        Args:
            inputs: what the step reads, (N, C).
            states: states after the step before, as `begin_state` and this method return them.

        Returns:
            (output, states after this step)

        Raises:
            ArgumentError: the number of states is not that of `state_info`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define __call__")

    @property
    def params(self) -> RNNParams:
        """The weights' variables."""
        return self._params

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """Shape and layout of each state; a batch size of 0 is inferred."""
        raise NotImplementedError(f"{type(self).__name__} does not define state_info")

    @property
    def state_shape(self) -> list[tuple[int, ...]]:
        """Shape of each state; a batch size of 0 is inferred."""
        return [info["shape"] for info in self.state_info]

    def begin_state(self, func: Callable[..., Symbol] = sym.zeros, **kwargs: Any) -> list[Symbol]:
        """Make symbols for the states before the first step.

        Args:
            func: makes one from name, shape and layout: `sym.zeros`, `sym.ones`, `sym.Variable` for states that are
                fed, or a random operator.
            kwargs: further arguments of `func`.

        Raises:
            StateError: a modifier such as ZoneoutCell wraps this cell; call that one's.
        """
        if self.modified:
            raise StateError(
                f"{type(self).__name__} {self.prefix!r} is wrapped by a modifier cell; call the modifier instead"
            )
        return self.make_begin_state(func, **kwargs)

    def make_begin_state(self, func: Callable[..., Symbol], **kwargs: Any) -> list[Symbol]:
        """Make the begin states without asking who calls; for cells that wrap this one."""
        states = []
        for info in self.state_info:
            self._init_counter += 1
            states.append(func(name=f"{self.prefix}begin_state_{self._init_counter}", **{**kwargs, **info}))
        return states

    def unroll(
        self,
        length: int,
        inputs: Symbol | Iterable[Symbol],
        begin_state: Sequence[Any] | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Symbol | None = None,
    ) -> tuple[Steps, list[Any]]:
        """Make the graph of a whole sequence.

        Args:
            length: number of steps.
            inputs: one Symbol of shape (N, length, C), or a list of `length` Symbols of shape (N, C).
            begin_state: states before the first step; None means those of `begin_state`.
            layout: axes of merged inputs and outputs, "NTC" or "TNC".
            merge_outputs: True for outputs in one Symbol, False for a list, None for whatever is natural.
            valid_length: Symbol of shape (N,): how many steps of each sequence count. Outputs after them are zero,
                and the states returned are those after the last of them.

        Returns:
            (outputs, states after the last step)

        Raises:
            ArgumentError: inputs, states or layout do not fit.

        Example:
            >>> cell = mx.rnn.LSTMCell(100, prefix="lstm_")
            >>> outputs, states = cell.unroll(3, mx.sym.Variable("data"), merge_outputs=True)
            >>> outputs.infer_shape(data=(32, 3, 50))[1]
            [(32, 3, 100)]
        """
        self.reset()
        axis = time_axis(layout)
        steps = as_list(length, inputs, axis)
        states = self.begin_state() if begin_state is None else flatten_states(begin_state)
        outputs, history = [], []
        for step in steps:
            output, states = self(step, states)
            outputs.append(output)
            history.append(states)
        if valid_length is None:
            return shaped(length, outputs, axis, merge_outputs), states
        return mask(length, outputs, axis, valid_length, merge_outputs), last_valid(history, valid_length)

    def unpack_weights(self, args: Mapping[str, NDArray]) -> Arrays:
        """Return a copy of the arrays with this cell's weights cut into gates.

        Args:
            args: arrays by name, such as the arg_params of a Module.

        Raises:
            ArgumentError: a weight of this cell is missing.
        """
        return dict(args)

    def pack_weights(self, args: Mapping[str, NDArray]) -> Arrays:
        """Return a copy of the arrays with this cell's gates put together, the inverse of `unpack_weights`.

        Args:
            args: arrays by name, as `unpack_weights` returns them.

        Raises:
            ArgumentError: a gate of this cell is missing.
        """
        return dict(args)

    def check_states(self, states: Sequence[Symbol]) -> Sequence[Symbol]:
        """Return the states if their number is right.

        Raises:
            ArgumentError: it is not.
        """
        wanted = len(self.state_info)
        if len(states) != wanted:
            raise ArgumentError(
                f"{type(self).__name__} {self.prefix!r}: got {len(states)} states, expected {wanted}, as "
                "begin_state() returns them"
            )
        return states


def flatten_states(states: Sequence[Any]) -> list[Symbol]:
    """Return states as a flat list; those that a bidirectional cell returns are nested."""
    flat: list[Symbol] = []
    for state in states:
        flat.extend([state] if isinstance(state, Symbol) else flatten_states(state))
    return flat


def activate(inputs: Symbol, activation: Activation, **kwargs: Any) -> Symbol:
    """Apply an activation, given as the `act_type` of `sym.Activation` or as a function of symbols."""
    if isinstance(activation, str):
        return sym.Activation(inputs, act_type=activation, **kwargs)
    return activation(inputs, **kwargs)


def update_lstm(
    name: str, gates: Symbol, states: Sequence[Symbol], activation: Activation = "tanh", **kwargs: Any
) -> list[Symbol]:
    """Return the new states (hidden, cell) of an LSTM.

    Args:
        name: put before the names of the nodes.
        gates: input, forget, cell and output gate before activation, side by side.
        states: (hidden, cell).
        activation: of the cell gate, and of the cell on its way to the output.
        kwargs: arguments of `sym.SliceChannel`, which cuts the gates apart.
    """
    parts = sym.SliceChannel(gates, num_outputs=4, name=f"{name}slice", **kwargs)
    enter = sym.Activation(parts[0], act_type="sigmoid", name=f"{name}i")
    forget = sym.Activation(parts[1], act_type="sigmoid", name=f"{name}f")
    new = activate(parts[2], activation, name=f"{name}c")
    leave = sym.Activation(parts[3], act_type="sigmoid", name=f"{name}o")
    cell = sym._internal._plus(forget * states[1], enter * new, name=f"{name}state")
    hidden = sym._internal._mul(leave, activate(cell, activation), name=f"{name}out")
    return [hidden, cell]


def update_gru(
    name: str,
    i2h: Symbol,
    h2h: Symbol,
    state: Symbol,
    activation: Activation = "tanh",
    slices: tuple[str, str] = ("_i2h_slice", "_h2h_slice"),
    **kwargs: Any,
) -> Symbol:
    """Return the new state of a GRU, whose reset gate acts after the linear map of the state.

    Args:
        name: put before the names of the nodes.
        i2h: reset, update and new gate as far as the input makes them, side by side.
        h2h: the same as far as the state makes them.
        state: the state.
        activation: of the new gate.
        slices: end of the names of the nodes that cut `i2h` and `h2h` apart.
        kwargs: arguments of these nodes.
    """
    i2h_r, i2h_z, i2h_n = sym.SliceChannel(i2h, num_outputs=3, name=name + slices[0], **kwargs)
    h2h_r, h2h_z, h2h_n = sym.SliceChannel(h2h, num_outputs=3, name=name + slices[1], **kwargs)
    reset = sym.Activation(i2h_r + h2h_r, act_type="sigmoid", name=f"{name}_r_act")
    update = sym.Activation(i2h_z + h2h_z, act_type="sigmoid", name=f"{name}_z_act")
    new = activate(i2h_n + reset * h2h_n, activation, name=f"{name}_h_act")
    return sym._internal._plus((1.0 - update) * new, update * state, name=f"{name}out")


class GatedCell(BaseRNNCell):
    """A cell with one weight and bias from the input, and one from the hidden state, for all gates together.

    Args:
        num_hidden: features of the state.
        mode: decides the gates, see `ops.nn.rnn_weights`.
        prefix: put before the names of its nodes and weights.
        params: weights to share with other cells.
        attributes: arguments of `sym.Variable` for each weight, such as ``i2h_bias={"init": ...}``.
    """

    def __init__(
        self, num_hidden: int, mode: str, prefix: str, params: RNNParams | None, **attributes: dict[str, Any]
    ) -> None:
        super().__init__(prefix, params)
        if isinstance(num_hidden, bool) or not isinstance(num_hidden, int) or num_hidden < 1:
            raise ArgumentError(f"{type(self).__name__}: num_hidden is {num_hidden!r}, expected an integer from 1")
        self.num_hidden = num_hidden
        self.gates = rnn_weights.gates(mode)
        names = ("i2h_weight", "i2h_bias", "h2h_weight", "h2h_bias")
        self._variables = {name: self.params.get(name, **attributes.get(name, {})) for name in names}

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """Shape and layout of each state; a batch size of 0 is inferred."""
        return [{"shape": (0, self.num_hidden), "__layout__": "NC"}]

    def next_name(self) -> str:
        """Return what the names of the next step's nodes begin with."""
        self._counter += 1
        return f"{self.prefix}t{self._counter}_"

    def project(self, part: str, data: Symbol, name: str) -> Symbol:
        """Map data linearly to the room of all gates.

        Args:
            part: "i2h" or "h2h".
            data: input or hidden state.
            name: name of the node.
        """
        weight, bias = self._variables[f"{part}_weight"], self._variables[f"{part}_bias"]
        width = self.num_hidden * len(self.gates)
        return sym.FullyConnected(data, weight, bias, num_hidden=width, name=name)

    def _weight_names(self) -> list[tuple[str, str]]:
        """Return (name, ending) of each weight: what the gate's name goes between."""
        found = []
        for variable in self._variables.values():
            name, _, kind = str(variable.name).rpartition("_")
            found.append((name, kind))
        return found

    def unpack_weights(self, args: Mapping[str, NDArray]) -> Arrays:
        """Return a copy of the arrays with this cell's weights cut into gates, such as ``lstm_i2h_f_weight``."""
        args = dict(args)
        if len(self.gates) == 1:
            return args
        for name, kind in self._weight_names():
            whole = taken(args, f"{name}_{kind}", self)
            rows = self.num_hidden
            if whole.shape[0] != rows * len(self.gates):
                raise ArgumentError(
                    f"{name}_{kind} has shape {whole.shape}, expected {rows * len(self.gates)} rows: "
                    f"{len(self.gates)} gates of {rows}"
                )
            for i, gate in enumerate(self.gates):
                args[f"{name}{gate}_{kind}"] = whole[i * rows : (i + 1) * rows].copy()
        return args

    def pack_weights(self, args: Mapping[str, NDArray]) -> Arrays:
        """Return a copy of the arrays with this cell's gates put together, the inverse of `unpack_weights`."""
        args = dict(args)
        if len(self.gates) == 1:
            return args
        for name, kind in self._weight_names():
            parts = [taken(args, f"{name}{gate}_{kind}", self) for gate in self.gates]
            args[f"{name}_{kind}"] = nd.concatenate(parts)
        return args


def taken(args: Arrays, name: str, cell: BaseRNNCell) -> NDArray:
    """Remove and return an array.

    Raises:
        ArgumentError: there is none of this name.
    """
    if name not in args:
        raise ArgumentError(
            f"{type(cell).__name__} {cell.prefix!r}: args has no {name!r}, only {', '.join(list(args)[:8]) or 'nothing'}"
        )
    return args.pop(name)


class RNNCell(GatedCell):
    """Compute one step of a plain recurrent network: ``activation(W x + b + R h + c)``.

    Args:
        num_hidden: features of the state.
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
        """Shape and layout of each state; a batch size of 0 is inferred."""
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
        num_hidden: features of the state.
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
