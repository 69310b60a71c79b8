"""`Scope`: the parameters that programs of one startup program share, and the names given in them."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from ..context import cpu
from ..params import ParamStore


class NameCounts:
    """Counts names by their first part."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def generate(self, key: str) -> str:
        """Return ``key_0``, then ``key_1``, and so on."""
        number = self._counts.get(key, 0)
        self._counts[key] = number + 1
        return f"{key}_{number}"


class Scope:
    """What programs share that were made under one startup program."""

    def __init__(self) -> None:
        self.store = ParamStore([cpu()])
        self.names = NameCounts()
        self.runs: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
