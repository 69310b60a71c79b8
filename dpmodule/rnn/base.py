"""The base of cells, sequences of symbols, and containers of weights."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .. import ndarray as nd
from .. import symbol as sym
from ..base import ArgumentError, StateError
from ..ndarray import NDArray
from ..symbol import Symbol

Steps = Symbol | list[Symbol]
"""A sequence: one symbol, or one symbol per step."""


def time_axis(layout: str) -> int:
    """Return the time axis of a layout.

    Args:
        layout: one letter per axis, beginning with T (time) and N (batch) in either order: NTC, TNC, NTCHW.
    """
    if not isinstance(layout, str) or layout[:2] not in ("NT", "TN"):
        raise ArgumentError(f"layout is {layout!r}, expected 'NTC' (batch first) or 'TNC' (time first)")
    return layout.index("T")


def as_list(length: int, inputs: Symbol | Iterable[Symbol], axis: int) -> list[Symbol]:
    """Convert a sequence to one symbol per step.

    Args:
        length: number of steps.
        axis: time axis of a merged sequence.
    """
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise ArgumentError(f"length is {length!r}, expected a positive number of steps")
    if isinstance(inputs, Symbol):
        return list(sym.split(_single(inputs), axis=axis, num_outputs=length, squeeze_axis=1))
    steps = list(inputs)
    if len(steps) != length or not all(isinstance(step, Symbol) for step in steps):
        raise ArgumentError(
            f"inputs has {len(steps)} steps ({', '.join(type(s).__name__ for s in steps[:4])}), expected "
            f"{length} Symbols: one for each of `length` steps, or a single Symbol with a time axis"
        )
    return steps


def as_merged(length: int, inputs: Symbol | Iterable[Symbol], axis: int) -> Symbol:
    """Convert a sequence to one symbol; see `as_list`."""
    if isinstance(inputs, Symbol):
        return _single(inputs)
    steps = [sym.expand_dims(step, axis=axis) for step in as_list(length, inputs, axis)]
    merged: Symbol = sym.Concat(*steps, dim=axis)
    return merged


def convert_steps(length: int, inputs: Steps, axis: int, merge: bool | None) -> Steps:
    """Convert a sequence to one symbol or a list.

    Args:
        length: number of steps.
        axis: time axis of a merged sequence.
        merge: True for one symbol, False for a list, None to keep the form.
    """
    if merge is None:
        return inputs
    return as_merged(length, inputs, axis) if merge else as_list(length, inputs, axis)


def mask_steps(length: int, outputs: Steps, axis: int, valid_length: Symbol, merge: bool | None) -> Steps:
    """Set steps after the end of each sequence to zero.

    Args:
        length: number of steps.
        axis: time axis of a merged sequence.
        valid_length: length of each sequence, (N,).
        merge: True for one symbol, False for a list, None for the form of `outputs`.
    """
    masked = sym.SequenceMask(
        as_merged(length, outputs, axis), sequence_length=valid_length, use_sequence_length=True, axis=axis
    )
    return convert_steps(length, masked, axis, isinstance(outputs, Symbol) if merge is None else merge)


def last_valid(history: Sequence[Sequence[Symbol]], valid_length: Symbol) -> list[Symbol]:
    """Return the states after the last step of each sequence.

    Args:
        valid_length: length of each sequence, (N,).
    """
    return [
        sym.SequenceLast(sym.stack(*states, axis=0), sequence_length=valid_length, use_sequence_length=True)
        for states in zip(*history, strict=True)
    ]


def reverse_steps(length: int, inputs: Steps, axis: int, valid_length: Symbol | None = None) -> Steps:
    """Reverse a sequence, keeping its form; with `valid_length`, padding stays at the end.

    Args:
        length: number of steps.
        axis: time axis of a merged sequence.
        valid_length: length of each sequence, (N,).
    """
    if valid_length is not None:
        turned = sym.SequenceReverse(
            as_merged(length, inputs, axis), sequence_length=valid_length, use_sequence_length=True, axis=axis
        )
        return turned if isinstance(inputs, Symbol) else as_list(length, turned, axis)
    return sym.reverse(inputs, axis=axis) if isinstance(inputs, Symbol) else inputs[::-1]


def _single(inputs: Symbol) -> Symbol:
    if len(inputs) != 1:
        raise ArgumentError(
            f"inputs is a group of {len(inputs)} symbols; pass list(inputs) if they are the steps, or choose one"
        )
    return inputs


Activation = str | Callable[..., Symbol]
"""`act_type` of `sym.Activation`, or a function of symbols."""


def activate(inputs: Symbol, activation: Activation, **kwargs: Any) -> Symbol:
    """Apply an activation: an `act_type` of `sym.Activation` or a function of symbols."""
    if isinstance(activation, str):
        found: Symbol = sym.Activation(inputs, act_type=activation, **kwargs)
        return found
    return activation(inputs, **kwargs)


Arrays = dict[str, NDArray]
"""Arrays by name, such as the arg_params of a Module."""


class RNNParams:
    """Container of a cell's weight variables, which cells may share.

    Args:
        prefix: prefix of the variables' names.
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._params: dict[str, Symbol] = {}

    def get(self, name: str, **kwargs: Any) -> Symbol:
        """Return the variable with a name, created on first use.

        Args:
            name: name without the prefix.
            kwargs: arguments of `sym.Variable` for the creation.
        """
        name = self._prefix + name
        if name not in self._params:
            self._params[name] = sym.Variable(name, **kwargs)
        return self._params[name]

    def names(self) -> list[str]:
        """Return the full names of the existing variables."""
        return list(self._params)

    def adopt(self, other: RNNParams) -> None:
        """Add the variables of another container.

        Args:
            other: the other container, which is not changed.
        """
        self._params.update(other._params)


