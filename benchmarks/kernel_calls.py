"""Recording and replay of the kernels that a program of dpmodule calls, without the code between them.

A kernel is an operator of torch's dispatcher below autograd, or a function of the native extension that receives
addresses of tensors. A recording is a list of calls and of the memory of their tensors. It keeps no tensor alive, so it
does not change the program. The replay uses its own memory with the recorded contents; results are new memory, which is
freed after its last reader.
"""

from __future__ import annotations

import ctypes
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from dpmodule import native

__all__ = ["Recording", "Replay", "recorded"]

_UNWRITTEN = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided")
"""Operators with uninitialized results."""
_BINDINGS: Mapping[Any, Callable[..., torch.Tensor]] = {
    torch.ops.aten.new_empty.default: torch.Tensor.new_empty
}
"""Functions that parse sizes in half the time of the operators."""


@dataclass(frozen=True)
class _Window:
    """Memory layout of a tensor.

    Attributes:
        block: number of its memory block, in the order of first use.
        dtype: type of the numbers.
        shape: the tensor's shape.
        strides: the tensor's strides.
        offset: number of numbers before the first one.
    """

    block: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def place(self) -> tuple[int, torch.dtype, int]:
        """Offset of the first number."""
        return self.block, self.dtype, self.offset

    def on(self, storage: torch.UntypedStorage) -> torch.Tensor:
        """Return a tensor with this layout in a memory block."""
        return torch.empty(0, dtype=self.dtype).set_(storage, self.offset, self.shape, self.strides)


@dataclass(frozen=True)
class _Address:
    """Placeholder of the address of a tensor's first number."""

    window: _Window


@dataclass(frozen=True)
class _Call:
    """A call of a kernel, with windows and addresses instead of tensors and numbers.

    Attributes:
        name: name of the kernel.
        function: the called function.
        args: its arguments.
        kwargs: its arguments by name.
        result: its result.
        writes: blocks whose contents it may have changed.
        looks: True if it only returned views of existing memory and wrote nothing.
        grad: True if gradients were recorded, which determines what some kernels save.
    """

    name: str
    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    result: Any
    writes: frozenset[int]
    looks: bool
    grad: bool


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a value, or the elements of lists and tuples, mapped by `change`."""
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(each, change) for each in value)
    return change(value)


def _windows(value: Any) -> Iterator[_Window]:
    """Yield the windows in a value, including those of addresses."""
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from _windows(each)
    elif isinstance(value, _Window):
        yield value
    elif isinstance(value, _Address):
        yield value.window


def _copied(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """Return a copy of memory that is not recorded."""
    size = storage.nbytes()
    made = torch.UntypedStorage(size)
    ctypes.memmove(made.data_ptr(), storage.data_ptr(), size)
    return made


class _Block:
    """A memory block that calls used, held by a weak reference.

    Args:
        storage: the memory.
        first: its contents before its first use; None if a call created it.

    Attributes:
        last: the window of its last use.
    """

    def __init__(self, storage: torch.UntypedStorage, first: torch.UntypedStorage | None) -> None:
        self._watch = StorageWeakRef(storage)
        self.first = first
        self.last: _Window | None = None

    def now(self) -> torch.UntypedStorage | None:
        """Return the memory, None if it is freed."""
        found: torch.UntypedStorage | None = torch.UntypedStorage._new_with_weak_ptr(self._watch.cdata)
        return found


class Recording(TorchDispatchMode):
    """Mode that records calls of kernels.

    Attributes:
        calls: the calls.
        blocks: the memory blocks.
        results: a window on each written block that outlives the recording, and its contents.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_Call] = []
        self.blocks: list[_Block] = []
        self.results: list[tuple[_Window, torch.Tensor]] = []
        self._numbers: dict[int, int] = {}
        self._addresses: dict[int, _Window] = {}

    @property
    def written(self) -> frozenset[int]:
        """Blocks whose contents may have changed."""
        return frozenset[int]().union(*(call.writes for call in self.calls))

    def _window(self, made: bool, value: Any) -> Any:
        """Return the window of a tensor; return other values, and tensors of private layouts, unchanged.

        Args:
            made: True if a call created unknown memory.
            value: the value.
        """
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return value
        storage = value.untyped_storage()
        number = self._numbers.get(storage._cdata)
        if number is None:
            number = self._numbers[storage._cdata] = len(self.blocks)
            self.blocks.append(_Block(storage, None if made else _copied(storage)))
        return _Window(number, value.dtype, tuple(value.shape), tuple(value.stride()), value.storage_offset())

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call an operator, and record it."""
        given = _mapped(tuple(args), partial(self._window, False))
        named = {name: _mapped(value, partial(self._window, False)) for name, value in (kwargs or {}).items()}
        known = len(self.blocks)
        found = func(*args, **(kwargs or {}))
        result = _mapped(found, partial(self._window, True))
        schema = func._schema
        name = schema.name.removeprefix("aten::")
        by_name = {**dict(zip((each.name for each in schema.arguments), given)), **named}
        changed = [by_name.get(a.name) for a in schema.arguments if a.alias_info and a.alias_info.is_write]
        new = [window for window in _windows(result) if window.block >= known]
        looks = not changed and not new and next(_windows(result), None) is not None
        writes = frozenset(window.block for window in _windows([changed, [] if name in _UNWRITTEN else new]))
        function, grad = _BINDINGS.get(func, func), torch.is_grad_enabled()
        self._note(_Call(name, function, given, named, result, writes, looks, grad))
        return found

    def data_ptr(self, original: Callable[[torch.Tensor], int], tensor: torch.Tensor) -> int:
        """Return the address of a tensor, and record its owner."""
        found = original(tensor)
        self._addresses[found] = self._window(False, tensor)
        return found

    def native(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function of the extension, and record it if it receives addresses of tensors."""

        def placed(value: Any) -> Any:
            is_address = type(value) is int and value in self._addresses
            return _Address(self._addresses[value]) if is_address else value

        given = _mapped(args, placed)
        found = function(*args)
        writes = frozenset(window.block for window in _windows(given))
        if writes:
            self._note(_Call(f"native.{name}", function, given, {}, None, writes, looks=False, grad=False))
        return found

    def _note(self, call: _Call) -> None:
        self.calls.append(call)
        for window in _windows([list(call.args), list(call.kwargs.values()), call.result]):
            self.blocks[window.block].last = window

    def end(self) -> None:
        """Store the written blocks that still exist."""
        for number in sorted(self.written):
            block = self.blocks[number]
            storage = block.now()
            if storage is not None and block.last is not None:
                self.results.append((block.last, block.last.on(storage).clone()))


