"""MXNet's profiler calls (`mx.profiler`) over `torch.profiler`.

``set_state("run")`` starts a recording, ``set_state("stop")`` ends it; `dump` writes it as a Chrome trace, `dumps`
returns it as a table. A trace that no `dump` has written is written when the program ends, even by an exception or
`sys.exit`. Ranges that a program marks (`Task`, `Frame`, `Event`, `Marker`) appear in both under their names.

Example:
    >>> mx.profiler.set_config(filename="profile.json")
    >>> mx.profiler.set_state("run")
    >>> total = mx.nd.ones((2, 2)).sum()
    >>> mx.profiler.set_state("stop")
    >>> mx.profiler.dump()
    >>> "aten::sum" in mx.profiler.dumps()
    True
"""

from __future__ import annotations

import atexit
import json
import logging
import os
from numbers import Real
from pathlib import Path
from typing import Any

import torch

from ._core import lazy
from .base import ArgumentError, SignatureError, StateError, UnknownNameError

_OPTIONS = frozenset(
    {
        "filename",
        "profile_all",
        "profile_symbolic",
        "profile_imperative",
        "profile_memory",
        "profile_api",
        "continuous_dump",
        "dump_period",
        "aggregate_stats",
        "profile_process",
    }
)
_SORT = {"total": "cpu_time_total", "avg": "cpu_time", "min": "cpu_time", "max": "cpu_time", "count": "count"}


class _Recording:
    """Configuration and recordings: the running torch profiler, and the stopped ones."""

    def __init__(self) -> None:
        self.filename = "profile.json"
        self.memory = False
        self.running: Any = None
        self.counters: dict[str, float] = {}
        self.table: list[Any] = []  # recordings that `dumps` sums up
        self._parts: list[Any] = []  # recordings of the trace
        self._traces: dict[int, list[Any]] = {}  # torch writes a trace only once
        self._is_written = True
        self._process: int | None = None

    def begin(self) -> None:
        """Start a recording; it continues the last trace unless that has been written."""
        if self._is_written:
            self._parts, self._traces = [], {}
        self.start()

    def start(self) -> None:
        if self._process != os.getpid():
            self._process = os.getpid()
            atexit.register(self._finish, self._process)
        if self.running is None:
            kinds = [torch.profiler.ProfilerActivity.CPU]
            if torch.cuda.is_available():
                kinds.append(torch.profiler.ProfilerActivity.CUDA)
            self.running = torch.profiler.profile(
                activities=kinds, profile_memory=self.memory, acc_events=True
            )
            self.running.start()
            self._is_written = False

    def stop(self) -> None:
        if self.running is not None:
            self.running.stop()
            self._parts.append(self.running)
            self.table.append(self.running)
            self.running = None

    def write(self) -> None:
        """Write the trace."""
        if not self._parts:
            raise StateError('dump: nothing was recorded; call set_state("run") first')
        path = Path(self.filename)
        for number, part in enumerate(self._parts):
            if number not in self._traces:
                part.export_chrome_trace(str(path))
                self._traces[number] = json.loads(path.read_text())["traceEvents"]
        path.write_text(
            json.dumps({"traceEvents": [each for events in self._traces.values() for each in events]})
        )
        self._is_written = True

    def _finish(self, process: int) -> None:
        """Stop recording at the end of the program, as torch may crash otherwise, and write an unwritten trace."""
        if process != os.getpid():
            return
        self.stop()
        if not self._is_written:
            try:
                self.write()
            except OSError as error:
                logging.warning("mx.profiler: the trace was not written: %s", error)


_recording = _Recording()


def set_config(**kwargs: Any) -> None:
    """Configure the profiler.

    Args:
        kwargs: MXNet's options. `filename` names the file that `dump` writes, `profile_memory` records allocations;
            the others choose between parts of MXNet and have no effect here.

    Raises:
        ArgumentError: MXNet has no such option.
    """
    unknown = sorted(set(kwargs) - _OPTIONS)
    if unknown:
        raise ArgumentError(
            f"set_config has no option {', '.join(unknown)}; it takes {', '.join(sorted(_OPTIONS))}"
        )
    _recording.filename = str(kwargs.get("filename", _recording.filename))
    _recording.memory = bool(kwargs.get("profile_memory", _recording.memory))


