"""Checkpoints of recurrent networks, whose weights are saved gate by gate so that fused and unfused cells read them."""

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
    """Save a network with the weights of its cells unpacked into gates.

    Args:
        cells: the cell, or cells, in the network.
        prefix: path up to the first "-" of the file names.
        epoch: number of the epoch, from 0.
        symbol: the graph; None leaves the graph's file alone.
        arg_params: parameters by name.
        aux_params: auxiliary states by name.

    Raises:
        ArgumentError: the weights of a cell are missing.
        FileError: a file cannot be written; the old ones are untouched then.

    Source: MXNet 1.9.1 `rnn.save_rnn_checkpoint`.
    """
    args: Arrays = dict(arg_params)
    for cell in _as_list(cells):
        args = cell.unpack_weights(args)
    checkpoint.save_checkpoint(prefix, epoch, symbol, args, aux_params)


def load_rnn_checkpoint(cells: Cells, prefix: str, epoch: int) -> tuple[Symbol, Arrays, Arrays]:
    """Load what `save_rnn_checkpoint` saved, with the weights packed as the cells want them.

    The cells may be others than those that saved: fused ones read what unfused ones wrote, and the reverse.

    Args:
        cells: the cell, or cells, in the network.
        prefix: as in `save_rnn_checkpoint`.

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
    """Return a callback for the end of an epoch that saves as `save_rnn_checkpoint` does.

    Args:
        cells: the cell, or cells, in the network.
        prefix: path up to the first "-" of the file names.

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
