"""One registry class for optimizers, initializers, metrics and whatever else is made by name."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

from ._core import lazy
from .base import ArgumentError, SignatureError, did_you_mean

__all__ = ["Registry", "get_alias_func", "get_create_func", "get_register_func", "get_registry"]

lazy.publish(__name__, __all__)

T = TypeVar("T")

_registries: dict[type, Registry[Any]] = {}
"""The registry of each base class, for code written for MXNet, which knows them by that."""


class Registry(Generic[T]):
    """Classes by lower-case name.

    Args:
        base: the class that every registered one derives from.
        kind: what the entries are called in messages, such as "optimizer".
        unlisted: names that messages do not offer, besides those that begin with an underscore.
    """

    def __init__(self, base: type[T], kind: str, unlisted: Iterable[str] = ()) -> None:
        self._base = base
        self._kind = kind
        self._unlisted = frozenset(unlisted)
        self._classes: dict[str, type[T]] = {}
        self._later: dict[str, str] = {}
        _registries.setdefault(base, self)

    def register(self, klass: type[T], *aliases: str) -> type[T]:
        """Register a class under its own name and further names; a later class replaces an earlier one.

        Args:
            klass: a subclass of the registry's base.
            *aliases: further names, in any case of letters.

        Raises:
            ArgumentError: `klass` does not derive from the registry's base.
        """
        if not (isinstance(klass, type) and issubclass(klass, self._base)):
            raise ArgumentError(f"register: {klass!r} is not a subclass of {self._base.__name__}")
        for name in (klass.__name__, *aliases):
            name = name.lower()
            if name in self._classes and self._later.get(name) == klass.__module__:
                continue  # a user's class took the name before the module was imported
            self._classes[name] = klass
        return klass

    def add_later(self, package: str, table: Mapping[str, str]) -> None:
        """Name classes that register themselves when their module is imported: when one of them is first asked for.

        Args:
            package: what the modules are in.
            table: modules, and the names that their classes are registered under, with blanks between.
        """
        for module, names in table.items():
            self._later.update(dict.fromkeys(names.lower().split(), f"{package}.{module}"))

    def alias(self, *aliases: str) -> Callable[[type[T]], type[T]]:
        """Return a class decorator that registers under further names.

        Args:
            *aliases: the names, in any case of letters.
        """
        return lambda klass: self.register(klass, *aliases)

    def names(self) -> Iterable[str]:
        """Return all registered names, sorted."""
        return sorted({*self._classes, *self._later})

    def offered(self) -> list[str]:
        """Return the names that are shown to users, sorted."""
        return [name for name in self.names() if name[:1] != "_" and name not in self._unlisted]

    @property
    def classes(self) -> Mapping[str, type[T]]:
        """All registered classes by lower-case name, as a view that follows later registrations."""
        return _Classes(self)

    def get(self, name: str) -> type[T] | None:
        """Return the class of a name in lower case, None if nothing has this name."""
        if name not in self._classes and name in self._later:
            import_module(self._later[name])
        return self._classes.get(name)

    def find(self, name: str) -> type[T]:
        """Return the class of a name.

        Args:
            name: a name in any case of letters.

        Raises:
            ArgumentError: nothing has this name.
        """
        found = self.get(name.lower())
        if found is None:
            offered = self.offered()
            hint = did_you_mean(name.lower(), offered)
            raise ArgumentError(f"unknown {self._kind} {name!r}; expected one of {', '.join(offered)}{hint}")
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
            SignatureError: the class does not take these arguments, or wants others.
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
                f"or a name: {', '.join(self.offered())}"
            )
        found = self.find(spec)
        try:
            inspect.signature(found).bind(*args, **kwargs)
        except TypeError as error:
            names = ", ".join(inspect.signature(found).parameters) or "no arguments"
            raise SignatureError(f"{self._kind} {spec!r}: {error}; it takes {names}") from None
        return found(*args, **kwargs)

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


class _Classes(Mapping[str, type[T]]):
    """The classes of a registry by lower-case name; one that is imported late is imported when it is read."""

    def __init__(self, registry: Registry[T]) -> None:
        self._registry = registry

    def __getitem__(self, name: str) -> type[T]:
        found = self._registry.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._registry.names())

    def __len__(self) -> int:
        return sum(1 for _ in self)


# --- MXNet's face: functions by base class


def _registry_of(base_class: type[T], nickname: str) -> Registry[T]:
    return _registries.get(base_class) or Registry(base_class, nickname)


def get_registry(base_class: type[T]) -> dict[str, type[T]]:
    """Return a copy of the classes that are registered under a base class, by lower-case name.

    Args:
        base_class: such as `Optimizer`, or a class of one's own.
    """
    found = _registries.get(base_class)
    return {} if found is None else dict(found.classes)


def get_register_func(base_class: type[T], nickname: str) -> Callable[..., type[T]]:
    """Return a function ``register(klass, name=None)`` that registers a subclass, and returns it.

    Args:
        base_class: the class that every registered one derives from.
        nickname: what the entries are called in messages.

    Example:
        >>> class Shape: ...
        >>> register = mx.registry.get_register_func(Shape, "shape")
        >>> @register
        ... class Square(Shape): ...
        >>> mx.registry.get_registry(Shape)["square"] is Square
        True
    """
    registry = _registry_of(base_class, nickname)

    def register(klass: type[T], name: str | None = None) -> type[T]:
        return registry.register(klass, *() if name is None else (name,))

    return register


def get_alias_func(base_class: type[T], nickname: str) -> Callable[..., Callable[[type[T]], type[T]]]:
    """Return a function ``alias(*names)`` that makes class decorators; arguments as in `get_register_func`.

    Args:
        base_class: the class that every registered one derives from.
        nickname: what the entries are called in messages.
    """
    return _registry_of(base_class, nickname).alias


def get_create_func(base_class: type[T], nickname: str) -> Callable[..., T]:
    """Return a function that makes an instance by name; arguments as in `get_register_func`.

    The function takes what `Registry.create` takes; the name may also be given by keyword, under `nickname`.

    Args:
        base_class: the class that every registered one derives from.
        nickname: what the entries are called in messages.
    """
    registry = _registry_of(base_class, nickname)

    def create(*args: Any, **kwargs: Any) -> T:
        return (
            registry.create(*args, **kwargs)
            if args
            else registry.create(kwargs.pop(nickname, None), **kwargs)
        )

    return create