@contextmanager
def recorded() -> Iterator[Recording]:
    """Record the kernels that this thread calls in the block."""
    recording, original = Recording(), torch.Tensor.data_ptr
    functions = inspect.getmembers(native.core, inspect.isbuiltin) if native.core is not None else []
    with ExitStack() as stack:
        for name, function in functions:
            patched = mock.patch.object(native.core, name, partial(recording.native, name, function))
            stack.enter_context(patched)
        asked = lambda tensor: recording.data_ptr(original, tensor)  # noqa: E731  # a partial is not a method
        stack.enter_context(mock.patch.object(torch.Tensor, "data_ptr", asked))
        stack.enter_context(recording)
        yield recording
    recording.end()


@dataclass(frozen=True)
class _Line:
    """A line of the replay function.

    Attributes:
        call: the call.
        text: the line.
        reads: variables that it reads.
        made: variables that it assigns.
    """

    call: _Call
    text: str
    reads: frozenset[str]
    made: Sequence[str]


class _Writer:
    """Writer of one Python function with the calls of a recording.

    Args:
        recording: the recording.

    Attributes:
        names: globals of the function.
        given: tensors that it receives, and their names.
        lines: its lines, without unused views.
    """

    def __init__(self, recording: Recording) -> None:
        self._outside = {number for number, block in enumerate(recording.blocks) if block.first is not None}
        self.names: dict[str, Any] = {"clock": time.perf_counter, "record_gradients": torch.set_grad_enabled}
        self.given: dict[_Window, str] = {}
        self._constants: dict[Any, str] = {}
        self._current: dict[_Window, str] = {}
        self._places: dict[tuple[Any, ...], _Window] = {}
        self._reads: set[str] = set()
        lines = [
            self._line(call)
            for call in recording.calls
            if not (call.looks and all(map(self._is_there, _windows(call.result))))
        ]
        self._results = [self._variable(window) for window, _ in recording.results]
        self.lines, self._gone = self._used(lines)

    def _is_there(self, window: _Window) -> bool:
        return window.block in self._outside or window in self._current

    def _constant(self, value: Any) -> str:
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        key = repr(value) if isinstance(value, (float, list, tuple)) else id(value)
        name = self._constants.setdefault(key, f"c{len(self._constants)}")
        self.names.setdefault(name, value)
        return name

    def _variable(self, window: _Window) -> str:
        """Return the name of the tensor of a window."""
        if window.block in self._outside:
            return self.given.setdefault(window, f"g{len(self.given)}")
        self._reads.add(self._current[window])
        return self._current[window]

    def _text(self, value: Any) -> str:
        if isinstance(value, _Window):
            return self._variable(value)
        if isinstance(value, _Address):
            return f"{self._variable(self._places.get(value.window.place, value.window))}.data_ptr()"
        if isinstance(value, (list, tuple)) and next(_windows(value), None) is not None:
            inside = "".join(f"{self._text(each)}, " for each in value)
            return f"[{inside}]" if isinstance(value, list) else f"({inside})"
        return self._constant(value)

    def _target(self, result: Any, made: list[str]) -> str:
        """Return the target of a result."""
        if isinstance(result, (list, tuple)) and result:
            return "(" + "".join(f"{self._target(each, made)}, " for each in result) + ")"
        if isinstance(result, _Window) and not self._is_there(result):
            made.append(f"v{len(self._current)}")
            self._current[result] = made[-1]
            self._places.setdefault(result.place, result)
            return made[-1]
        return "_"

    def _line(self, call: _Call) -> _Line:
        self._reads = set()
        args = [self._text(each) for each in call.args]
        args += [f"{name}={self._text(value)}" for name, value in call.kwargs.items()]
        made: list[str] = []
        reads, target = frozenset(self._reads), self._target(call.result, made)
        text = f"{self._constant(call.function)}({', '.join(args)})"
        return _Line(call, f"{target} = {text}" if made else text, reads, made)

    def _used(self, lines: Sequence[_Line]) -> tuple[list[_Line], list[list[str]]]:
        """Return the required lines, and the variables that are unused after each."""
        needed, found = set(self._results), []
        for line in reversed(lines):
            if not line.call.looks or needed.intersection(line.made):
                gone = {*line.reads, *line.made} - needed
                found.append((line, sorted(gone)))
                needed |= gone
        found.reverse()
        return [line for line, _ in found], [gone for _, gone in found]

    def source(self, timed: bool) -> str:
        """Return the function, `run(given)`, which returns the results.

        Args:
            timed: True to also pass `tick`, which it calls with the time after each call.
        """
        body, grad = ["(" + "".join(f"{name}, " for name in self.given.values()) + ") = given"], False
        for line, gone in zip(self.lines, self._gone):
            if line.call.grad is not grad:
                grad = line.call.grad
                body.append(f"record_gradients({grad})")
            body.append(line.text)
            if gone:
                body.append(f"del {', '.join(gone)}")
            if timed:
                body.append("tick(clock())")
        body.append(f"return [{', '.join(self._results)}]")
        return "\n    ".join(["def run(given, tick=None):", *body]) + "\n"