class BaseRNNCell:
    """Base of recurrent cells.

    Calling a cell adds one step to a graph of symbols; `unroll` adds all steps of a sequence. All steps, and all
    graphs, share the weights; call `reset` before building another graph.

    Args:
        prefix: prefix of the names of nodes and weights.
        params: weights shared with other cells; by default new ones.
    """

    _num_hidden: int = 0  # rows of one gate's weights; set by user-defined cells with `_gate_names`

    def __init__(self, prefix: str = "", params: RNNParams | None = None) -> None:
        self._prefix = prefix
        self._modified = False
        self._own_params = params is None
        self._params = RNNParams(prefix) if params is None else params
        self._init_counter = -1
        self._counter = -1
        self.reset()

    def reset(self) -> None:
        """Reset the counters of steps and begin states, for a new graph."""
        self._init_counter = -1
        self._counter = -1

    @property
    def prefix(self) -> str:
        """Prefix of the names of the cell's nodes and weights."""
        return self._prefix

    @property
    def modified(self) -> bool:
        """True if a modifier such as ZoneoutCell wraps the cell and must be called instead."""
        return self._modified

    @modified.setter
    def modified(self, wrapped: bool) -> None:
        self._modified = wrapped

    @property
    def steppable(self) -> bool:
        """True if the cell can be called for a single step."""
        return True

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """Add one step to the graph.

        Args:
            inputs: input of the step, (N, C).
            states: states after the previous step, from `begin_state` or this method.

        Returns:
            (output, new states)
        """
        raise NotImplementedError(f"{type(self).__name__} does not define __call__")

    @property
    def params(self) -> RNNParams:
        """The weights' variables."""
        return self._params

    @property
    def state_info(self) -> list[dict[str, Any]]:
        """Shape and layout of each state; batch size 0 means that it is inferred."""
        raise NotImplementedError(f"{type(self).__name__} does not define state_info")

    @property
    def state_shape(self) -> list[tuple[int, ...]]:
        """Shape of each state; batch size 0 means that it is inferred."""
        return [info["shape"] for info in self.state_info]

    def _get_activation(self, inputs: Symbol, activation: Any, **kwargs: Any) -> Symbol:
        """Apply an activation, for user-defined cells, which call it as in MXNet."""
        return activate(inputs, activation, **kwargs)

    def begin_state(self, func: Callable[..., Symbol] = sym.zeros, **kwargs: Any) -> list[Symbol]:
        """Return symbols of the initial states.

        Args:
            func: creates a state from name, shape and layout: `sym.zeros`, `sym.ones`, a random operator, or
                `sym.Variable` for states that are fed.
            kwargs: further arguments of `func`.

        Raises:
            StateError: a modifier such as ZoneoutCell wraps this cell; call the modifier's method.
        """
        if self.modified:
            raise StateError(
                f"{type(self).__name__} {self.prefix!r} is wrapped by a modifier cell; call the modifier instead"
            )
        return self.make_begin_state(func, **kwargs)

    def make_begin_state(self, func: Callable[..., Symbol], **kwargs: Any) -> list[Symbol]:
        """Return the initial states without the check for modifiers, for cells that wrap this one.

        Args:
            func: creates a state, such as ``mx.sym.zeros``; called with `name` and the fields of `state_info`.
            **kwargs: further arguments of `func`.
        """
        states = []
        for info in self.state_info:
            self._init_counter += 1
            options = {**kwargs, **(info or {})}
            states.append(func(name=f"{self.prefix}begin_state_{self._init_counter}", **options))
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
        """Add all steps of a sequence to the graph.

        Args:
            inputs: one Symbol of shape (N, length, C), or a list of `length` Symbols of shape (N, C).
            begin_state: initial states; by default those of `begin_state`.
            layout: layout of merged inputs and outputs, "NTC" or "TNC".
            merge_outputs: True for outputs in one Symbol, False for a list, None for the form that is faster.
            valid_length: Symbol of shape (N,), the length of each sequence. Later outputs are zero, and the returned
                states are those after the last valid step.

        Returns:
            (outputs, states after the last step)

        Raises:
            ArgumentError: inputs, states or layout are invalid.

        Example:
            >>> cell = mx.rnn.LSTMCell(100, prefix="lstm_")
            >>> outputs, states = cell.unroll(3, mx.sym.Variable("data"), merge_outputs=True)
            >>> outputs.infer_shape(data=(32, 3, 50))[1]
            [(32, 3, 100)]
        """
        self.reset()
        return self._unroll(length, inputs, begin_state, layout, merge_outputs, valid_length)

    def _unroll(
        self, length: int, inputs: Any, begin_state: Any, layout: str, merge: bool | None, valid_length: Any
    ) -> tuple[Steps, list[Any]]:
        """Implementation of `unroll`, after `reset`."""
        axis = time_axis(layout)
        steps = as_list(length, inputs, axis)
        states = self.begin_state() if begin_state is None else flatten_states(begin_state)
        outputs, history = [], []
        for step in steps:
            output, states = self(step, states)
            outputs.append(output)
            history.append(states)
        if valid_length is None:
            return convert_steps(length, outputs, axis, merge), states
        return mask_steps(length, outputs, axis, valid_length, merge), last_valid(history, valid_length)

    @property
    def _gate_names(self) -> Sequence[str]:
        """Name of each gate in names of weights; defined by user-defined cells with several gates."""
        return ()

    def _weight_names(self) -> list[tuple[str, str]]:
        """Return (name, ending) of each packed weight; the gate's name is inserted in between."""
        return [(f"{self.prefix}{part}", kind) for part in ("i2h", "h2h") for kind in ("weight", "bias")]

    def unpack_weights(self, args: Mapping[str, NDArray]) -> Arrays:
        """Return a copy of the arrays with this cell's weights split into gates, such as ``lstm_i2h_f_weight``.

        Args:
            args: arrays by name, such as the arg_params of a Module.

        Raises:
            ArgumentError: a weight of this cell is missing, or its number of rows does not match the gates.
        """
        args, gates = dict(args), self._gate_names
        for name, kind in self._weight_names() if any(gates) else ():
            whole = pop_array(args, f"{name}_{kind}", self)
            rows = self._num_hidden
            if whole.shape[0] != rows * len(gates):
                raise ArgumentError(
                    f"{name}_{kind} has shape {whole.shape}, expected {rows * len(gates)} rows: "
                    f"{len(gates)} gates of {rows}"
                )
            for i, gate in enumerate(gates):
                args[f"{name}{gate}_{kind}"] = whole[i * rows : (i + 1) * rows].copy()
        return args

    def pack_weights(self, args: Mapping[str, NDArray]) -> Arrays:
        """Return a copy of the arrays with this cell's gates concatenated, the inverse of `unpack_weights`.

        Args:
            args: arrays by name, as returned by `unpack_weights`.

        Raises:
            ArgumentError: a gate of this cell is missing.
        """
        args, gates = dict(args), self._gate_names
        for name, kind in self._weight_names() if any(gates) else ():
            args[f"{name}_{kind}"] = nd.concatenate(
                [pop_array(args, f"{name}{g}_{kind}", self) for g in gates]
            )
        return args

    def check_states(self, states: Sequence[Symbol]) -> Sequence[Symbol]:
        """Return the states after checking their number.

        Args:
            states: one symbol for each entry of `state_info`.

        Raises:
            ArgumentError: the number of states is wrong.
        """
        wanted = len(self.state_info)
        if len(states) != wanted:
            raise ArgumentError(
                f"{type(self).__name__} {self.prefix!r}: got {len(states)} states, expected {wanted}, as "
                "begin_state() returns them"
            )
        return states


