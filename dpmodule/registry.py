"""One registry class for optimizers, initializers, metrics and whatever else is made by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from .base import ArgumentError

__all__ = ["Registry"]

T = TypeVar("T")


class Registry(Generic[T]):
    """Classes by lower-case name.

    Args:
        base: the class that every registered one derives from.
        kind: what the entries are called in messages, such as "optimizer".
    """

    def __init__(self, base: type[T], kind: str) -> None:
        self._base = base
        self._kind = kind
        self._classes: dict[str, type[T]] = {}

    def register(self, klass: type[T], *aliases: str) -> type[T]:
        """Register a class under its own name and further names; a later class replaces an earlier one.

        Raises:
            ArgumentError: `klass` does not derive from the registry's base.
        """
        if not (isinstance(klass, type) and issubclass(klass, self._base)):
            raise ArgumentError(f"register: {klass!r} is not a subclass of {self._base.__name__}")
        for name in (klass.__name__, *aliases):
            self._classes[name.lower()] = klass
        return klass

    def alias(self, *aliases: str) -> Callable[[type[T]], type[T]]:
        """Return a class decorator that registers under further names."""
        return lambda klass: self.register(klass, *aliases)

    def names(self) -> Iterable[str]:
        """Return all registered names, sorted."""
        return sorted(self._classes)

    @property
    def classes(self) -> Mapping[str, type[T]]:
        """All registered classes by lower-case name, as a view that follows later registrations."""
        return MappingProxyType(self._classes)

    def find(self, name: str) -> type[T]:
        """Return the class of a name.

        Raises:
            ArgumentError: nothing has this name.
        """
        found = self._classes.get(name.lower())
        if found is None:
            raise ArgumentError(f"unknown {self._kind} {name!r}; expected one of {', '.join(self.names())}")
        return found

    def create(self, spec: Any, *args: Any, **kwargs: Any) -> T:
        """Make an instance from a name or a configuration; pass an instance through.

        Args:
            spec: an instance, a name, a dictionary of a name under the registry's kind and the arguments beside it,
                or either as JSON text: ``["name", {arguments}]`` or ``{"<kind>": "name", **arguments}``.
            *args: arguments of the class, beside a name.
            **kwargs: arguments of the class; they go before those of a configuration.

        Raises:
            ArgumentError: `spec` is none of these, or names nothing.
        """
        if isinstance(spec, self._base):
            if args or kwargs:
                raise ArgumentError(f"{self._kind}: further arguments make no sense beside an instance")
            return spec
        if isinstance(spec, str) and spec.startswith(("[", "{")):
            spec = self._decoded(spec)
        if isinstance(spec, Mapping):
            stored = dict(spec)
            spec = stored.pop(self._kind, None)
            kwargs = {**stored, **kwargs}
        if not isinstance(spec, str):
            raise ArgumentError(
                f"{self._kind} is {spec!r}, expected an instance of {self._base.__name__}, "
                f"or a name: {', '.join(self.names())}"
            )
        return self.find(spec)(*args, **kwargs)

    def _decoded(self, text: str) -> dict[str, Any]:
        """Return the dictionary that a JSON text stands for."""
        try:
            value = json.loads(text)
            if isinstance(value, list):
                name, arguments = value
                value = {self._kind: name, **arguments}
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                f'{self._kind} is {text!r}, expected JSON of the form ["name", {{arguments}}] '
                f'or {{"{self._kind}": "name", ...}}'
            ) from error
        return dict(value)
