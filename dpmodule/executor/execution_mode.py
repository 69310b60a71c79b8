"""How programs are run: what an executor chooses from when it is bound, and when a monitor comes or goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..context import Context
from ..ndarray import NDArray
from ..ops.exposure import expose
from ..ops.spec import Env
from .interpreter import interpret
from .program import Forward, Program
from .sparse_arrays import array_of

if TYPE_CHECKING:
    from .cuda_graphs import RecordedOutputs


class ExecutionMode:
    """How an executor's programs are run: as the functions that are generated, where no other way is asked for.

    Attributes:
        watched: every operator's output must be computed as it is, since somebody looks at it.
    """

    watched = False
    replays = False

    def forward(self, program: Program) -> Forward:
        """Return what runs a program."""
        return program.forward

    def replay(self, is_train: bool, inputs: Mapping[str, Any] | None) -> RecordedOutputs | None:
        """Do a whole run at once: forward for prediction, or forward and backward.

        Returns:
            What the run makes; None where it has not been done, and `forward` is to do it.
        """
        return None

    def forget(self) -> None:
        """Drop what is kept for further runs of these shapes."""

    def state(self, program: Program, is_train: bool) -> str:
        """Return how a program is run, in words; "" where users have asked for nothing else than calling it."""
        return ""


class InterpretedMode(ExecutionMode):
    """Programs run step by step, and a monitor is shown what steps make.

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
        """Show the monitor a value.

        Shape:
            value: as the operator's output or input.
        """
        if value is not None:
            self.monitor[0](name, array_of(value, self._context))
