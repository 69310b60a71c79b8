"""`Scope`: values of parameters; programs that run in different scopes have different ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ..base import ArgumentError, ShapeError
from ..context import cpu
from ..ndarray import NDArray, array
from ..params import ParamStore
from .lod_tensor import LoDTensor


class UniqueNames:
    """Generator of unique names by prefix."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def generate(self, key: str) -> str:
        """Return ``key_0``, then ``key_1``, and so on."""
        number = self._counts.get(key, 0)
        self._counts[key] = number + 1
        return f"{key}_{number}"


class ProgramGroup:
    """The programs of a startup program, which share parameters.

    Attributes:
        names: generator of their names.
    """

    def __init__(self) -> None:
        self.names = UniqueNames()

    @property
    def store(self) -> ParamStore:
        """The parameters in the current scope."""
        return global_scope().values_of(self).store

    @property
    def runners(self) -> WeakKeyDictionary[Any, Any]:
        """What runs each program in the current scope."""
        return global_scope().values_of(self).runners


class _ScopeValues:
    """Parameters of a group of programs, and what runs the programs."""

    def __init__(self) -> None:
        self.store = ParamStore([cpu()])
        self.runners: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


class Scope:
    """Values of the parameters of programs, by the programs' startup program and by name.

    Example:
        >>> import dpmodule.fluid as fluid
        >>> program, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(program, startup):
        ...     out = fluid.layers.fc(fluid.layers.data("x", shape=[3]), size=2, param_attr="w")
        >>> scope = fluid.Scope()
        >>> with fluid.scope_guard(scope):
        ...     _ = fluid.Executor().run(startup)
        >>> scope.find_var("w").get_tensor().shape()
        [2, 3]
        >>> fluid.global_scope().find_var("w") is None
        True

    Source: Paddle 1.8 `Scope`.
    """

    def __init__(self) -> None:
        self._values: WeakKeyDictionary[ProgramGroup, _ScopeValues] = WeakKeyDictionary()
        self._own: dict[str, ScopeVariable] = {}

    def values_of(self, group: ProgramGroup) -> _ScopeValues:
        """Return the values of a group of programs, which are empty at first."""
        if group not in self._values:
            self._values[group] = _ScopeValues()
        return self._values[group]

    def find_var(self, name: str) -> ScopeVariable | None:
        """Return a parameter that has a value; None if there is none.

        Args:
            name: of the parameter. If several startup programs have it, the last one counts.
        """
        for values in reversed(list(self._values.values())):
            if name in values.store.filled:
                return ScopeVariable(name, values.store.value(name, 0))
        return self._own.get(name)

    def var(self, name: str) -> ScopeVariable:
        """Return a parameter that has a value; if there is none, a new variable without a value.

        Args:
            name: of the parameter.
        """
        found = self.find_var(name)
        return self._own.setdefault(name, ScopeVariable(name, None)) if found is None else found

    def drop_kids(self) -> None:
        """Do nothing, since scopes have no children."""


class ScopeVariable:
    """A parameter of a scope."""

    def __init__(self, name: str, value: NDArray | None) -> None:
        self.name = name
        self._tensor = LoDTensor() if value is None else ScopeTensor(name, value)

    def get_tensor(self) -> ScopeTensor | LoDTensor:
        """Return its value, which can be set."""
        return self._tensor


class ScopeTensor:
    """The value of a parameter of a scope; `numpy.array` returns a copy."""

    def __init__(self, name: str, value: NDArray) -> None:
        self._name, self._value = name, value

    def shape(self) -> list[int]:
        """Return the lengths of all axes."""
        return list(self._value.shape)

    _get_dims = shape

    def set(self, value: Any, place: Any = None) -> None:
        """Set the value.

        Args:
            value: an array.
            place: accepted.

        Shape:
            value: as `shape`.

        Raises:
            ShapeError: the shape differs.
        """
        given = np.asarray(value)
        if given.shape != self._value.shape:
            raise ShapeError(f"{self._name}: set() got shape {given.shape}, expected {self._value.shape}")
        self._value[:] = array(given, dtype=self._value.dtype)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._value.asnumpy().astype(dtype or self._value.dtype)


_current = [Scope()]


def global_scope() -> Scope:
    """Return the current scope: that of `scope_guard`, or the first one."""
    return _current[-1]


@contextmanager
def scope_guard(scope: Scope) -> Iterator[None]:
    """Set the current scope inside a ``with`` statement.

    Args:
        scope: the scope in which programs run.

    Raises:
        ArgumentError: it is not a scope.
    """
    if not isinstance(scope, Scope):
        raise ArgumentError(f"scope_guard: scope is {scope!r}, expected a Scope")
    _current.append(scope)
    try:
        yield
    finally:
        _current.pop()


def guard_of(call: str, scope: Any) -> Any:
    """Return a context manager for the argument `scope` of an executor."""
    if scope is not None and not isinstance(scope, Scope):
        raise ArgumentError(f"{call}: scope is {scope!r}, expected a Scope or None")
    return scope_guard(global_scope() if scope is None else scope)
