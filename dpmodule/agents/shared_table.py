"""`SharedTable`: a table of numbers in shared memory, for copies of an agent in other processes."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, MutableMapping
from multiprocessing import reduction
from typing import Any, NoReturn

try:
    import fcntl
except ImportError:  # Windows: workers are threads there
    fcntl = None  # type: ignore[assignment]

from ..base import ArgumentError, DTypeError
from ..devices.shared_memory import shared_bytes

__all__ = ["SharedTable"]

_BYTES = 8
_FORMATS = {int: "q", bool: "q", float: "d"}


class SharedTable(MutableMapping[Any, Any]):
    """A table of numbers that every process sees which has it, from an agent's `share` or otherwise.

    Its keys, and the type of what stands under each, are those that it was made with. Reading a value and writing one
    takes no lock. Whoever computes a new value from the old one, as in ``table["count"] += 1``, does so under
    `get_lock` where another worker may do the same.

    Args:
        init_dict: the keys, and what stands under them at first: ints of 64 bits, floats or bools.

    Raises:
        DTypeError: a value is of another type.
        ArgumentError: a number has more than 64 bits.
        MemoryError: there is no shared memory left.

    Example:
        >>> table = SharedTable({"count": 0, "loss": 0.5})
        >>> with table.get_lock():
        ...     table["count"] += 1
        >>> table
        SharedTable({'count': 1, 'loss': 0.5})
    """

    def __init__(self, init_dict: Mapping[Any, Any] | None = None) -> None:
        given = dict(init_dict or {})
        for key, value in given.items():
            if type(value) not in _FORMATS:
                raise DTypeError(
                    f"SharedTable: {key!r} is {value!r} of type {type(value).__name__}, expected an int, a float or a "
                    "bool; larger things are shared as torch tensors, by share_memory_()"
                )
        self._places = {key: (place, type(value)) for place, (key, value) in enumerate(given.items())}
        self._memory: Any = shared_bytes("a SharedTable", _BYTES * max(len(given), 1))
        self._lock = _Lock()
        self._open()
        self.update(given)

    def _open(self) -> None:
        plain = memoryview(self._memory.numpy()).cast("B")
        self._views = {kind: plain.cast(code) for kind, code in _FORMATS.items()}  # type: ignore[call-overload]

    def __getitem__(self, key: Any) -> Any:
        if key not in self._places:
            self._refuse(key)
        place, kind = self._places[key]
        return kind(self._views[kind][place])

    def __setitem__(self, key: Any, value: Any) -> None:
        if key not in self._places:
            self._refuse(key)
        place, kind = self._places[key]
        if type(value) is not kind:
            raise DTypeError(
                f"SharedTable: {key!r} is of type {kind.__name__} and stays so, got {value!r} of type "
                f"{type(value).__name__}"
            )
        try:
            self._views[kind][place] = value
        except ValueError as error:
            raise ArgumentError(f"SharedTable: {key!r} is {value!r}, expected at most 64 bits") from error

    def __delitem__(self, key: Any) -> None:
        raise ArgumentError(
            f"SharedTable: {key!r} cannot be deleted, since other processes would not know of it"
        )

    def _refuse(self, key: Any) -> NoReturn:
        known = ", ".join(map(repr, self._places)) or "none"
        raise KeyError(
            f"SharedTable has no key {key!r}; its keys are those that it was made with, as other processes would not "
            f"know of others: {known}"
        )

    def __iter__(self) -> Iterator[Any]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __repr__(self) -> str:
        return f"SharedTable({dict(self)!r})"

    def get_lock(self) -> _Lock:
        """Return a lock for a ``with`` statement, which one worker at a time holds, and may take again inside.

        The system takes it from a process that dies.
        """
        return self._lock

    def __deepcopy__(self, memo: Any) -> SharedTable:
        return self  # a copy would be a table that nobody else sees

    def __getstate__(self) -> tuple[Any, ...]:
        return self._places, self._memory, self._lock

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._places, self._memory, self._lock = state
        self._open()


class _Lock:
    """A lock between processes, and between the threads of each: of a file without a name."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile() as file:
            self._fd = os.dup(file.fileno())
        self._own = threading.RLock()
        self._depth = 0

    def __enter__(self) -> None:
        self._own.acquire()
        self._depth += 1
        if self._depth == 1 and fcntl is not None:
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX)
            except BaseException:  # Ctrl-C
                self._leave()
                raise

    def __exit__(self, *error: object) -> None:
        if self._depth == 1 and fcntl is not None:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)
        self._leave()

    def _leave(self) -> None:
        self._depth -= 1
        self._own.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (reduction.DupFd(self._fd),)

    def __del__(self) -> None:
        os.close(self._fd)


def _received(fd: Any) -> _Lock:
    made = _Lock.__new__(_Lock)
    made._fd, made._own, made._depth = fd.detach(), threading.RLock(), 0
    return made
