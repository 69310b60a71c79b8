"""What copies in several processes share: counters that hand out numbers, and tables of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Any

import torch

from ..base import ArgumentError, DTypeError
from ..devices.shared_memory import shared_bytes
from ..streams.shared_counter import ProcessLock, SharedCounter


class LocalCounter:
    """Numbers from 0 on, for the copies in one process and thread."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def take(self) -> int:
        """Return the next number, and go on to the one behind it."""
        number = self._next
        self._next = number + 1
        return number

    def peek(self) -> int:
        """Return the next number."""
        return self._next

    def reset(self, number: int = 0) -> None:
        """Begin at 0 again, or at another number."""
        self._next = number

    @property
    def value(self) -> int:
        """The number that was taken last, -1 before the first; ParlAI's teachers read and set it."""
        return self._next - 1

    @value.setter
    def value(self, number: int) -> None:
        self._next = number + 1

    def get_lock(self) -> AbstractContextManager[None]:
        """Return what a ``with`` statement holds while `value` is changed; nothing has to be locked here."""
        return nullcontext()

    def __deepcopy__(self, memo: Any) -> LocalCounter:
        return self


def counter_for(workers: int) -> LocalCounter | SharedCounter:
    """Return a counter for a number of workers."""
    return SharedCounter() if workers > 1 else LocalCounter()


_BYTES = 8
_FORMATS = {int: "q", bool: "q", float: "d"}


class SharedTable(MutableMapping[Any, Any]):
    """A table of numbers and tensors that every process sees which has it, from an agent's `share` or otherwise.

    Reading a value and writing one takes no lock. Whoever computes a new value from the old one, as in
    ``table["count"] += 1``, does so under `get_lock` where another worker may do the same.

    What stands under a key keeps its type; a tensor is moved to shared memory, keeps its shape and element type, and is
    written in place. A key that is added or deleted later is so in this process, and in copies that are made of the
    table afterwards.

    Args:
        init_dict: the keys, and what stands under them at first: ints of 64 bits, floats, bools or torch tensors.

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
        self._numbers: dict[Any, tuple[int, int, type]] = {}
        self._tensors: dict[Any, torch.Tensor] = {}
        self._memories: list[torch.Tensor] = []
        self._views: list[dict[type, Any]] = []
        self._lock = ProcessLock()
        values = dict(init_dict or {})
        self._add({key: value for key, value in values.items() if not isinstance(value, torch.Tensor)})
        self.update(values)

    def _add(self, numbers: Mapping[Any, Any]) -> None:
        """Make room for numbers under new keys, in one piece of shared memory."""
        for key, value in numbers.items():
            if type(value) not in _FORMATS:
                raise DTypeError(
                    f"SharedTable: {key!r} is {value!r} of type {type(value).__name__}, expected an int, a float, a "
                    "bool or a torch tensor"
                )
        if numbers:
            block = len(self._memories)
            self._open(shared_bytes("a SharedTable", _BYTES * len(numbers)))
            self._numbers.update(
                {key: (block, place, type(value)) for place, (key, value) in enumerate(numbers.items())}
            )

    def _open(self, memory: torch.Tensor) -> None:
        numbers: Any = memory.numpy()
        plain = memoryview(numbers).cast("B")
        self._memories.append(memory)
        self._views.append({kind: plain.cast(code) for kind, code in _FORMATS.items()})  # type: ignore[call-overload]

    def __getitem__(self, key: Any) -> Any:
        number = self._numbers.get(key)
        if number is None:
            return self._tensor(key)
        block, place, kind = number
        return kind(self._views[block][kind][place])

    def _tensor(self, key: Any) -> torch.Tensor:
        if key not in self._tensors:
            known = ", ".join(map(repr, self)) or "none"
            raise KeyError(f"SharedTable has no key {key!r}; its keys in this process: {known}")
        return self._tensors[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        if key in self._tensors or isinstance(value, torch.Tensor) and key not in self._numbers:
            self._set_tensor(key, value)
            return
        is_new = key not in self._numbers
        if is_new:
            self._add({key: value})
        block, place, kind = self._numbers[key]
        if type(value) is not kind:
            raise DTypeError(
                f"SharedTable: {key!r} is of type {kind.__name__} and stays so, got {value!r} of type "
                f"{type(value).__name__}; delete the key first to change the type"
            )
        try:
            self._views[block][kind][place] = value
        except ValueError as error:
            if is_new:
                del self._numbers[key]
            raise ArgumentError(f"SharedTable: {key!r} is {value!r}, expected at most 64 bits") from error

    def _set_tensor(self, key: Any, value: Any) -> None:
        own = self._tensors.get(key)
        if own is None:
            value.share_memory_()
            self._tensors[key] = value
        elif own is not value:
            if not isinstance(value, torch.Tensor) or _form(value) != _form(own):
                raise DTypeError(
                    f"SharedTable: {key!r} is {_form(own)} and stays so, got {_form(value)}; delete the key first to "
                    "change it"
                )
            with torch.no_grad():
                own.copy_(value)

    def __delitem__(self, key: Any) -> None:
        if self._numbers.pop(key, None) is None:
            self._tensor(key)
            del self._tensors[key]

    def __iter__(self) -> Iterator[Any]:
        return chain(self._numbers, self._tensors)

    def __contains__(self, key: object) -> bool:
        return key in self._numbers or key in self._tensors

    def __len__(self) -> int:
        return len(self._numbers) + len(self._tensors)

    def __repr__(self) -> str:
        return f"SharedTable({dict(self)!r})"

    def get_lock(self) -> ProcessLock:
        """Return a lock for a ``with`` statement, which one worker at a time holds, and may take again inside.

        The system takes it from a process that dies.
        """
        return self._lock

    def __deepcopy__(self, memo: Any) -> SharedTable:
        return self  # a copy would be a table that nobody else sees

    def __getstate__(self) -> tuple[Any, ...]:
        return self._numbers, self._tensors, self._memories, self._lock

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._numbers, self._tensors, memories, self._lock = state
        self._memories, self._views = [], []
        for memory in memories:
            self._open(memory)


def _form(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return f"{value!r} of type {type(value).__name__}"
    return f"a tensor of shape {tuple(value.shape)} and {value.dtype}"
