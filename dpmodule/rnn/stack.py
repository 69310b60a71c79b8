"""Cells made of cells: one after the other, or one from each end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from .. import symbol as sym
from ..base import ArgumentError, StateError
from ..ndarray import NDArray
from ..symbol import Symbol
from .base import Arrays, BaseRNNCell, RNNParams, begin_states, flatten_states, unrolled
from .steps import Steps, as_list, as_merged, reverse, time_axis


class _Compound(BaseRNNCell):
    """A cell whose states and weights are those of the cells in it, in order."""

    def __init__(self, params: RNNParams | None) -> None:
        self.cells: list[BaseRNNCell] = []
        super().__init__("", params)
        self._given_params = params is not None

    def _take_in(self, cell: BaseRNNCell) -> None:
        if not isinstance(cell, BaseRNNCell):
            raise ArgumentError(f"{type(self).__name__}: got {cell!r}, expected a cell such as LSTMCell")
        if self._given_params:
            raise ArgumentError(
                f"{type(self).__name__}: params are given to it and its cells have their own; give params to the "
                "cells alone"
            )
        self.cells.append(cell)
        self.params.adopt(cell.params)

    @property
    def _cells(self) -> list[BaseRNNCell]:
        return self.cells

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

    def divide(self, states: Sequence[Any]) -> list[list[Symbol]]:
        """Return the states of each cell."""
        rest = list(self.check_states(flatten_states(states)))
        parts = []
        for cell in self.cells:
            count = len(cell.state_info)
            parts.append(rest[:count])
            rest = rest[count:]
        return parts


class SequentialRNNCell(_Compound):
    """Stack cells: each reads what the one before puts out.

    Args:
        params: accepted for MXNet's sake; cells are added with their own.

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
        """Put a cell on top.

        Args:
            cell: gets the outputs of the cell below.

        Raises:
            ArgumentError: it is no cell, or this stack was given params.
        """
        self._take_in(cell)

    @property
    def steppable(self) -> bool:
        return all(cell.steppable for cell in self.cells)

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """Add one step of every cell to the graph; see `BaseRNNCell`."""
        self._counter += 1
        after: list[Symbol] = []
        for cell, mine in zip(self.cells, self.divide(states), strict=True):
            inputs, new = cell(inputs, mine)
            after.extend(new)
        return inputs, after

    def unroll(
        self,
        length: int,
        inputs: Symbol | Iterable[Symbol],
        begin_state: Sequence[Any] | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Symbol | None = None,
    ) -> tuple[Steps, list[Any]]:
        self.reset()
        if not self.cells:
            raise StateError("SequentialRNNCell: there is no cell to unroll; add one first")
        states = self.begin_state() if begin_state is None else begin_state
        after: list[Any] = []
        last = len(self.cells) - 1
        sequence: Any = inputs
        for i, (cell, mine) in enumerate(zip(self.cells, self.divide(states), strict=True)):
            merge = merge_outputs if i == last else None
            sequence, new = unrolled(cell, length, sequence, mine, layout, merge, valid_length)
            after.extend(new)
        return sequence, after


class BidirectionalCell(_Compound):
    """Run one cell from the left and one from the right; outputs stand side by side.

    A whole sequence is needed: the cell can be unrolled, but not called for one step.

    Args:
        params: accepted for MXNet's sake; the cells have their own.
        output_prefix: put before the names of the outputs.
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
        self._take_in(l_cell)
        self._take_in(r_cell)

    @property
    def steppable(self) -> bool:
        return False

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> NoReturn:
        """Refuse: a single step has no right end."""
        raise NotImplementedError(
            "BidirectionalCell cannot be called for one step; use unroll on the whole sequence"
        )

    def unroll(
        self,
        length: int,
        inputs: Symbol | Iterable[Symbol],
        begin_state: Sequence[Any] | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Symbol | None = None,
    ) -> tuple[Steps, list[Any]]:
        self.reset()
        axis = time_axis(layout)
        steps = as_list(length, inputs, axis)
        begin = self.divide(self.begin_state() if begin_state is None else begin_state)
        left, right = self.cells
        backward = reverse(length, steps, axis, valid_length)
        l_out, l_states = unrolled(left, length, steps, begin[0], layout, merge_outputs, valid_length)
        r_out, r_states = unrolled(right, length, backward, begin[1], layout, merge_outputs, valid_length)
        if merge_outputs is None:
            merge_outputs = isinstance(l_out, Symbol) and isinstance(r_out, Symbol)
        outputs = self._join(length, l_out, r_out, axis, merge_outputs, valid_length)
        return outputs, [l_states, r_states]

    def _join(
        self, length: int, left: Steps, right: Steps, axis: int, merge: bool, valid_length: Symbol | None
    ) -> Steps:
        """Put the outputs of both directions side by side, the right ones turned round."""
        prefix = self._output_prefix
        if merge:
            turned = reverse(length, as_merged(length, right, axis), axis, valid_length)
            found: Symbol = sym.Concat(as_merged(length, left, axis), turned, dim=2, name=f"{prefix}out")
            return found
        l_steps = as_list(length, left, axis)
        r_steps = reverse(length, as_list(length, right, axis), axis, valid_length)
        return [
            sym.Concat(one, other, dim=1, name=f"{prefix}t{i}")
            for i, (one, other) in enumerate(zip(l_steps, r_steps, strict=True))
        ]
