"""Jobs for pools, by the same names with the extension and without: they wait, fail and count themselves."""

import gc
import threading
import time
from pathlib import Path

import pytest

from dpmodule import base, native
from dpmodule.native.errors import FunctorError
from helpers import compiled

_NAMES = "functor argument bounds shape dtype state file file_format memory"
_ERRORS = (base.ArgumentError, base.BoundsError, base.ShapeError, base.DTypeError, base.StateError)
_MORE = (base.FileError, base.FileFormatError, MemoryError)
KINDS = dict(zip(_NAMES.split(), (FunctorError, *_ERRORS, *_MORE), strict=True))
"""Kinds of dpmodule::Error in their order, and what they are in Python."""


class _Jobs:
    """The jobs in Python."""

    def __init__(self):
        # a job may be collected while its thread counts another one
        self._lock, self._gate = threading.RLock(), threading.Event()
        self._living = self._running = 0

    def make(self, work):
        jobs = self

        class Job:
            def __init__(self):
                with jobs._lock:
                    jobs._living += 1

            def __del__(self):
                with jobs._lock:
                    jobs._living -= 1

            def __dpmodule_functor__(self):
                return self

            def run(self):
                with jobs._lock:
                    jobs._running += 1
                try:
                    return work()
                finally:
                    with jobs._lock:
                        jobs._running -= 1

        return Job()

    def noop(self):
        return self.make(lambda: None)

    def sleep(self, seconds):
        return self.make(lambda: time.sleep(seconds))

    def wait(self):
        return self.make(lambda: self._gate.wait() and None)

    def value(self, result):
        return self.make(lambda: result() if callable(result) else result)

    def thread_name(self):
        return self.make(lambda: threading.current_thread().name)

    def fail(self, kind, text):
        error = {-1: FunctorError, -2: MemoryError, -3: FunctorError}.get(kind) or list(KINDS.values())[kind]

        def work():
            raise error(text.decode(errors="replace"))

        return self.make(work)

    def set_gate(self, is_open):
        (self._gate.set if is_open else self._gate.clear)()

    def counts(self):
        names = ("living", "running", "destroyed_without_gil", "run_with_gil")
        return dict(zip(names, (self._living, self._running, 0, 0)))


def _load():
    if native.core is None:
        return _Jobs()
    if compiled.compiler() is None:
        pytest.skip("functors for tests need a C++ compiler", allow_module_level=True)
    return compiled.load(Path(__file__).parents[1] / "native" / "jobs.cpp")


JOBS = _load()
noop, sleep, wait, value = JOBS.noop, JOBS.sleep, JOBS.wait, JOBS.value
thread_name, counts, fail = JOBS.thread_name, JOBS.counts, JOBS.fail


class opened:
    """Let jobs made by `wait` go on after the block."""

    def __enter__(self):
        JOBS.set_gate(False)

    def __exit__(self, *_):
        JOBS.set_gate(True)


def settle(name, expected, seconds=10.0):
    """Wait until a count is as expected, without an event loop."""
    if counts()[name] != expected:
        gc.collect()  # a test before may have left a cycle
    end = time.monotonic() + seconds
    while counts()[name] != expected and time.monotonic() < end:
        time.sleep(0.001)
    assert counts()[name] == expected
