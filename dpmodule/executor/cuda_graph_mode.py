"""`CudaGraphMode`: runs on a GPU are recorded in CUDA graphs and replayed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from ..devices.generators import generator
from .arrays import BoundArrays
from .backward import Backward
from .cuda_graphs import RecordedOutputs, Recorder, driver_of, reason_against
from .execution_mode import ExecutionMode
from .program import Program

_logger = logging.getLogger(__name__)


class CudaGraphMode(ExecutionMode):
    """Forward for prediction, and forward with backward in one, are recorded once they repeat, and then replayed.

    Separate calls of `forward` in training mode and `backward` run as always, and so does everything on other devices
    than GPUs. Results are the same either way. See `cuda_graphs` for what is never recorded.

    Args:
        program: returns the program that runs in training mode, or for prediction.
        work: does everything in one of these modes, on memory that stays. Neither may keep the executor alive, which
            keeps this: that circle would keep memory after its last user.
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

    def state(self, program: Program, is_train: bool) -> str:
        recorder = self._recorder(is_train)
        return f"not in CUDA graphs: {self._reason_against(is_train)}" if recorder is None else recorder.state

    def _recorder(self, is_train: bool) -> Recorder | None:
        """Return what records runs in training mode, or for prediction; None if they cannot be recorded."""
        if is_train not in self._recorders:
            self._recorders[is_train] = self._new_recorder(is_train)
        return self._recorders[is_train]

    def _reason_against(self, is_train: bool) -> str:
        """Return why runs are not recorded, "" if nothing speaks against it so far."""
        arrays, wanted = self._arrays, self._backward
        if driver_of(arrays.context.torch_device) is None:
            return f"{arrays.context} is no GPU"
        if arrays.places:
            return "it runs on several devices"
        if not wanted.dense_only or wanted.integers or (is_train and not wanted.slots):
            return "it has sparse gradients, gradients of integers, or none"
        return reason_against(self._program(is_train))

    def _new_recorder(self, is_train: bool) -> Recorder | None:
        driver, reason = driver_of(self._arrays.context.torch_device), self._reason_against(is_train)
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
