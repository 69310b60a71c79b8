"""Cells: modules and functions of tensors whose calls are recorded as one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch

from ... import native

_DECLARED = "_is_autobatch_cell"


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
    return core.RecordedCell(function)


_stores: WeakKeyDictionary[torch.nn.Module, Any] = WeakKeyDictionary()


def store_of_module(module: torch.nn.Module) -> Any:
    """Return what the recorder keeps of a module as long as it lives."""
    if module not in _stores:
        core: Any = native.core
        _stores[module] = core.CellStore()
    return _stores[module]


def state_of_module(module: torch.nn.Module) -> list[Any] | None:
    """Return the dicts and lists with the state of a module whose calls are recorded as one, or None for others."""
    parts = list(module.modules())
    is_declared = getattr(module, _DECLARED, False)
    found: list[Any] = [
        each for name, each in vars(torch.nn.modules.module).items() if _are_hooks(name, each)
    ]
    if any(found):
        return None
    for part in parts:
        state = vars(part)
        if not (is_declared or type(part).__module__.startswith("torch.nn.modules.")):
            return None
        if any(each for name, each in state.items() if _are_hooks(name, each)):
            return None
        found += [state, *(each for each in state.values() if isinstance(each, (dict, list)))]
    return found


def _are_hooks(name: str, item: Any) -> bool:
    return name.endswith("_hooks") and "state_dict" not in name and isinstance(item, dict)