def profiler_set_config(mode: str = "symbolic", filename: str = "profile.json") -> None:
    """Configure the profiler, as programs before MXNet 1.2 do.

    Args:
        mode: ignored.
        filename: path of the trace.
    """
    set_config(filename=filename)


def set_state(state: str = "stop", profile_process: str = "worker") -> None:
    """Start or stop recording.

    Args:
        state: "run" or "stop". A new run continues the trace unless it has been written; then it begins a new one.

    Raises:
        UnknownNameError: `state` is neither.
    """
    if state not in ("run", "stop"):
        raise UnknownNameError(f'state is {state!r}, expected "run" or "stop"')
    if state == "stop":
        _recording.stop()
    elif _recording.running is None:
        _recording.begin()


def profiler_set_state(state: str = "stop") -> None:
    """Start or stop recording, as programs before MXNet 1.2 do.

    Args:
        state: ``"run"`` or ``"stop"``.
    """
    set_state(state)


def pause(profile_process: str = "worker") -> None:
    """Pause recording.

    Args:
        profile_process: accepted as in MXNet and ignored, as there are no servers.
    """
    _recording.stop()


def resume(profile_process: str = "worker") -> None:
    """Resume recording.

    Args:
        profile_process: accepted as in MXNet and ignored, as there are no servers.
    """
    _recording.start()


def dump(finished: bool = True, profile_process: str = "worker") -> None:
    """Write the recording as a Chrome trace, which a browser's tracing page opens.

    A program that records and never calls this writes the trace at its end.

    Args:
        finished: True to stop recording; otherwise a running recording is paused and resumed.

    Raises:
        StateError: nothing was recorded.
    """
    running = _recording.running is not None
    _recording.stop()
    _recording.write()
    if running and not finished:
        _recording.start()


def dump_profile() -> None:
    """Write the recording, as programs before MXNet 1.2 do."""
    dump()


def dumps(reset: bool = False, format: str = "table", sort_by: str = "total", ascending: bool = False) -> str:
    """Return the totals of the recording by operator; a running recording continues.

    Args:
        reset: True to clear the totals; the trace keeps everything.
        format: "table" or "json".
        sort_by: "total", "avg", "min", "max" or "count".

    Raises:
        ArgumentError: `format` or `sort_by` is unknown.
    """
    if format not in ("table", "json"):
        raise ArgumentError(f'format is {format!r}, expected "table" or "json"')
    if sort_by not in _SORT:
        raise ArgumentError(f"sort_by is {sort_by!r}, expected one of {', '.join(_SORT)}")
    if _recording.running is not None:
        _recording.stop()
        _recording.start()
    rows: dict[str, list[float]] = {}
    for part in _recording.table:
        for row in part.key_averages():
            entry = rows.setdefault(row.key, [0, 0.0])
            entry[0] += row.count
            entry[1] += row.cpu_time_total
    column = {"total": 1, "count": 0}.get(sort_by)
    order = sorted(
        rows.items(),
        key=lambda item: item[1][column] if column is not None else item[1][1] / max(item[1][0], 1),
        reverse=not ascending,
    )
    counters = dict(_recording.counters)
    if reset:
        _recording.table.clear()
    if format == "json":
        table = {
            name: {"Count": int(n), "Total": t / 1e3, "Avg": t / 1e3 / max(n, 1)} for name, (n, t) in order
        }
        return json.dumps({"Time": table, "Unit": {"Time": "ms"}, "Counters": counters})
    lines = [
        "Profile Statistics",
        f"{'Name':<50} {'Total Count':>12} {'Time (ms)':>14} {'Avg Time (ms)':>14}",
    ]
    lines += [
        f"{name:<50} {int(n):>12} {t / 1e3:>14.4f} {t / 1e3 / max(n, 1):>14.4f}" for name, (n, t) in order
    ]
    lines += [f"{name:<50} {value:>12g}" for name, value in counters.items()]
    return "\n".join(lines) + "\n"


