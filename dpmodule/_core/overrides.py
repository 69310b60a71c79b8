"""Methods that a program replaces, in a subclass or in an object."""

from __future__ import annotations

from typing import Any

_PACKAGE = f"{__name__.partition('.')[0]}."


def overrides(instance: object, cls: type, *methods: str) -> bool:
    """Return True if a subclass of `cls`, or the object itself, replaces one of the methods."""
    kind = type(instance)
    if not vars(instance).keys().isdisjoint(methods):
        return True
    return kind is not cls and any(getattr(kind, name) is not getattr(cls, name) for name in methods)


def is_users(method: Any) -> bool:
    """Return True if a method is defined outside of this package."""
    return not method.__module__.startswith(_PACKAGE)
