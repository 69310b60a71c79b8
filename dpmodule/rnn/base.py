"""What all cells share: their interface, sequences as symbols, the container of their weights' variables."""

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
"""A sequence in either form."""


def time_axis(layout: str) -> int:
    """Return the axis of time steps.

    Args:
        layout: one letter per axis, T for time steps and N for the batch first in either order: NTC, TNC, NTCHW.
    """
    if not isinstance(layout, str) or layout[:2] not in ("NT", "TN"):
        raise ArgumentError(f"layout is {layout!r}, expected 'NTC' (batch first) or 'TNC' (time first)")
    return layout.index("T")


def as_list(length: int, inputs: Symbol | Iterable[Symbol], axis: int) -> list[Symbol]:
    """Return a sequence as one symbol for each step.

    Args:
        length: number of steps.
        axis: axis of time steps of a merged one.
    """
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise ArgumentError(f"length is {length!r}, expected a number of steps from 1")
    if isinstance(inputs, Symbol):
        return list(sym.split(_single(inputs), axis=axis, num_outputs=length, squeeze_axis=1))
    steps = list(inputs)
    if len(steps) != length or not all(isinstance(step, Symbol) for step in steps):
        raise ArgumentError(
            f"inputs has {len(steps)} steps ({', '.join(type(s).__name__ for s in steps[:4])}), expected "
            f"{length} Symbols: one for each of `length` steps, or a single Symbol with an axis of time steps"
        )
    return steps


def as_merged(length: int, inputs: Symbol | Iterable[Symbol], axis: int) -> Symbol:
    """Return a sequence as one symbol; arguments and errors as for `as_list`."""
    if isinstance(inputs, Symbol):
        return _single(inputs)
    steps = [sym.expand_dims(step, axis=axis) for step in as_list(length, inputs, axis)]
    merged: Symbol = sym.Concat(*steps, dim=axis)
    return merged


def convert_steps(length: int, inputs: Steps, axis: int, merge: bool | None) -> Steps:
    """Return a sequence in the wanted form; None leaves it as it is.

    Args:
        length: number of steps.
        axis: axis of time steps of a merged one.
        merge: True for one symbol, False for a list.
    """
    if merge is None:
        return inputs
    return as_merged(length, inputs, axis) if merge else as_list(length, inputs, axis)


def mask_steps(length: int, outputs: Steps, axis: int, valid_length: Symbol, merge: bool | None) -> Steps:
    """Write zeros after the end of each sequence.

    Args:
        length: number of steps.
        axis: axis of time steps of a merged one.
        valid_length: steps of each sequence, (N,).
        merge: form of the result; None keeps that of `outputs`.
    """
    masked = sym.SequenceMask(
        as_merged(length, outputs, axis), sequence_length=valid_length, use_sequence_length=True, axis=axis
    )
    return convert_steps(length, masked, axis, isinstance(outputs, Symbol) if merge is None else merge)


def last_valid(history: Sequence[Sequence[Symbol]], valid_length: Symbol) -> list[Symbol]:
    """Return each state as it is after the last step of each sequence.

    Args:
        valid_length: steps of each sequence, (N,).
    """
    return [
        sym.SequenceLast(sym.stack(*states, axis=0), sequence_length=valid_length, use_sequence_length=True)
        for states in zip(*history, strict=True)
    ]


def reverse_steps(length: int, inputs: Steps, axis: int, valid_length: Symbol | None = None) -> Steps:
    """Turn a sequence round, in the form it has; padding stays at the end if lengths are given.

    Args:
        length: number of steps.
        axis: axis of time steps of a merged one.
        valid_length: steps of each sequence, (N,).
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
            f"inputs is a group of {len(inputs)} symbols; give list(inputs) if they are the steps, or choose one"
        )
    return inputs


Activation = str | Callable[..., Symbol]
"""`act_type` of `sym.Activation`, or a function of symbols."""


def activate(inputs: Symbol, activation: Activation, **kwargs: Any) -> Symbol:
    """Apply an activation, given as the `act_type` of `sym.Activation` or as a function of symbols."""
    if isinstance(activation, str):
        found: Symbol = sym.Activation(inputs, act_type=activation, **kwargs)
        return found
    return activation(inputs, **kwargs)


Arrays = dict[str, NDArray]
"""Arrays by name, such as the arg_params of a Module."""


class RNNParams:
    """Hold the variables of a cell's weights; cells that are given the same one share them.

    Args:
        prefix: prefix of the variables' names.
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
        """Take in the variables of another container.

        Args:
            other: the container; it goes on holding them.
        """
        self._params.update(other._params)


