"""Checkpoints of recurrent networks, with weights saved per gate, for fused and unfused cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .. import checkpoint
from ..base import ArgumentError
from ..ndarray import NDArray
from ..symbol import Symbol
from .base import Arrays, BaseRNNCell

Cells = BaseRNNCell | Sequence[BaseRNNCell]


def _as_list(cells: Cells) -> list[BaseRNNCell]:
    return [cells] if isinstance(cells, BaseRNNCell) else list(cells)


def save_rnn_checkpoint(
    cells: Cells,
    prefix: str,
    epoch: int,
    symbol: Symbol | None,
    arg_params: Mapping[str, NDArray],
    aux_params: Mapping[str, NDArray],
) -> None:
    """Save a network with its cells' weights unpacked into gates.

    Args:
        cells: the cell, or cells, in the network.
        prefix: prefix of the file names, including the path.
        epoch: number of the epoch, from 0.
        symbol: the graph; None does not write its file.
        arg_params: parameters by name.
        aux_params: auxiliary states by name.

    Raises:
        ArgumentError: the weights of a cell are missing.
        FileError: a file cannot be written; then the old files are unchanged.

    Source: MXNet 1.9.1 `rnn.save_rnn_checkpoint`.
    """
    args: Arrays = dict(arg_params)
    for cell in _as_list(cells):
        args = cell.unpack_weights(args)
    checkpoint.save_checkpoint(prefix, epoch, symbol, args, aux_params)


def load_rnn_checkpoint(cells: Cells, prefix: str, epoch: int) -> tuple[Symbol, Arrays, Arrays]:
    """Load a checkpoint of `save_rnn_checkpoint`, with the weights packed for the cells.

    Fused cells can load checkpoints of unfused cells, and vice versa.

    Args:
        cells: the cell, or cells, in the network.
        prefix: see `save_rnn_checkpoint`.

    Returns:
        (symbol, arg_params, aux_params)

    Raises:
        ArgumentError: the weights of a cell are missing.
        FileError: a file is missing.
        FileFormatError: a file is damaged.

    Source: MXNet 1.9.1 `rnn.load_rnn_checkpoint`.
    """
    symbol, args, aux = checkpoint.load_checkpoint(prefix, epoch)
    for cell in _as_list(cells):
        args = cell.pack_weights(args)
    return symbol, args, aux


def do_rnn_checkpoint(cells: Cells, prefix: str, period: int = 1) -> Callable[..., None]:
    """Return an epoch-end callback that calls `save_rnn_checkpoint`.

    Args:
        cells: the cell, or cells, in the network.
        prefix: prefix of the file names, including the path.

    Raises:
        ArgumentError: `period` is not a number.

    Source: MXNet 1.9.1 `rnn.do_rnn_checkpoint`.
    """
    if isinstance(period, bool) or not isinstance(period, (int, float)):
        raise ArgumentError(f"do_rnn_checkpoint: period is {period!r}, expected a number of epochs from 1")
    every = int(max(1, period))

    def save(
        iter_no: int,
        sym: Symbol | None = None,
        arg: Mapping[str, NDArray] | None = None,
        aux: Mapping[str, NDArray] | None = None,
    ) -> None:
        if (iter_no + 1) % every == 0:
            save_rnn_checkpoint(cells, prefix, iter_no + 1, sym, arg or {}, aux or {})

    return save
