"""Which engine runs a program, and why: the one place that knows them all."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch

from ..base import ArgumentError
from ..context import cpu
from ..devices import generators
from .job import Job, WorkerStats
from .native_engine import NativeEngine
from .process_engine import ProcessEngine
from .program import BoundProgram
from .serial_engine import SerialEngine


class Engine(Protocol):
    """What does jobs."""

    def run(self, prepared: BoundProgram, job: Job) -> list[WorkerStats]:
        """Do a job and return what each worker did."""

    def paused(self) -> AbstractContextManager[None]:
        """Return a context in which no worker is within an update."""

    def close(self) -> None:
        """End the workers; the next job has new ones."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine, and why it is the one; reads as a sentence."""

    mode: str
    why: str

    def __str__(self) -> str:
        return f"{self.mode}: {self.why}"


class Engines:
    """The engines of one executor.

    Args:
        timeout_s: how long a worker may be without progress, in seconds.
        start_method: how worker processes are started; None: as is fastest.
    """

    def __init__(self, timeout_s: float, start_method: str | None) -> None:
        self.serial = SerialEngine(timeout_s)
        self.process = ProcessEngine(timeout_s, start_method)
        self._native = NativeEngine()
        self._engines: dict[str, Engine] = {
            "native": self._native,
            "serial": self.serial,
            "process": self.process,
        }
        self._current: Engine | None = None

    def choose(self, prepared: BoundProgram, mode: str, workers: int) -> Choice:
        """Return which engine trains a program."""
        if mode in ("process", "serial"):
            return Choice(mode, "it was asked for")
        reason = self._native.why_not(prepared)
        if reason is None:
            return Choice("native", "the whole network is of kinds that the native engine has")
        if mode == "native":
            raise ArgumentError(f"mode is 'native', but {reason}; mode='auto' takes another engine")
        if workers == 1:
            return Choice("serial", f"there is one worker, and {reason}")
        return Choice("process", reason)

    def run(self, mode: str, prepared: BoundProgram, job: Job) -> list[WorkerStats]:
        """Do a job with the engine of a mode."""
        self._current = self._engines[mode]
        try:
            return self._current.run(prepared, job)
        finally:
            self._current = None
            if mode == "native":  # the others draw from this generator themselves
                torch.rand(1, generator=generators.generator(cpu()))

    def paused(self) -> AbstractContextManager[None]:
        """Return a context in which no worker is within an update: all wait between two batches."""
        return nullcontext() if self._current is None else self._current.paused()

    def close(self) -> None:
        """End all workers; the next job has new ones."""
        for engine in self._engines.values():
            engine.close()
