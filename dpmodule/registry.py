"""Registry of classes that are created by name, such as optimizers, initializers and metrics."""

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
"""Registries by base class, for MXNet's functions."""


class Registry(Generic[T]):
    """Classes by lower-case name.

    Args:
        base: base class of all registered classes.
        kind: name of the entries in messages, such as "optimizer".
        unlisted: names that messages do not suggest, in addition to names with a leading underscore.
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
            *aliases: further names; case does not matter.

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
        """Declare classes of modules that are imported when one of the names is first used.

        Args:
            package: package of the modules.
            table: modules, and the space-separated names of their classes.
        """
        for module, names in table.items():
            self._later.update(dict.fromkeys(names.lower().split(), f"{package}.{module}"))

    def alias(self, *aliases: str) -> Callable[[type[T]], type[T]]:
        """Return a class decorator that registers under further names.

        Args:
            *aliases: the names; case does not matter.
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
        """Return the class of a lower-case name, None if there is none."""
        if name not in self._classes and name in self._later:
            import_module(self._later[name])
        return self._classes.get(name)

    def find(self, name: str) -> type[T]:
        """Return the class of a name.

        Args:
            name: the name; case does not matter.

        Raises:
            ArgumentError: no class has this name.
        """
        klass = self.get(name.lower())
        if klass is None:
            offered = self.offered()
            hint = did_you_mean(name.lower(), offered)
            raise ArgumentError(f"unknown {self._kind} {name!r}; expected one of {', '.join(offered)}{hint}")
        return klass

    def create(self, spec: Any, *args: Any, **kwargs: Any) -> T:
        """Return an instance made from a name or a configuration; return an instance unchanged.

        Args:
            spec: an instance, a name, a dictionary with the name under the registry's kind and the arguments,
                or either as JSON text: ``["name", {arguments}]`` or ``{"<kind>": "name", **arguments}``.
            *args: arguments of the class, if `spec` is a name.
            **kwargs: arguments of the class; they override those of a configuration.

        Raises:
            ArgumentError: `spec` is not one of these, or the name is unknown.
            SignatureError: the class does not accept these arguments, or needs others.
        """
        if isinstance(spec, self._base):
            if args or kwargs:
                raise ArgumentError(
                    f"{self._kind}: an instance was passed together with arguments, which it cannot take"
                )
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
        klass = self.find(spec)
        try:
            inspect.signature(klass).bind(*args, **kwargs)
        except TypeError as error:
            names = ", ".join(inspect.signature(klass).parameters) or "no arguments"
            raise SignatureError(f"{self._kind} {spec!r}: {error}; it takes {names}") from None
        return klass(*args, **kwargs)

    def _decoded(self, text: str) -> dict[str, Any]:
        """Return a JSON configuration as a dictionary."""
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
    """The classes of a registry by lower-case name; reading one imports its module."""

    def __init__(self, registry: Registry[T]) -> None:
        self._registry = registry

    def __getitem__(self, name: str) -> type[T]:
        klass = self._registry.get(name)
        if klass is None:
            raise KeyError(name)
        return klass

    def __iter__(self) -> Iterator[str]:
        return iter(self._registry.names())

    def __len__(self) -> int:
        return sum(1 for _ in self)


# --- MXNet's functions by base class


def _registry_of(base_class: type[T], nickname: str) -> Registry[T]:
    return _registries.get(base_class) or Registry(base_class, nickname)


def get_registry(base_class: type[T]) -> dict[str, type[T]]:
    """Return a copy of the classes that are registered under a base class, by lower-case name.

    Args:
        base_class: such as `Optimizer`, or a class of your own.
    """
    registry = _registries.get(base_class)
    return {} if registry is None else dict(registry.classes)


def get_register_func(base_class: type[T], nickname: str) -> Callable[..., type[T]]:
    """Return a function ``register(klass, name=None)`` that registers a subclass, and returns it.

    Args:
        base_class: base class of all registered classes.
        nickname: name of the entries in messages.

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
    """Return a function ``alias(*names)`` that returns class decorators; arguments as in `get_register_func`.

    Args:
        base_class: base class of all registered classes.
        nickname: name of the entries in messages.
    """
    return _registry_of(base_class, nickname).alias


def get_create_func(base_class: type[T], nickname: str) -> Callable[..., T]:
    """Return a function that makes an instance by name; arguments as in `get_register_func`.

    The function takes the arguments of `Registry.create`; the name may also be the keyword argument `nickname`.

    Args:
        base_class: base class of all registered classes.
        nickname: name of the entries in messages.
    """
    registry = _registry_of(base_class, nickname)

    def create(*args: Any, **kwargs: Any) -> T:
        return (
            registry.create(*args, **kwargs)
            if args
            else registry.create(kwargs.pop(nickname, None), **kwargs)
        )

    return create
