"""`RecordingExecutor`: an executor whose runs on a GPU are recorded in CUDA graphs and replayed."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping
from typing import Any

import torch

from ..generators import generator
from .cuda_graphs import Recorder, Results, apart, driver_of, reason_against
from .executor import Executor
from .gradients import deliver
from .runs import Run

__all__ = ["RecordingExecutor"]

_logger = logging.getLogger(__name__)


class RecordingExecutor(Executor):
    """An `Executor` that records forward for prediction, and forward with backward in one, once they repeat.

    Separate calls of `forward` in training mode and `backward` run as always, and so does everything on other devices
    than GPUs. Results are the same either way. See `cuda_graphs` for what is never recorded.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._recorders: dict[bool, Recorder | None] = {}

    def run(self, is_train: bool, inputs: Mapping[str, Any] | None = None) -> None:
        """Run the graph; see `Executor.run`."""
        if is_train or not self._replayed(False, inputs):
            super().run(is_train, inputs)

    def step(self, inputs: Mapping[str, Any] | None = None) -> None:
        """Run forward in training mode, then backward; see `Executor.step`."""
        if not self._replayed(True, inputs):
            super().step(inputs)

    def set_aside(self) -> None:
        """Drop recordings: shapes that come and go are not worth one, and it holds memory."""
        for recorder in self._recorders.values():
            if recorder is not None:
                recorder.forget()

    def release(self) -> bool:
        """Give up outputs, recordings and what backward would need; see `Executor.release`."""
        self.set_aside()
        return super().release()

    def way_to_run(self, is_train: bool) -> str:
        """Return how the program is run; see `Executor.way_to_run`."""
        recorder = self._recorder(is_train)
        other = super().way_to_run(is_train)
        if recorder is not None:
            return recorder.state
        return other or f"not in CUDA graphs: {self._reason_against(is_train)}"

    def _recorder(self, is_train: bool) -> Recorder | None:
        """Return what records runs in training mode, or for prediction; None if they cannot be recorded."""
        if is_train not in self._recorders:
            self._recorders[is_train] = self._new_recorder(is_train)
        return self._recorders[is_train]

    def _reason_against(self, is_train: bool) -> str:
        """Return why runs are not recorded, "" if nothing speaks against it so far."""
        if driver_of(self.context.torch_device) is None:
            return f"{self.context} is no GPU"
        if self._places:
            return "it runs on several devices"
        if self._options.compile is not None:
            return "torch.compile was asked for, too"
        wanted = self._backward
        if not wanted.dense_only or wanted.integers or (is_train and not wanted.slots):
            return "it has sparse gradients, gradients of integers, or none"
        return reason_against(self.program(is_train))

    def _new_recorder(self, is_train: bool) -> Recorder | None:
        driver, reason = driver_of(self.context.torch_device), self._reason_against(is_train)
        if driver is None or reason:
            return None
        program = self.program(is_train)
        me, variables = weakref.proxy(self), self._variables  # a circle would keep memory after its last user
        return Recorder(
            driver,
            lambda: me._work(is_train),
            lambda: [array.raw for array in variables],
            [generator(self.context)] if program.random else [],
            _logger,
        )

    def _replayed(self, is_train: bool, inputs: Mapping[str, Any] | None) -> bool:
        """Do a run by its recording, if there is one, or is to be one; say whether it was done."""
        if self._monitor is not None or self._elder is not None:
            return False
        recorder = self._recorder(is_train)
        if recorder is None or not recorder.is_due():
            return False
        self._borrowed = {}
        for name, tensor in (inputs or {}).items():
            own = self._args[name].raw
            if tensor is not own:
                own.copy_(tensor)
        states = [generator(self.context).get_state()] if self.program(is_train).random else []
        results = recorder.run()
        if results is None:
            return False
        self._random_states = states
        self._run, self._last_mode = None, is_train
        self._show(results)
        return True

    def _show(self, results: Results) -> None:
        """Put results where users find them; the next replay overwrites those of this one."""
        for handle, out in zip(self._outputs, results.outputs):
            handle.raw = out.clone()
            handle.pinned = False
        self._given_up = False
        if results.grads:
            with torch.no_grad():
                deliver(results.grads, self._backward.targets, self._backward.adds, ())

    def _work(self, is_train: bool) -> Results:
        """Run on the executor's own arrays; new values of states are written, gradients are not delivered."""
        with torch.no_grad():
            prepared = self._prepare(is_train, is_train)
            values, aliases = self._inputs(recorded=is_train)
            result = self._execute(prepared, values, is_train)
            outputs = [out.detach().contiguous() for out in result[0]]
            self._commit(prepared.program, result[3], at_once=True)
            if not is_train:
                return Results(outputs, [])
            for handle, out in zip(self._outputs, outputs):  # losses read them
                handle.raw = out
            run = Run(prepared, values, aliases, result)
            grads = self._backward.gradients(run, self._starts(run, [None] * len(outputs)))
            self._commit(prepared.program, result[3], at_once=False)
            return Results(outputs, apart(grads, [*values, *outputs]))
