"""The old function that unrolls a cell."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from .. import symbol as sym
from ..symbol import Symbol
from .base import BaseRNNCell
from .steps import Steps


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