def begin_states(cell: BaseRNNCell, func: Callable[..., Symbol], **kwargs: Any) -> list[Symbol]:
    """Return the initial states of a nested cell; `begin_state` of user-defined cells need not accept `func`."""
    return cell.begin_state(**kwargs) if func is sym.zeros else cell.begin_state(func=func, **kwargs)


def unroll_cell(cell: BaseRNNCell, length: int, *args: Any) -> tuple[Steps, list[Any]]:
    """Unroll a nested cell; `unroll` of user-defined cells need not accept `valid_length`.

    Args:
        length: number of steps.
        args: further arguments of `BaseRNNCell.unroll`, in order.
    """
    options = dict(zip(_UNROLL, args, strict=True))
    if options["valid_length"] is None:
        del options["valid_length"]  # not an argument in MXNet
    elif not _takes(cell.unroll, "valid_length"):
        raise ArgumentError(
            f"unroll: valid_length is given, but unroll of {type(cell).__name__} {cell.prefix!r} does not accept it; "
            "add the argument there, or omit valid_length"
        )
    return cell.unroll(length, **options)


_UNROLL = ("inputs", "begin_state", "layout", "merge_outputs", "valid_length")


def _takes(function: Callable[..., Any], name: str) -> bool:
    """Return True if a function accepts an argument by name."""
    parameters = inspect.signature(function).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def flatten_states(states: Sequence[Any]) -> list[Symbol]:
    """Flatten states, which are nested for bidirectional cells."""
    flat: list[Symbol] = []
    for state in states:
        flat.extend([state] if isinstance(state, Symbol) else flatten_states(state))
    return flat