class BaseRNNCell:
    """Interface of everything that reads a sequence step by step.

    A cell makes symbols: calling it adds one step to a graph, `unroll` as many as a sequence has. Its weights are
    the same variables in every step, and in every graph it makes: call `reset` before starting another one.

    Args:
        prefix: prefix of the names of nodes and weights.
        params: weights to share with other cells; None makes new ones.
    """

    _num_hidden: int = 0  # rows of one gate's weights; cells with `_gate_names` of users' own set it

    def __init__(self, prefix: str = "", params: RNNParams | None = None) -> None:
        self._prefix = prefix
        self._modified = False
        self._own_params = params is None
        self._params = RNNParams(prefix) if params is None else params
        self._init_counter = -1
        self._counter = -1
        self.reset()

    def reset(self) -> None:
        """Number steps and begin states from 0 again, for a new graph."""
        self._init_counter = -1
        self._counter = -1

    @property
    def prefix(self) -> str:
        """What stands before the names of the cell's nodes and weights."""
        return self._prefix

    @property
    def modified(self) -> bool:
        """Whether a modifier such as ZoneoutCell wraps the cell and has to be called in its place."""
        return self._modified

    @modified.setter
    def modified(self, wrapped: bool) -> None:
        self._modified = wrapped

    @property
    def steppable(self) -> bool:
        """Whether the cell can be called for a single step."""
        return True

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """Add one step to the graph.

        Args:
            inputs: what the step reads, (N, C).
            states: states after the step before, as `begin_state` and this method return them.

        Returns:
            (output, states after this step)
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

    def _get_activation(self, inputs: Symbol, activation: Any, **kwargs: Any) -> Symbol:
        """Apply an activation; for cells of users' own, which call it by this name in MXNet."""
        return activate(inputs, activation, **kwargs)

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
        """Make the begin states without asking who calls; for cells that wrap this one.

        Args:
            func: makes each state, such as ``mx.sym.zeros``; called with `name`, `shape` and what else a
                state's info has.
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
        """Make the graph of a whole sequence.

        Args:
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
        return self._unroll(length, inputs, begin_state, layout, merge_outputs, valid_length)

    def _unroll(
        self, length: int, inputs: Any, begin_state: Any, layout: str, merge: bool | None, valid_length: Any
    ) -> tuple[Steps, list[Any]]:
        """Do what `unroll` says, after `reset`."""
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
        """What stands for each gate in names of weights; cells of users' own with several gates define it."""
        return ()

    def _weight_names(self) -> list[tuple[str, str]]:
        """Return (name, ending) of each weight that holds all gates: what the gate's name goes between."""
        return [(f"{self.prefix}{part}", kind) for part in ("i2h", "h2h") for kind in ("weight", "bias")]

    def unpack_weights(self, args: Mapping[str, NDArray]) -> Arrays:
        """Return a copy of the arrays with this cell's weights cut into gates, such as ``lstm_i2h_f_weight``.

        Args:
            args: arrays by name, such as the arg_params of a Module.

        Raises:
            ArgumentError: a weight of this cell is missing, or has another number of rows than its gates.
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
        """Return a copy of the arrays with this cell's gates put together, the inverse of `unpack_weights`.

        Args:
            args: arrays by name, as `unpack_weights` returns them.

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
        """Return the states if their number is right.

        Args:
            states: one symbol for each entry of `state_info`.

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


def begin_states(cell: BaseRNNCell, func: Callable[..., Symbol], **kwargs: Any) -> list[Symbol]:
    """Return the begin states of a cell inside another; `begin_state` of a user's own need not take `func`."""
    return cell.begin_state(**kwargs) if func is sym.zeros else cell.begin_state(func=func, **kwargs)


def unroll_cell(cell: BaseRNNCell, length: int, *args: Any) -> tuple[Steps, list[Any]]:
    """Unroll a cell inside another; `unroll` of a user's own need not take `valid_length`.

    Args:
        length: number of steps.
        args: the further arguments of `BaseRNNCell.unroll`, in order.
    """
    options = dict(zip(_UNROLL, args, strict=True))
    if options["valid_length"] is None:
        del options["valid_length"]  # MXNet's cells do not have it
    elif not _takes(cell.unroll, "valid_length"):
        raise ArgumentError(
            f"unroll: valid_length is given, and unroll of {type(cell).__name__} {cell.prefix!r} does not take it; "
            "add the argument there, or leave valid_length out"
        )
    return cell.unroll(length, **options)


_UNROLL = ("inputs", "begin_state", "layout", "merge_outputs", "valid_length")


def _takes(function: Callable[..., Any], name: str) -> bool:
    """Return True if a function takes an argument by name."""
    parameters = inspect.signature(function).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def flatten_states(states: Sequence[Any]) -> list[Symbol]:
    """Return states as a flat list; those that a bidirectional cell returns are nested."""
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
        cell: makes each step.
        inputs: as for `BaseRNNCell.unroll`; None makes a variable for each step.
        begin_state: as for `BaseRNNCell.unroll`.
        input_prefix: put before the names of these variables, ``t0_data`` and so on.
        layout: as for `BaseRNNCell.unroll`.
    Source: MXNet 1.9.1 `rnn.rnn_unroll`, which is broken there.
    """
    warnings.warn("rnn_unroll is deprecated; call cell.unroll", DeprecationWarning, stacklevel=2)
    if inputs is None:
        inputs = [sym.Variable(f"{input_prefix}t{i}_data") for i in range(length)]
    return cell.unroll(length, inputs, begin_state, layout)