class Domain:
    """A name that groups tasks, frames, markers and counters.

    Args:
        name: prefix of their names.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name

    def new_task(self, name: str) -> Task:
        """Return a named range of time.

        Args:
            name: name in the trace.
        """
        return Task(self, name)

    def new_frame(self, name: str) -> Frame:
        """Return a named range of time, such as a batch.

        Args:
            name: name in the trace.
        """
        return Frame(self, name)

    def new_counter(self, name: str, value: float | None = None) -> Counter:
        """Return a number whose value is recorded.

        Args:
            name: name in the trace.
            value: first value, or None.
        """
        return Counter(self, name, value)

    def new_marker(self, name: str) -> Marker:
        """Return a marker of single moments.

        Args:
            name: name in the trace.
        """
        return Marker(self, name)


class _TimeRange:
    """A named range of time."""

    def __init__(self, label: str, name: str) -> None:
        self.name = name
        self._label = label
        self._open: Any = None

    def __str__(self) -> str:
        return self.name

    def start(self) -> None:
        """Begin the range."""
        self._open = torch.profiler.record_function(self._label)
        self._open.__enter__()

    def stop(self) -> None:
        """End the range."""
        if self._open is None:
            raise StateError(f"{self.name}: stop() without start()")
        self._open.__exit__(None, None, None)
        self._open = None


class Task(_TimeRange):
    """A named range of time in a domain.

    Args:
        domain: domain of the name.
        name: name in the trace.
    """

    def __init__(self, domain: Domain, name: str) -> None:
        super().__init__(f"{domain}::{name}", name)


class Frame(_TimeRange):
    """A named range of time in a domain, such as a batch.

    Args:
        domain: domain of the name.
        name: name in the trace.
    """

    def __init__(self, domain: Domain, name: str) -> None:
        super().__init__(f"{domain}::{name}", name)


class Event(_TimeRange):
    """A named range of time without a domain.

    Args:
        name: name in the trace.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, name)


class Counter:
    """A number whose value is recorded; `dumps` shows its last value.

    Args:
        domain: domain of the name.
        name: name in the trace.
    """

    def __init__(self, domain: Domain, name: str, value: float | None = None) -> None:
        self.name = name
        self._label = f"{domain}::{name}"
        self.set_value(0 if value is None else value)

    def __str__(self) -> str:
        return self.name

    def set_value(self, value: float) -> None:
        """Set the number.

        Args:
            value: new value.
        """
        given: Any = value
        if not isinstance(given, Real):
            raise SignatureError(f"Counter {self.name}: value is {value!r}, expected a number")
        _recording.counters[self._label] = value

    def increment(self, delta: float = 1) -> None:
        """Add to the number.

        Args:
            delta: the difference.
        """
        _recording.counters[self._label] += delta

    def decrement(self, delta: float = 1) -> None:
        """Subtract from the number.

        Args:
            delta: the difference.
        """
        _recording.counters[self._label] -= delta

    def __iadd__(self, delta: float) -> Counter:
        self.increment(delta)
        return self

    def __isub__(self, delta: float) -> Counter:
        self.decrement(delta)
        return self


class Marker:
    """A marker of single moments.

    Args:
        domain: domain of the name.
        name: name in the trace.
    """

    def __init__(self, domain: Domain, name: str) -> None:
        self.name = name
        self._label = f"{domain}::{name}"

    def mark(self, scope: str = "process") -> None:
        """Record the present moment."""
        with torch.profiler.record_function(self._label):
            pass


__all__ = lazy.own_names(vars())
lazy.publish(__name__, __all__)
