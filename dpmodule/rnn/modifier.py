"""Cells that change what another cell does: dropout, zoneout, residual connections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from .. import symbol as sym
from ..base import ArgumentError
from ..ndarray import NDArray
from ..symbol import Symbol
from .base import Arrays, BaseRNNCell, RNNParams, begin_states, unrolled
from .steps import Steps, as_list, mask, shaped, time_axis


def _check_share(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ArgumentError(f"{what} is {value!r}, expected a number from 0 to 1")
    return value


class DropoutCell(BaseRNNCell):
    """Drop elements of the input at random in training; it has no state and stands between cells of a stack.

    Args:
        dropout: share of the elements set to zero.
        prefix: accepted for MXNet's sake; its nodes have automatic names.
        params: accepted for MXNet's sake; there are no weights.
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
        given: Steps = inputs if isinstance(inputs, Symbol) else list(inputs)
        found = shaped(length, given, time_axis(layout), merge_outputs)
        if isinstance(found, Symbol):
            return self(found, [])
        return [self(step, [])[0] for step in as_list(length, found, 0)], []


class ModifierCell(BaseRNNCell):
    """Interface of cells that wrap another one, whose weights and states they keep.

    Args:
        base_cell: the cell to wrap; from now on the wrapper is to be called in its place.
    """

    def __init__(self, base_cell: BaseRNNCell) -> None:
        if not isinstance(base_cell, BaseRNNCell):
            raise ArgumentError(
                f"{type(self).__name__}: base_cell is {base_cell!r}, expected a cell such as LSTMCell"
            )
        self.base_cell = base_cell
        super().__init__()
        base_cell.modified = True

    @property
    def params(self) -> RNNParams:
        return self.base_cell.params

    @property
    def state_info(self) -> list[dict[str, Any]]:
        return self.base_cell.state_info

    @property
    def steppable(self) -> bool:
        return self.base_cell.steppable

    def reset(self) -> None:
        super().reset()
        self.base_cell.reset()

    def begin_state(
        self,
        func: Callable[..., Symbol] = sym.zeros,
        init_sym: Callable[..., Symbol] | None = None,
        **kwargs: Any,
    ) -> list[Symbol]:
        """Make symbols for the states before the first step.

        Args:
            func: makes a state from name, shape and layout, such as `sym.zeros` or `sym.Variable`.
            init_sym: MXNet's name for `func` in this place; it wins.
            kwargs: further arguments of `func`.

        Raises:
            StateError: another modifier wraps this cell; call that one's.
        """
        return super().begin_state(init_sym or func, **kwargs)

    def make_begin_state(self, func: Callable[..., Symbol], **kwargs: Any) -> list[Symbol]:
        with self._unwrapped() as cell:
            return begin_states(cell, func, **kwargs)

    @contextmanager
    def _unwrapped(self) -> Iterator[BaseRNNCell]:
        """Let the wrapped cell be called directly, inside a ``with`` block."""
        self.base_cell.modified = False
        try:
            yield self.base_cell
        finally:
            self.base_cell.modified = True

    def unpack_weights(self, args: Mapping[str, NDArray]) -> Arrays:
        return self.base_cell.unpack_weights(args)

    def pack_weights(self, args: Mapping[str, NDArray]) -> Arrays:
        return self.base_cell.pack_weights(args)


class ZoneoutCell(ModifierCell):
    """Keep elements of outputs and states as they were a step before, at random, in training.

    Args:
        base_cell: the cell to wrap; one that can be called for a single step.
        zoneout_outputs: share of the outputs' elements to keep.
        zoneout_states: share of the states' elements to keep.

    Raises:
        ArgumentError: the cell needs whole sequences, or a share is no number from 0 to 1.

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
    """Return `new` with a share of its elements taken from `old` in training."""
    kept = sym.Dropout(sym.ones_like(new), p=share)
    if share == 1:
        kept = kept > 0  # dropping all makes NaN, which counts as kept
    found: Symbol = sym.where(kept, new, old)
    return found


class ResidualCell(ModifierCell):
    """Add the input of each step to its output; both need the same shape.

    Args:
        base_cell: the cell to wrap.
    Source: Wu et al., "Google's neural machine translation system", 2016; MXNet 1.9.1 `rnn.ResidualCell`.
    """

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """Add one step to the graph; see `BaseRNNCell`."""
        output, after = self.base_cell(inputs, states)
        return _plus(output, inputs), after

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
        given: Steps = inputs if isinstance(inputs, Symbol) else list(inputs)
        states = self.begin_state() if begin_state is None else begin_state
        with self._unwrapped() as cell:
            outputs, after = unrolled(cell, length, given, states, layout, merge_outputs, valid_length)
        sources = shaped(length, given, axis, isinstance(outputs, Symbol))
        if isinstance(outputs, Symbol) and isinstance(sources, Symbol):
            found: Steps = _plus(outputs, sources)
        else:
            found = [_plus(one, other) for one, other in zip(outputs, sources, strict=True)]
        if valid_length is not None:
            found = mask(length, found, axis, valid_length, merge_outputs)
        return found, after


def _plus(output: Symbol, inputs: Symbol) -> Symbol:
    found: Symbol = sym.elemwise_add(output, inputs, name=f"{output.name}_plus_residual")
    return found
