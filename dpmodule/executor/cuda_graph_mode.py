"""`CudaGraphMode`: records runs on a GPU in CUDA graphs and replays them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from .._devices.generators import generator
from .arrays import BoundArrays
from .backward import Backward
from .cuda_graphs import RecordedOutputs, Recorder, driver_of, unsupported_reason
from .execution_mode import ExecutionMode
from .program import Program

_logger = logging.getLogger(__name__)


class CudaGraphMode(ExecutionMode):
    """Records a repeated prediction, or a repeated forward with backward, and then replays it.

    Separate calls of `forward` in training mode and of `backward` run normally, and so does everything on devices other
    than GPUs. Results are the same in both cases. `cuda_graphs` lists the graphs that are never recorded.

    Args:
        program: returns the program that runs in training mode, or for prediction.
        work: runs a whole step in training mode, or a prediction, on memory that stays. Neither function may hold a
            reference to the executor, which owns this object: the cycle would keep memory after its last user.
    """

    replays = True

    def __init__(
        self,
        arrays: BoundArrays,
        backward: Backward,
        program: Callable[[bool], Program],
        work: Callable[[bool], RecordedOutputs],
    ) -> None:
        self._arrays, self._backward, self._program, self._work = arrays, backward, program, work
        self._recorders: dict[bool, Recorder | None] = {}

    def replay(self, is_train: bool, inputs: Mapping[str, Any] | None) -> RecordedOutputs | None:
        recorder = self._recorder(is_train)
        if recorder is None or not recorder.is_due():
            return None
        for name, tensor in (inputs or {}).items():
            own = self._arrays.args[name].raw
            if tensor is not own:
                own.copy_(tensor)
        states = [generator(self._arrays.context).get_state()] if self._program(is_train).random else []
        results = recorder.run()
        return None if results is None else results._replace(random_states=states)

    def forget(self) -> None:
        for recorder in self._recorders.values():
            if recorder is not None:
                recorder.forget()

    def describe(self, program: Program, is_train: bool) -> str:
        recorder = self._recorder(is_train)
        return (
            f"not in CUDA graphs: {self._unsupported_reason(is_train)}"
            if recorder is None
            else recorder.state
        )

    def _recorder(self, is_train: bool) -> Recorder | None:
        """Return the recorder for training mode or for prediction; None if its runs cannot be recorded."""
        if is_train not in self._recorders:
            self._recorders[is_train] = self._new_recorder(is_train)
        return self._recorders[is_train]

    def _unsupported_reason(self, is_train: bool) -> str:
        """Return the reason why runs are not recorded; "" if there is none so far."""
        arrays, wanted = self._arrays, self._backward
        if driver_of(arrays.context.torch_device) is None:
            return f"{arrays.context} is not a GPU"
        if arrays.placement:
            return "it runs on several devices"
        if not wanted.dense_only or wanted.integers or (is_train and not wanted.slots):
            return "it has sparse gradients, gradients of integers, or no gradients"
        return unsupported_reason(self._program(is_train))

    def _new_recorder(self, is_train: bool) -> Recorder | None:
        driver, reason = driver_of(self._arrays.context.torch_device), self._unsupported_reason(is_train)
        if driver is None or reason:
            return None
        work, arrays = self._work, self._arrays
        return Recorder(
            driver,
            lambda: work(is_train),
            arrays.values,
            [generator(arrays.context)] if self._program(is_train).random else [],
            _logger,
        )
