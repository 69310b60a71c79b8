"""What is remembered of a batch that has been run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..ops.spec import BatchCall
from .signature import BatchStep

__all__ = ["Record", "Where"]


@dataclass(slots=True)
class Where:
    """Where an operand of a batch came from.

    Shape:
        index: (count,).
        value: (1, 1, *d).

    Args:
        first: the first row.
        count: how many rows in a row.
        index: the rows, if they are not in a row.
        parameter: the attributes (`Dim`, weak reference, is updated) of the parameter it is; rows mean nothing then.
        value: that of the parameter.
    """

    first: int
    count: int
    index: torch.Tensor | None
    parameter: Any
    value: torch.Tensor | None = None


@dataclass(slots=True)
class Record:
    """A batch that has been run.

    Shape:
        inputs: each (nodes or 1, batch, *d).

    Args:
        step: its place in the plan.
        call: as the operation left it.
        inputs: its operands.
        wheres: where they came from.
        firsts: the first row of every result.
    """

    step: BatchStep
    call: BatchCall
    inputs: list[torch.Tensor]
    wheres: list[Where]
    firsts: list[int]
