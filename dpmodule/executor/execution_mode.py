"""Execution modes: the base class, which calls the generated function, and the interpreter for monitors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..context import Context
from ..ndarray import NDArray
from ..ops.spec import Env
from ..ops.write_tracking import expose
from .interpreter import interpret
from .program import Forward, Program
from .sparse_arrays import array_of

if TYPE_CHECKING:
    from .cuda_graphs import RecordedOutputs


class ExecutionMode:
    """The way an executor runs its programs; this base class calls the generated functions.

    Attributes:
        watched: True if a monitor reads every operator's output, so that each must be computed unfused.
        replays: True if `replay` may run a whole step.
    """

    watched = False
    replays = False

    def forward(self, program: Program) -> Forward:
        """Return the function that runs a program."""
        return program.forward

    def replay(self, is_train: bool, inputs: Mapping[str, Any] | None) -> RecordedOutputs | None:
        """Replay a whole run: forward for prediction, or forward and backward.

        Returns:
            The results of the run; None if nothing was run, so that the caller uses `forward`.
        """
        return None

    def forget(self) -> None:
        """Drop everything cached for further runs of these shapes."""

    def describe(self, program: Program, is_train: bool) -> str:
        """Describe how a program runs; "" if it is simply called."""
        return ""


class InterpretedMode(ExecutionMode):
    """Runs programs step by step and shows a monitor every result.

    Args:
        callback: called with the name and value of every operator's output.
    """

    watched = True

    def __init__(self, callback: Callable[[str, NDArray], None], inputs_too: bool, context: Context) -> None:
        self.monitor = callback, inputs_too
        self._context = context

    def forward(self, program: Program) -> Forward:
        inputs_too = self.monitor[1]

        def run(values: Sequence[torch.Tensor], env: Env, shaped: Sequence[Env]) -> tuple[Any, ...]:
            for value in values if inputs_too else ():
                expose(value)  # a monitor may write variables, and keep them
            return interpret(program, values, env, shaped, self.show, inputs_too)

        return program.mirrored(run)

    def show(self, name: str, value: torch.Tensor) -> None:
        """Call the monitor with a value.

        Shape:
            value: as the operator's output or input.
        """
        if value is not None:
            self.monitor[0](name, array_of(value, self._context))
