"""Cells: modules and functions of tensors whose calls are recorded as one."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any
from weakref import ReferenceType, finalize

import torch

from ... import native

_DECLARED = "_is_autobatch_cell"
CONSTANTS = (torch.dtype, torch.layout, torch.device, torch.memory_format)
_CONSTANTS = (*CONSTANTS, torch.Tensor, bool, int, float, complex, str, bytes, type, Enum, ReferenceType)


def cell(target: Callable[..., Any]) -> Callable[..., Any]:
    """Declare a module, a class of modules or a function to be a cell; see `autobatch.cell`."""
    is_class = isinstance(target, type) and issubclass(target, torch.nn.Module)
    if is_class or isinstance(target, torch.nn.Module):
        setattr(target, _DECLARED, True)
        return target
    if native.core is None:
        return target
    core: Any = native.core
    recorded = core.RecordedCell(target)

    @functools.wraps(target)
    def call(*args: Any, **kwargs: Any) -> Any:
        return recorded(*args, **kwargs)

    return call


@contextmanager
def modules_as_cells() -> Iterator[None]:
    """Let the recorder see calls of modules, in all threads, until the end of the block."""
    module: Any = torch.nn.Module
    before = module.__call__
    module.__call__ = _call_of_modules(before)
    try:
        yield
    finally:
        module.__call__ = before


@functools.lru_cache(maxsize=1)
def _call_of_modules(function: Callable[..., Any]) -> Any:
    core: Any = native.core
    return core.RecordedCell(function, True)


_stores: dict[int, Any] = {}


def store_of_module(module: torch.nn.Module) -> Any:
    """Return what the recorder keeps of a module as long as it lives."""
    store = _stores.get(id(module))  # not of a module that is only equal
    if store is None:
        core: Any = native.core
        store = _stores.setdefault(id(module), core.CellStore())  # another thread may be faster
        finalize(module, _stores.pop, id(module), None).atexit = False
    return store


def state_of_module(module: torch.nn.Module) -> tuple[bool, list[Any]] | None:
    """Return the state that the recorder checks before it repeats a call.

    Returns:
        True if calls of the module are recorded as one, and not only functions that take it; and the dicts and lists
        that hold its state. None if it has hooks, or if its state may change without a change of their items.
    """
    inner = set(module.modules()) - {module}  # a state that holds its own module would keep it alive
    hooks: list[Any] = [
        each for name, each in vars(torch.nn.modules.module).items() if _are_hooks(name, each)
    ]
    found = hooks + [vars(part) for part in (module, *inner)]
    seen = set(map(id, found))
    for container in found:  # which grows
        for name, item in container.items() if isinstance(container, dict) else enumerate(container):
            if name == "_non_persistent_buffers_set" or "state_dict" in str(name):
                continue  # calls do not read them
            if _are_hooks(name, item):
                hooks.append(item)
            if type(item) in (dict, list, OrderedDict):
                if id(item) not in seen:
                    found.append(item)
                    seen.add(id(item))
            elif not _never_changes(item, inner):
                return None
    if any(hooks):
        return None
    is_cell = getattr(module, _DECLARED, False) or all(
        type(each).__module__.startswith("torch.nn.modules.") for each in (module, *inner)
    )
    return is_cell, found


def _never_changes(item: Any, inner: set[torch.nn.Module]) -> bool:
    """Return True for inner modules, for tensors, and for objects that do not change and refer to no others."""
    if isinstance(item, torch.nn.Module):
        return item in inner
    if isinstance(item, tuple | frozenset):
        return all(_never_changes(each, inner) for each in item)
    if isinstance(item, FunctionType):
        return not (item.__closure__ or item.__defaults__ or item.__kwdefaults__)
    if isinstance(item, BuiltinFunctionType):
        return item.__self__ is None or isinstance(item.__self__, type | ModuleType)
    return item is None or isinstance(item, _CONSTANTS)


def _are_hooks(name: object, item: Any) -> bool:
    name = str(name)
    return name.endswith("_hooks") and "state_dict" not in name and isinstance(item, dict)