class Replay:
    """Replay of a recording.

    Args:
        recording: the calls.

    Attributes:
        called: names of the kernels in order; views that no kernel reads, or of memory from before the recording, are
            created beforehand.
    """

    def __init__(self, recording: Recording) -> None:
        writer = _Writer(recording)
        self.called = [line.call.name for line in writer.lines]
        self._run, self._timed = _compiled(writer, timed=False), _compiled(writer, timed=True)
        self._expected = [copy for _, copy in recording.results]
        found = {n: block.first for n, block in enumerate(recording.blocks) if block.first is not None}
        own = {number: _copied(first) for number, first in found.items()}
        self._given = [window.on(own[window.block]) for window in writer.given]
        self._changed = [(own[number], found[number]) for number in recording.written & found.keys()]

    def restore(self) -> None:
        """Restore the contents of memory from before the recording."""
        for storage, first in self._changed:
            storage.copy_(first)

    def run(self) -> list[torch.Tensor]:
        """Make all calls; return the written tensors that still exist."""
        with torch.no_grad():
            return self._run(self._given)

    def times(self) -> list[float]:
        """Make all calls; return the seconds of each, including reading the clock."""
        ticks = [time.perf_counter()]
        with torch.no_grad():
            self._timed(self._given, ticks.append)
        return [after - before for before, after in zip(ticks, ticks[1:])]

    def apart(self) -> float:
        """Make all calls; return the difference of the written tensors from the recorded ones.

        Returns:
            The largest difference relative to the largest number of its tensor; NaN if there is one.
        """
        self.restore()
        found = [
            (a.double() - b.double()).abs().max() / b.double().abs().max().clamp_min(1e-30)
            for a, b in zip(self.run(), self._expected, strict=True)
            if b.numel()
        ]
        return float(torch.stack(found).max()) if found else 0.0


def _compiled(writer: _Writer, timed: bool) -> Callable[..., list[torch.Tensor]]:
    """Return the compiled function of a writer."""
    names = dict(writer.names)
    exec(compile(writer.source(timed), "<kernels>", "exec"), names)
    run: Callable[..., list[torch.Tensor]] = names["run"]
    return run
