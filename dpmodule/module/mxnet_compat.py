"""Private names of MXNet's modules that programs and subclasses use.

The tables map names to attributes. Those that MXNet's own programs set can be set: code that makes a module from a
checkpoint sets `_arg_params`, `_aux_params`, `params_initialized` and `_preload_opt_states`.

Source: MXNet 1.9.1 `Module` and `BucketingModule`. Parameters exist only on the devices, so they are never out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from ..context import current_context
from ..executor.sparse_arrays import stored_bytes
from ..ndarray import NDArray
from .lifecycle import Stage

if TYPE_CHECKING:
    from ..optimizer import Optimizer

Class = TypeVar("Class", bound=type)


def also_named(names: Mapping[str, Any]) -> Callable[[Class], Class]:
    """Give a class further attributes.

    Args:
        names: properties and functions by name.
    """

    def extended(cls: Class) -> Class:
        for name, value in names.items():
            setattr(cls, name, value)
        return cls

    return extended


def _attribute(path: str) -> property:
    """Return a read-only property of an attribute, which may be a dotted path."""
    return property(attrgetter(path))


def _params_property(part: int) -> property:
    """Return a property of parameters (part 0) or auxiliary states (1): current ones, or those to load at `bind`."""

    def get(module: Any) -> Mapping[str, NDArray] | None:
        if module.stage >= Stage.INITIALIZED:
            params: Mapping[str, NDArray] = module.get_params()[part]
            return params
        return None if module.preloaded is None else module.preloaded[part]

    def put(module: Any, values: Mapping[str, NDArray] | None) -> None:
        both = list(module.preloaded or (None, None))
        if module.stage >= Stage.INITIALIZED:
            both = list(module.get_params())
        both[part] = values
        args, aux = both
        if module.stage >= Stage.INITIALIZED:
            module.set_params(args or {}, aux or {}, allow_missing=True)
        else:
            module.preloaded = None if args is None and aux is None else (args or {}, aux or {})

    return property(get, put)


def _of_updates(name: str) -> property:
    """Return a property of the updates; None before `init_optimizer`."""
    return property(lambda module: None if module.optimizer is None else getattr(module.updates, name))


def _set_optimizer(module: Any, optimizer: Optimizer) -> None:
    if module.optimizer is not None:
        module.updates.optimizer = optimizer


def _after_bind(name: str) -> property:
    """Return a property that is None before `bind`."""
    return property(lambda module: getattr(module, name) if module.stage >= Stage.BOUND else None)


def _shared_bytes(module: Any) -> int:
    return sum(stored_bytes(array) for pool in module.group.shared_data_arrays for array in pool.values())


def _context(module: Any) -> Any:
    context = module.options["context"]
    return current_context() if context is None else context


def _option(name: str) -> property:
    """Return a property of an argument of every bucket's module."""
    return property(lambda module: module.options[name])


def _options(name: str) -> property:
    """Return a property of a list argument of every bucket's module."""
    return property(lambda module: list(module.options[name] or ()))


def _nothing(module: object, *args: object) -> None:
    """Do nothing: there is nothing to synchronize."""


_IN_STEP = property(lambda module: False, _nothing)

MODULE: Mapping[str, Any] = {
    "_arg_params": _params_property(0),
    "_aux_names": property(lambda module: list(module.symbol.list_auxiliary_states())),
    "_aux_params": _params_property(1),
    "_data_shapes": _after_bind("data_shapes"),
    "_exec_group": _attribute("group"),
    "_kvstore": _of_updates("store"),
    "_label_shapes": _after_bind("label_shapes"),
    "_optimizer": property(attrgetter("optimizer"), _set_optimizer),
    "_output_names": _attribute("output_names"),
    "_params_dirty": _IN_STEP,
    "_preload_opt_states": property(
        attrgetter("preloaded_states"), lambda module, path: setattr(module, "preloaded_states", path)
    ),
    "_reset_bind": lambda module: setattr(module, "binded", False),
    "_sync_params_from_devices": _nothing,
    "_total_exec_bytes": property(_shared_bytes),
    "_update_on_kvstore": property(
        lambda module: module.optimizer is not None and module.updates.updater is None
    ),
    "_updater": _of_updates("updater"),
}

BUCKETING_MODULE: Mapping[str, Any] = {
    "_compression_params": _option("compression_params"),
    "_context": property(_context),
    "_curr_bucket_key": _attribute("bucket_key"),
    "_fixed_param_names": _options("fixed_param_names"),
    "_group2ctxs": _option("group2ctxs"),
    "_params_dirty": _IN_STEP,
    "_state_names": _options("state_names"),
    "_total_exec_bytes": property(lambda module: 0),
    "_work_load_list": _option("work_load_list"),
}