def pop_array(args: Arrays, name: str, cell: BaseRNNCell) -> NDArray:
    """Remove and return an array."""
    if name not in args:
        raise ArgumentError(
            f"{type(cell).__name__} {cell.prefix!r}: args has no {name!r}, only "
            f"{', '.join(list(args)[:8]) or 'nothing'}"
        )
    return args.pop(name)


def rnn_unroll(
    cell: BaseRNNCell,
    length: int,
    inputs: Symbol | Iterable[Symbol] | None = None,
    begin_state: Sequence[Any] | None = None,
    input_prefix: str = "",
    layout: str = "NTC",
) -> tuple[Steps, list[Any]]:
    """Unroll a cell; deprecated, call `cell.unroll`.

    Args:
        inputs: see `BaseRNNCell.unroll`; by default a variable for each step.
        begin_state: see `BaseRNNCell.unroll`.
        input_prefix: prefix of the variables' names ``t0_data``, ``t1_data``, ....
        layout: see `BaseRNNCell.unroll`.
    Source: MXNet 1.9.1 `rnn.rnn_unroll`, which is broken there.
    """
    warnings.warn("rnn_unroll is deprecated; call cell.unroll", DeprecationWarning, stacklevel=2)
    if inputs is None:
        inputs = [sym.Variable(f"{input_prefix}t{i}_data") for i in range(length)]
    return cell.unroll(length, inputs, begin_state, layout)
