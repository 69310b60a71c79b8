"""Measuring the time of a program's steps and the memory of a run."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .._core.torch_private import profiler_is_on
from ..base import StateError
from ..context import gpu_module
from ..ops.sparse import leaf_of
from ..ops.spec import Env
from .dense_chain import run_backward
from .interpreter import call_step, record_by_step, step_gradients
from .program import Forward, Program
from .recorded_run import HeadGradients, value_gradients

_BACKWARD = "dpmodule backward"
"""Name that marks the beginning of backward in a profile."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Medians of wall time in seconds.

    Attributes:
        whole_backward: time of the whole backward; 0 if there is none.
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    whole_forward: float
    whole_backward: float


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _medians(rounds: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(map(_median, zip(*rounds)))


def measure_times(run: TrialRun, repeats: int) -> StepTimes:
    """Return the times of forward and backward, measured as a whole and step by step."""
    wholes: list[tuple[float, float]] = []
    forwards: list[list[float]] = []
    backwards: list[list[float]] = []
    for _ in range(repeats + 1):
        start = run.clock()
        result = run.forward()
        middle = run.clock()
        head_grads = run.head_gradients(result) if run.targets else []
        loss = run.clock() - middle
        run.backward(head_grads)
        wholes.append((middle - start, run.clock() - middle))
        del result
        forwards.append(_time_forward(run))
        if run.targets:
            backwards.append(_time_backward(run, value_gradients(run.program, head_grads), loss))
    whole_forward, whole_backward = _medians(wholes[1:])
    return StepTimes(_medians(forwards[1:]), _medians(backwards[1:]), whole_forward, whole_backward)


def _time_forward(run: TrialRun) -> list[float]:
    """Run the steps one by one, freeing values as the program does, and return the time of each."""
    low = run.program.low
    known: dict[int, Any] = dict(enumerate(run.values))
    last = {number: at for at, step in enumerate(low.steps) for number in (*step.inputs, *step.outputs)}
    kept = {*low.kept(), *range(low.num_variables)}
    times = []
    with torch.set_grad_enabled(low.recorded):
        for at, step in enumerate(low.steps):
            start = run.clock()
            results = call_step(run.program, step, known, run.env, run.shaped)
            times.append(run.clock() - start)
            known.update(zip(step.outputs, results))
            for number in {*step.inputs, *step.outputs}:
                if last[number] == at and number not in kept:
                    del known[number]
    return times


def _time_backward(run: TrialRun, heads: dict[int, torch.Tensor], loss: float) -> list[float]:
    """Record each step of forward separately, run backward step by step, and return the time of each."""
    tape = record_by_step(run.program, run.values, run.env, run.shaped)[0]
    grads = dict(heads)
    times = [0.0] * len(tape)
    losses = sum(step.detach_first for step, _, _ in tape)
    while tape:
        step, inputs, results = tape.pop()
        start = run.clock()
        if step.detach_first:
            times[len(tape)] = loss / losses
            continue
        for number, grad in step_gradients(inputs, results, grads).items():
            grads[number] = grads[number] + grad if number in grads else grad
        for number in results:
            grads.pop(number, None)
        times[len(tape)] = run.clock() - start
    return times


def measure_memory(run: TrialRun) -> tuple[int, int]:
    """Return the peak memory, in bytes, of the tensors that forward makes, and of those up to the end of backward.

    The measurement counts torch's allocations. It therefore includes the temporary memory of kernels, and excludes
    memory that libraries allocate elsewhere. On GPUs it counts GPU memory only and resets
    `torch.cuda.max_memory_allocated`.
    """
    if profiler_is_on() and not run.gpus:
        raise StateError("memory can be measured only while no profiler runs; stop it first")
    for _ in range(2):  # what steps allocate in their first two runs and keep does not count
        _run_once(run)
    if run.gpus:
        return _measure_gpus(run)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True
    ) as recording:
        _run_once(run)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        recording.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    middle = max(float(e["ts"]) for e in events if e["name"] == _BACKWARD)
    changes = sorted((float(e["ts"]), int(e["args"]["Bytes"])) for e in events if e["name"] == "[memory]")
    live, peaks = 0, [0, 0]
    for at, change in changes:
        live += change
        peaks[at >= middle] = max(peaks[at >= middle], live)
    return peaks[0], peaks[1] if run.targets else 0


def _measure_gpus(run: TrialRun) -> tuple[int, int]:
    """Return the result of `measure_memory` from the statistics of the GPU allocator."""
    run.wait()
    before = sum(map(torch.cuda.memory_allocated, run.gpus))

    def take_peak() -> int:
        run.wait()
        peak = sum(map(torch.cuda.max_memory_allocated, run.gpus)) - before
        for gpu in run.gpus:
            torch.cuda.reset_peak_memory_stats(gpu)
        return peak

    take_peak()
    result = run.forward()
    forward = take_peak()
    if not run.targets:
        return forward, 0
    run.backward(run.head_gradients(result))
    return forward, take_peak()


def _run_once(run: TrialRun) -> None:
    result = run.forward()
    with torch.profiler.record_function(_BACKWARD):
        if run.targets:
            run.backward(run.head_gradients(result))


@dataclass(frozen=True, slots=True)
class TrialRun:
    """A program with everything it needs to run, for use inside `Executor.trial_run`.

    Shape:
        values: each as its variable.

    Attributes:
        values: tensors of the variables; those with requires_grad get a gradient.
        targets: the variables whose gradients are wanted; empty if no backward follows.
        call: the function that runs forward: the program's own, or a compiled one.
        head_gradients: returns the roots of backward for a result of `forward`. Call it once per result, since it may
            free the result's memory.
    """

    program: Program
    env: Env
    shaped: list[Env]
    values: list[torch.Tensor]
    targets: list[torch.Tensor]
    call: Forward
    head_gradients: Callable[[tuple[Any, ...]], HeadGradients]
    gpus: tuple[torch.device, ...] = ()

    def forward(self) -> tuple[Any, ...]:
        """Run forward once and return the result of `Program.forward`."""
        with torch.set_grad_enabled(self.program.low.recorded):
            return self.call(self.values, self.env, self.shaped)

    def backward(self, head_grads: HeadGradients) -> Sequence[torch.Tensor | None]:
        """Return the gradients of `targets` for the result of `head_gradients`.

        Shape:
            returns: each as its target.
        """
        leaves = [leaf_of(t) for t in self.targets if t.requires_grad]
        if not head_grads or not leaves:
            return []
        _, roots, seeds = zip(*head_grads)
        return run_backward(roots, seeds, leaves)

    def wait(self) -> None:
        """Wait until the GPUs have finished all submitted work."""
        for gpu in self.gpus:
            gpu_module().synchronize(gpu)

    def clock(self) -> float:
        """Return the time in seconds after all submitted work is done."""
        self.wait()
        return time.perf_counter()
