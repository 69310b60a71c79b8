"""`overrides`: whether an object has methods of its own in place of those of a class."""

from __future__ import annotations


def overrides(instance: object, cls: type, *methods: str) -> bool:
    """Return True if a subclass of `cls`, or the object itself, replaces one of the methods."""
    kind, own = type(instance), vars(instance)
    return any(name in own or getattr(kind, name) is not getattr(cls, name) for name in methods)
