"""Measuring how long a program's steps take, and how much memory a run takes."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..base import StateError
from ..compat.torch_private import profiler_is_on
from ..context import gpu_module
from ..ops.sparse import leaf_of
from ..ops.spec import Env
from .dense_chain import run_backward
from .interpreter import call_step, record_by_step, step_gradients
from .program import Forward, Program
from .recorded_run import HeadGradients, value_gradients

_BACKWARD = "dpmodule backward"
"""Name under which the beginning of backward is found in a recording."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Medians of wall time in seconds.

    Attributes:
        whole_backward: of its backward; 0 where none follows.
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
    """Run forward, and backward where it may follow, as a whole and step by step, and return how long it takes."""
    wholes: list[tuple[float, float]] = []
    forwards: list[list[float]] = []
    backwards: list[list[float]] = []
    for _ in range(repeats + 1):
        start = run.clock()
        result = run.forward()
        middle = run.clock()
        starts = run.starts(result) if run.targets else []
        loss = run.clock() - middle
        run.backward(starts)
        wholes.append((middle - start, run.clock() - middle))
        del result
        forwards.append(_time_forward(run))
        if run.targets:
            backwards.append(_time_backward(run, value_gradients(run.program, starts), loss))
    whole_forward, whole_backward = _medians(wholes[1:])
    return StepTimes(_medians(forwards[1:]), _medians(backwards[1:]), whole_forward, whole_backward)


def _time_forward(run: TrialRun) -> list[float]:
    """Run the steps one by one, freeing values where the program does, and return the time of each."""
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
    """Run forward, each step with a recording of its own, then backward step by step; return the time of each."""
    tape = record_by_step(run.program, run.values, run.env, run.shaped)[0]
    grads = dict(heads)
    times = [0.0] * len(tape)
    losses = sum(step.detach_first for step, _, _ in tape)
    while tape:
        step, own, made = tape.pop()
        start = run.clock()
        if step.detach_first:
            times[len(tape)] = loss / losses
            continue
        for number, grad in step_gradients(own, made, grads).items():
            grads[number] = grads[number] + grad if number in grads else grad
        for number in made:
            grads.pop(number, None)
        times[len(tape)] = run.clock() - start
    return times


def measure_memory(run: TrialRun) -> tuple[int, int]:
    """Return the most memory in bytes that tensors made in forward, and up to the end of backward, take at a time.

    It is counted where torch's allocators hand out memory, so that what kernels take for themselves on the way is in
    it, and what their libraries allocate by other ways is not. On GPUs, where only their own memory counts, this sets
    back `torch.cuda.max_memory_allocated`.
    """
    if profiler_is_on() and not run.gpus:
        raise StateError("memory can be measured only while no profiler runs; stop it first")
    for _ in range(2):  # what steps make in their first two runs, and keep, belongs to no run
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
    """Return what `measure_memory` does, by the numbers that the allocator of GPUs keeps."""
    run.wait()
    before = sum(map(torch.cuda.memory_allocated, run.gpus))

    def most() -> int:
        run.wait()
        found = sum(map(torch.cuda.max_memory_allocated, run.gpus)) - before
        for gpu in run.gpus:
            torch.cuda.reset_peak_memory_stats(gpu)
        return found

    most()
    result = run.forward()
    forward = most()
    if not run.targets:
        return forward, 0
    run.backward(run.starts(result))
    return forward, most()


def _run_once(run: TrialRun) -> None:
    result = run.forward()
    with torch.profiler.record_function(_BACKWARD):
        if run.targets:
            run.backward(run.starts(result))


@dataclass(frozen=True, slots=True)
class TrialRun:
    """A program with all it needs to run; made by `Executor.trial_run`, inside of which it may run.

    Shape:
        values: each as its variable.

    Attributes:
        values: tensors of the variables; those that record gradients get one.
        targets: the variables whose gradients are wanted; none where no backward follows.
        call: what runs forward: the program's function, or a compiled one.
        starts: where backward starts, of a result of `forward`: number of the head, tensor, gradient. May be asked
            once for each result, of which it may use up the memory.
    """

    program: Program
    env: Env
    shaped: list[Env]
    values: list[torch.Tensor]
    targets: list[torch.Tensor]
    call: Forward
    starts: Callable[[tuple[Any, ...]], HeadGradients]
    gpus: tuple[torch.device, ...] = ()

    def forward(self) -> tuple[Any, ...]:
        """Run forward once; returns what `Program.forward` does."""
        with torch.set_grad_enabled(self.program.low.recorded):
            return self.call(self.values, self.env, self.shaped)

    def backward(self, starts: HeadGradients) -> Sequence[torch.Tensor | None]:
        """Return the gradients of `targets`, from what `starts` returned.

        Shape:
            returns: each as its target.
        """
        leaves = [leaf_of(t) for t in self.targets if t.requires_grad]
        if not starts or not leaves:
            return []
        _, roots, seeds = zip(*starts)
        return run_backward(roots, seeds, leaves)

    def wait(self) -> None:
        """Wait until GPUs have done what they were told."""
        for gpu in self.gpus:
            gpu_module().synchronize(gpu)

    def clock(self) -> float:
        """Return the time in seconds at which everything told so far is done."""
        self.wait()
        return time.perf_counter()
