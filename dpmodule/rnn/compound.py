"""Compound cells: stacks, bidirectional cells, dropout and modifiers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from .. import symbol as sym
from ..base import ArgumentError, StateError
from ..ndarray import NDArray
from ..symbol import Symbol
from .base import (
    Arrays,
    BaseRNNCell,
    RNNParams,
    Steps,
    as_list,
    as_merged,
    begin_states,
    convert_steps,
    flatten_states,
    mask_steps,
    reverse_steps,
    time_axis,
    unroll_cell,
)


class _Compound(BaseRNNCell):
    """Base of cells that consist of others, with their states and weights in order."""

    def __init__(self, params: RNNParams | None, cells: Sequence[BaseRNNCell] = ()) -> None:
        self.cells = list(cells)
        super().__init__("", params)
        self._given_params = params is not None

    def _add_cell(self, cell: BaseRNNCell) -> None:
        if not isinstance(cell, BaseRNNCell):
            raise ArgumentError(f"{type(self).__name__}: got {cell!r}, expected a cell such as LSTMCell")
        if self._given_params:
            raise ArgumentError(
                f"{type(self).__name__}: params are given, but its cells have their own; pass params to the "
                "cells only"
            )
        self.cells.append(cell)
        self.params.adopt(cell.params)

    @property
    def _cells(self) -> list[BaseRNNCell]:
        return self.cells

    @property
    def steppable(self) -> bool:
        return all(cell.steppable for cell in self.cells)

    def reset(self) -> None:
        super().reset()
        for cell in self.cells:
            cell.reset()

    @property
    def state_info(self) -> list[dict[str, Any]]:
        return [info for cell in self.cells for info in cell.state_info]

    def make_begin_state(self, func: Callable[..., Symbol], **kwargs: Any) -> list[Symbol]:
        return [state for cell in self.cells for state in begin_states(cell, func, **kwargs)]

    def unpack_weights(self, args: Mapping[str, NDArray]) -> Arrays:
        args = dict(args)
        for cell in self.cells:
            args = cell.unpack_weights(args)
        return args

    def pack_weights(self, args: Mapping[str, NDArray]) -> Arrays:
        args = dict(args)
        for cell in self.cells:
            args = cell.pack_weights(args)
        return args

    def split_states(self, states: Sequence[Any]) -> list[list[Symbol]]:
        """Split states by cell."""
        rest = list(self.check_states(flatten_states(states)))
        parts = []
        for cell in self.cells:
            count = len(cell.state_info)
            parts.append(rest[:count])
            rest = rest[count:]
        return parts


class SequentialRNNCell(_Compound):
    """A stack of cells, each of which reads the outputs of the previous one.

    Args:
        params: accepted for compatibility with MXNet; cells have their own.

    Example:
        >>> stack = mx.rnn.SequentialRNNCell()
        >>> stack.add(mx.rnn.LSTMCell(100, prefix="l0_"))
        >>> stack.add(mx.rnn.LSTMCell(50, prefix="l1_"))
        >>> outputs, _ = stack.unroll(3, mx.sym.Variable("data"), merge_outputs=True)
        >>> outputs.infer_shape(data=(32, 3, 20))[1]
        [(32, 3, 50)]
    """

    def __init__(self, params: RNNParams | None = None) -> None:
        super().__init__(params)

    def add(self, cell: BaseRNNCell) -> None:
        """Add a cell on top.

        Args:
            cell: the cell, which reads the outputs of the cell below.

        Raises:
            ArgumentError: `cell` is not a cell, or this stack was given params.
        """
        self._add_cell(cell)

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """Add one step of every cell to the graph; see `BaseRNNCell`."""
        self._counter += 1
        after: list[Symbol] = []
        for cell, mine in zip(self.cells, self.split_states(states), strict=True):
            inputs, new = cell(inputs, mine)
            after.extend(new)
        return inputs, after

    def _unroll(
        self, length: int, inputs: Any, begin_state: Any, layout: str, merge: bool | None, valid_length: Any
    ) -> tuple[Steps, list[Any]]:
        if not self.cells:
            raise StateError("SequentialRNNCell: there is no cell to unroll; call add() first")
        states = self.begin_state() if begin_state is None else begin_state
        after: list[Any] = []
        last = len(self.cells) - 1
        sequence: Any = inputs
        for i, (cell, mine) in enumerate(zip(self.cells, self.split_states(states), strict=True)):
            mine_merged = merge if i == last else None
            sequence, new = unroll_cell(cell, length, sequence, mine, layout, mine_merged, valid_length)
            after.extend(new)
        return sequence, after


class BidirectionalCell(_Compound):
    """A pair of cells that read the sequence in both directions; their outputs are concatenated.

    The cell can be unrolled, but not called for one step.

    Args:
        params: accepted for compatibility with MXNet; the cells have their own.
        output_prefix: prefix of the names of the outputs.
    Source: Schuster and Paliwal, "Bidirectional recurrent neural networks", 1997; MXNet 1.9.1
    `rnn.BidirectionalCell`.
    """

    def __init__(
        self,
        l_cell: BaseRNNCell,
        r_cell: BaseRNNCell,
        params: RNNParams | None = None,
        output_prefix: str = "bi_",
    ) -> None:
        super().__init__(params)
        self._output_prefix = output_prefix
        self._add_cell(l_cell)
        self._add_cell(r_cell)

    @property
    def steppable(self) -> bool:
        return False

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> NoReturn:
        """Raise an error, since a single step has no reverse direction."""
        raise NotImplementedError(
            "BidirectionalCell cannot be called for one step; use unroll on the whole sequence"
        )

    def _unroll(
        self, length: int, inputs: Any, begin_state: Any, layout: str, merge: bool | None, valid_length: Any
    ) -> tuple[Steps, list[Any]]:
        axis = time_axis(layout)
        steps = as_list(length, inputs, axis)
        begin = self.split_states(self.begin_state() if begin_state is None else begin_state)
        left, right = self.cells
        backward = reverse_steps(length, steps, axis, valid_length)
        l_out, l_states = unroll_cell(left, length, steps, begin[0], layout, merge, valid_length)
        r_out, r_states = unroll_cell(right, length, backward, begin[1], layout, merge, valid_length)
        if merge is None:
            merge = isinstance(l_out, Symbol) and isinstance(r_out, Symbol)
        outputs = self._join(length, l_out, r_out, axis, merge, valid_length)
        return outputs, [l_states, r_states]

    def _join(
        self, length: int, left: Steps, right: Steps, axis: int, merge: bool, valid_length: Symbol | None
    ) -> Steps:
        """Concatenate the outputs of both directions, after reversing the right ones."""
        prefix = self._output_prefix
        if merge:
            turned = reverse_steps(length, as_merged(length, right, axis), axis, valid_length)
            found: Symbol = sym.Concat(as_merged(length, left, axis), turned, dim=2, name=f"{prefix}out")
            return found
        l_steps = as_list(length, left, axis)
        r_steps = reverse_steps(length, as_list(length, right, axis), axis, valid_length)
        return [
            sym.Concat(one, other, dim=1, name=f"{prefix}t{i}")
            for i, (one, other) in enumerate(zip(l_steps, r_steps, strict=True))
        ]


def _check_share(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ArgumentError(f"{what} is {value!r}, expected a number from 0 to 1")
    return value


class DropoutCell(BaseRNNCell):
    """Dropout between the cells of a stack; it has no state.

    Args:
        dropout: fraction of elements to drop.
        prefix: accepted for compatibility with MXNet; nodes have automatic names.
        params: accepted for compatibility with MXNet; there are no weights.
    """

    def __init__(self, dropout: float, prefix: str = "dropout_", params: RNNParams | None = None) -> None:
        super().__init__(prefix, params)
        self.dropout = _check_share("DropoutCell: dropout", dropout)

    @property
    def state_info(self) -> list[dict[str, Any]]:
        return []

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """Add one step to the graph; see `BaseRNNCell`."""
        self.check_states(states)
        if self.dropout > 0:
            inputs = sym.Dropout(data=inputs, p=self.dropout)
        return inputs, []

    def _unroll(
        self, length: int, inputs: Any, begin_state: Any, layout: str, merge: bool | None, valid_length: Any
    ) -> tuple[Steps, list[Any]]:
        given: Steps = inputs if isinstance(inputs, Symbol) else list(inputs)
        found = convert_steps(length, given, time_axis(layout), merge)
        if isinstance(found, Symbol):
            return self(found, [])
        return [self(step, [])[0] for step in as_list(length, found, 0)], []


class ModifierCell(_Compound):
    """Base of cells that wrap another cell and share its weights and states.

    Args:
        base_cell: the cell to wrap; from then on, call the wrapper instead.
    """

    def __init__(self, base_cell: BaseRNNCell) -> None:
        if not isinstance(base_cell, BaseRNNCell):
            raise ArgumentError(
                f"{type(self).__name__}: base_cell is {base_cell!r}, expected a cell such as LSTMCell"
            )
        self.base_cell = base_cell
        super().__init__(None, [base_cell])
        base_cell.modified = True

    @property
    def params(self) -> RNNParams:
        return self.base_cell.params

    def begin_state(
        self,
        func: Callable[..., Symbol] = sym.zeros,
        init_sym: Callable[..., Symbol] | None = None,
        **kwargs: Any,
    ) -> list[Symbol]:
        """Return symbols of the initial states.

        Args:
            func: creates a state from name, shape and layout, such as `sym.zeros` or `sym.Variable`.
            init_sym: MXNet's name for `func`, which takes precedence.
            kwargs: further arguments of `func`.

        Raises:
            StateError: another modifier wraps this cell; call that modifier's method.
        """
        return super().begin_state(init_sym or func, **kwargs)

    def make_begin_state(self, func: Callable[..., Symbol], **kwargs: Any) -> list[Symbol]:
        with self._unwrapped() as cell:
            return begin_states(cell, func, **kwargs)

    @contextmanager
    def _unwrapped(self) -> Iterator[BaseRNNCell]:
        """Allow direct calls of the wrapped cell inside a ``with`` block."""
        self.base_cell.modified = False
        try:
            yield self.base_cell
        finally:
            self.base_cell.modified = True


class ZoneoutCell(ModifierCell):
    """Zoneout: randomly keep elements of outputs and states from the previous step in training.

    Args:
        base_cell: the cell to wrap, which must support single steps.
        zoneout_outputs: fraction of the outputs' elements to keep.
        zoneout_states: fraction of the states' elements to keep.

    Raises:
        ArgumentError: the cell does not support single steps, or a fraction is not in [0, 1].

    Source: Krueger et al., "Zoneout: regularizing RNNs by randomly preserving hidden activations", 2016; MXNet
    1.9.1 `rnn.ZoneoutCell`.
    """

    def __init__(
        self, base_cell: BaseRNNCell, zoneout_outputs: float = 0.0, zoneout_states: float = 0.0
    ) -> None:
        if not getattr(base_cell, "steppable", True):
            raise ArgumentError(
                f"ZoneoutCell: {type(base_cell).__name__} cannot be called step by step; wrap the cells in a "
                "BidirectionalCell instead, or those of FusedRNNCell.unfuse()"
            )
        self.prev_output: Symbol | None = None
        super().__init__(base_cell)
        self.zoneout_outputs = _check_share("ZoneoutCell: zoneout_outputs", zoneout_outputs)
        self.zoneout_states = _check_share("ZoneoutCell: zoneout_states", zoneout_states)

    def reset(self) -> None:
        super().reset()
        self.prev_output = None

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """Add one step to the graph; see `BaseRNNCell`."""
        output, after = self.base_cell(inputs, states)
        if self.zoneout_outputs:
            before = self.prev_output
            if before is None:
                infos = self.state_info
                rank = len(infos[0]["shape"]) if infos and infos[0] else 2
                before = sym.zeros((0,) * rank)
            output = _mix(self.zoneout_outputs, output, before)
        if self.zoneout_states:
            after = [_mix(self.zoneout_states, new, old) for new, old in zip(after, states, strict=True)]
        self.prev_output = output
        return output, after


def _mix(share: float, new: Symbol, old: Symbol) -> Symbol:
    """Replace a random fraction of `new` by elements of `old` in training."""
    kept = sym.Dropout(sym.ones_like(new), p=share)
    if share == 1:
        kept = kept > 0  # dropping all elements gives NaN, which would count as kept
    found: Symbol = sym.where(kept, new, old)
    return found


class ResidualCell(ModifierCell):
    """A residual connection, which adds the input of each step to its output of the same shape.

    Args:
        base_cell: the cell to wrap.
    Source: Wu et al., "Google's neural machine translation system", 2016; MXNet 1.9.1 `rnn.ResidualCell`.
    """

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """Add one step to the graph; see `BaseRNNCell`."""
        output, after = self.base_cell(inputs, states)
        return _plus(output, inputs), after

    def _unroll(
        self, length: int, inputs: Any, begin_state: Any, layout: str, merge: bool | None, valid_length: Any
    ) -> tuple[Steps, list[Any]]:
        axis = time_axis(layout)
        given: Steps = inputs if isinstance(inputs, Symbol) else list(inputs)
        states = self.begin_state() if begin_state is None else begin_state
        with self._unwrapped() as cell:
            outputs, after = unroll_cell(cell, length, given, states, layout, merge, valid_length)
        sources = convert_steps(length, given, axis, isinstance(outputs, Symbol))
        if isinstance(outputs, Symbol) and isinstance(sources, Symbol):
            found: Steps = _plus(outputs, sources)
        else:
            found = [_plus(one, other) for one, other in zip(outputs, sources, strict=True)]
        if valid_length is not None:
            found = mask_steps(length, found, axis, valid_length, merge)
        return found, after


def _plus(output: Symbol, inputs: Symbol) -> Symbol:
    found: Symbol = sym.elemwise_add(output, inputs, name=f"{output.name}_plus_residual")
    return found
