"""`FusedRNNCell`: all layers and directions in one operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from .. import initializer
from .. import ndarray as nd
from .. import symbol as sym
from ..base import ArgumentError
from ..ndarray import NDArray
from ..ops.nn import rnn_weights
from ..symbol import Symbol
from .base import (
    Arrays,
    BaseRNNCell,
    RNNParams,
    Steps,
    as_merged,
    convert_steps,
    flatten_states,
    pop_array,
    time_axis,
)
from .cell import GRUCell, LSTMCell, RNNCell
from .compound import BidirectionalCell, DropoutCell, SequentialRNNCell


class FusedRNNCell(BaseRNNCell):
    """A multi-layer network computed by the operator `sym.RNN`.

    It is much faster than a stack of cells. It can be unrolled, but not called for one step. All weights are in one
    vector, see `unpack_weights`; `unfuse` returns an equivalent stack of cells.

    Args:
        num_hidden: size of the state of one direction.
        mode: "rnn_relu", "rnn_tanh", "lstm" or "gru".
        bidirectional: add a network to each layer that reads from the right.
        dropout: dropout rate between layers.
        get_next_state: True if `unroll` returns the states after the last step.
        forget_bias: initial bias of an LSTM's forget gates.
        prefix: prefix of the names of nodes and weights; by default the mode and an underscore.
        params: weights shared with other cells.

    Raises:
        OpError: the mode is unknown.

    Example:
        >>> cell = mx.rnn.FusedRNNCell(20, num_layers=2, mode="gru", bidirectional=True, prefix="g_")
        >>> outputs, _ = cell.unroll(5, mx.sym.Variable("data"), merge_outputs=True)
        >>> outputs.infer_shape(data=(8, 5, 10))[1]
        [(8, 5, 40)]

    Source: MXNet 1.9.1 `rnn.FusedRNNCell`.
    """

    def __init__(
        self,
        num_hidden: int,
        num_layers: int = 1,
        mode: str = "lstm",
        bidirectional: bool = False,
        dropout: float = 0.0,
        get_next_state: bool = False,
        forget_bias: float = 1.0,
        prefix: str | None = None,
        params: RNNParams | None = None,
    ) -> None:
        rnn_weights.gates(mode)  # raises an error for an unknown mode
        for what, value in (("num_hidden", num_hidden), ("num_layers", num_layers)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ArgumentError(f"FusedRNNCell: {what} is {value!r}, expected an integer from 1")
        super().__init__(f"{mode}_" if prefix is None else prefix, params)
        self.num_hidden = num_hidden
        self.num_layers = num_layers
        self.mode = mode
        self.bidirectional = bool(bidirectional)
        self.dropout = dropout
        self.get_next_state = get_next_state
        self.forget_bias = forget_bias
        first = initializer.FusedRNN(None, num_hidden, num_layers, mode, self.bidirectional, forget_bias)
        self._parameter = self.params.get("parameters", init=first)

    @property
    def state_info(self) -> list[dict[str, Any]]:
        directions = 2 if self.bidirectional else 1
        info = {"shape": (directions * self.num_layers, 0, self.num_hidden), "__layout__": "LNC"}
        return [dict(info) for _ in range(2 if self.mode == "lstm" else 1)]

    @property
    def steppable(self) -> bool:
        return False

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> NoReturn:
        """Raise an error, since the operator needs whole sequences."""
        raise NotImplementedError(
            "FusedRNNCell cannot be called for one step; use unroll, or unfuse() and call that"
        )

    def _unroll(
        self, length: int, inputs: Any, begin_state: Any, layout: str, merge: bool | None, valid_length: Any
    ) -> tuple[Steps, list[Any]]:
        axis = time_axis(layout)
        data = as_merged(length, inputs, axis)
        if axis == 1:
            data = sym.swapaxes(data, dim1=0, dim2=1)
        states = self.begin_state() if begin_state is None else flatten_states(begin_state)
        found = self._operator(data, self.check_states(states), valid_length)
        outputs = found[0]
        if axis == 1:
            outputs = sym.swapaxes(outputs, dim1=0, dim2=1)
        return convert_steps(length, outputs, axis, merge), list(found)[1:]

    def _operator(self, data: Symbol, states: Sequence[Symbol], valid_length: Symbol | None) -> Symbol:
        """Return the operator's outputs from data (T, N, C)."""
        further: dict[str, Any] = dict(zip(("state", "state_cell"), states))
        if valid_length is not None:
            further.update(sequence_length=valid_length, use_sequence_length=True)
        output: Symbol = sym.RNN(
            data=data,
            parameters=self._parameter,
            state_size=self.num_hidden,
            num_layers=self.num_layers,
            bidirectional=self.bidirectional,
            p=self.dropout,
            state_outputs=self.get_next_state,
            mode=self.mode,
            name=f"{self.prefix}rnn",
            **further,
        )
        if self.get_next_state:
            # the batch is the second axis
            output._set_attr(__layout__="LNC")
        return output

    def unpack_weights(self, args: Mapping[str, NDArray]) -> Arrays:
        args = dict(args)
        vector = pop_array(args, str(self._parameter.name), self)
        pieces = rnn_weights.unpack(vector, self.mode, self.num_layers, self.num_hidden, self.bidirectional)
        args.update({self.prefix + suffix: piece.copy() for suffix, piece in pieces.items()})
        return args

    def pack_weights(self, args: Mapping[str, NDArray]) -> Arrays:
        args = dict(args)
        first_name = f"{self.prefix}l0_i2h{rnn_weights.gates(self.mode)[0]}_weight"
        first = args.get(first_name)
        if first is None:
            pop_array(args, first_name, self)
            raise ArgumentError(f"{first_name} is None")
        layout = self.mode, self.num_layers, first.shape[-1], self.num_hidden, self.bidirectional
        vector = nd.zeros((rnn_weights.vector_size(*layout),), ctx=first.context, dtype=first.dtype)
        for block in rnn_weights.blocks(*layout):
            piece = pop_array(args, self.prefix + block.suffix, self)
            if piece.shape != block.shape:
                raise ArgumentError(
                    f"{self.prefix}{block.suffix} has shape {piece.shape}, expected {block.shape}"
                )
            block.of(vector)[:] = piece
        args[str(self._parameter.name)] = vector
        return args

    def unfuse(self) -> SequentialRNNCell:
        """Return an equivalent stack of cells.

        Its weights have other names; convert them with ``stack.pack_weights(cell.unpack_weights(args))``.
        """
        stack = SequentialRNNCell()
        for layer in range(self.num_layers):
            left = self._cell(f"{self.prefix}l{layer}_")
            if self.bidirectional:
                right = self._cell(f"{self.prefix}r{layer}_")
                stack.add(BidirectionalCell(left, right, output_prefix=f"{self.prefix}bi_l{layer}_"))
            else:
                stack.add(left)
            if self.dropout > 0 and layer < self.num_layers - 1:
                stack.add(DropoutCell(self.dropout, prefix=f"{self.prefix}_dropout{layer}_"))
        return stack

    def _cell(self, prefix: str) -> BaseRNNCell:
        """Return one unfused cell."""
        if self.mode == "lstm":
            return LSTMCell(self.num_hidden, prefix=prefix, forget_bias=self.forget_bias)
        if self.mode == "gru":
            return GRUCell(self.num_hidden, prefix=prefix)
        return RNNCell(self.num_hidden, activation=self.mode.removeprefix("rnn_"), prefix=prefix)
