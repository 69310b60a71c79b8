"""`AttrScope`: attributes of all symbols created inside a ``with`` block."""

from __future__ import annotations

import threading
from collections import defaultdict
from types import TracebackType
from typing import ClassVar

from ._core import lazy
from .base import ArgumentError

__all__ = ["BARE_KEYS", "AttrScope", "bare_suffix", "current", "is_free", "stored_key", "subgraph_name"]

lazy.publish(__name__, __all__)

BARE_KEYS = frozenset({"ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage"})
"""Attributes that users write without the double underscores of their stored form."""


def stored_key(key: str) -> str:
    """Return the stored name of an attribute (``lr_mult`` becomes ``__lr_mult__``).

    Args:
        key: name of the attribute as a program writes it.
    """
    return f"__{key}__" if key in BARE_KEYS else key


def is_free(key: str) -> bool:
    """Return True if an attribute has the form ``__x__``, which every node takes.

    Args:
        key: name of the attribute as it is stored.
    """
    return key.startswith("__") and key.endswith("__")


def bare_suffix(key: str) -> str | None:
    """Return the bare key that an attribute of the old form ``weight_lr_mult`` ends with; None for other keys.

    Args:
        key: name of the attribute as a program writes it.
    """
    return next((bare for bare in BARE_KEYS if key.endswith("_" + bare)), None)


class _CurrentScope(type):
    """Metaclass that defines MXNet's class attribute `AttrScope.current`, one per thread."""

    @property
    def current(cls) -> AttrScope:
        """The scope that new symbols of this thread take attributes from; may be set."""
        return current()

    @current.setter
    def current(cls, scope: AttrScope) -> None:
        AttrScope._scope.current = scope


class AttrScope(metaclass=_CurrentScope):
    """Attach string attributes to all symbols created inside the block; inner blocks add to outer ones.

    Args:
        kwargs: attribute names and string values, such as ``ctx_group="dev1"``.

    Raises:
        ArgumentError: a value is not a string.
    """

    _scope: ClassVar[threading.local] = threading.local()
    _subgraph_names: ClassVar[defaultdict[str, int]] = defaultdict(int)

    def __init__(self, **kwargs: str) -> None:
        for key, value in kwargs.items():
            if not isinstance(value, str):
                raise ArgumentError(f"AttrScope: {key} is {value!r}, expected a string")
        self._attr = {stored_key(key): value for key, value in kwargs.items()}
        self._outer: list[tuple[AttrScope, dict[str, str]]] = []

    def get(self, attr: dict[str, str] | None) -> dict[str, str]:
        """Return the scope's attributes overridden by `attr`.

        Args:
            attr: attributes of the node itself, or None.
        """
        return {**self._attr, **attr} if attr else dict(self._attr)

    def __enter__(self) -> AttrScope:
        outer = current()
        self._outer.append((outer, self._attr))
        self._attr = outer.get(self._attr)
        AttrScope._scope.current = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        AttrScope._scope.current, self._attr = self._outer.pop()


def subgraph_name(text: str) -> str:
    """Return a name for a new subgraph: the name of the enclosing subgraph, `text` and a number.

    Args:
        text: kind of the subgraph, such as "foreach".
    """
    outer = current().get(None).get("__subgraph_name__", "")
    name = f"{outer}${text}" if outer else text
    number = AttrScope._subgraph_names[name]
    AttrScope._subgraph_names[name] = number + 1
    return f"{name}{number}"


def current() -> AttrScope:
    """Return the attribute scope of this thread."""
    if not hasattr(AttrScope._scope, "current"):
        AttrScope._scope.current = AttrScope()
    scope: AttrScope = AttrScope._scope.current
    return scope
