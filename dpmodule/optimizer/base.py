"""The base of all optimizers: learning rates, weight decays, update counts, and creation by name."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch

from ..base import ArgumentError, SignatureError, StateError, did_you_mean
from ..lr_scheduler import LRScheduler
from ..ndarray import NDArray
from ..registry import Registry
from .group import HALF, Key, SharedCounts

if TYPE_CHECKING:
    from ..symbol import Symbol


class _SchedulerError(StateError, UserWarning):
    """The learning rate cannot be set with a scheduler; also a UserWarning, as in MXNet."""


class Optimizer:
    """Base of optimizers, which update parameters from their gradients.

    A subclass defines `create_state` and `update`. The optimizers of this package update whole lists of tensors (see
    `grouped.GroupedOptimizer`), so that `Updater.update_all` updates all parameters together.

    Args:
        rescale_grad: factor of every gradient, often 1 / batch size.
        param_idx2name: names by index, for the multipliers below.
        wd: weight decay (L2) of parameters whose name ends in ``_weight`` or ``_gamma``.
        clip_gradient: clip gradients to [-clip_gradient, clip_gradient] after rescaling; None, 0 or a negative number
            disables it.
        learning_rate: the learning rate, by default the scheduler's or 0.01. With a scheduler, it replaces the
            scheduler's `base_lr`.
        lr_scheduler: learning rate schedule, called with `num_update`.
        sym: a Symbol whose variables may carry ``lr_mult`` and ``wd_mult``.
        begin_num_update: initial update count, for resumed training.
        multi_precision: keep and update float32 copies of 16-bit parameters.
        param_dict: objects with `lr_mult` and `wd_mult` by index, which take precedence over multipliers by name.
        **unknown: unknown arguments; any of them raises an error that lists the valid names.

    Attributes:
        num_update: largest number of updates of any parameter; in a shared store, by all processes.
        lr_mult: learning-rate multipliers by name or index.
        wd_mult: weight-decay multipliers by name or index.

    Raises:
        ArgumentError: `param_idx2name` is not a dict, or `lr_scheduler` is not a schedule.
        SignatureError: an argument is unknown; the message suggests similar ones.

    Source: MXNet 1.9.1 `Optimizer`.
    """

    opt_registry: ClassVar[Mapping[str, type[Optimizer]]]
    """All registered classes by lower-case name."""

    decayed: ClassVar[tuple[str, ...]] = ("_weight", "_gamma")
    """Endings of the names of parameters with weight decay by default."""

    def __init__(
        self,
        rescale_grad: float = 1.0,
        param_idx2name: Mapping[Key, str] | None = None,
        wd: float = 0.0,
        clip_gradient: float | None = None,
        learning_rate: float | None = None,
        lr_scheduler: LRScheduler | None = None,
        sym: Symbol | None = None,
        begin_num_update: int = 0,
        multi_precision: bool = False,
        param_dict: Mapping[Key, Any] | None = None,
        **unknown: Any,
    ) -> None:
        if unknown:
            raise SignatureError(_unknown(type(self), list(unknown)))
        if param_idx2name is not None and not isinstance(param_idx2name, Mapping):
            raise ArgumentError(f"param_idx2name is {param_idx2name!r}, expected a dict from index to name")
        self.rescale_grad = rescale_grad
        self.lr_scheduler = lr_scheduler
        self.lr: Any = _starting_rate(learning_rate, lr_scheduler)  # None with a scheduler, as in MXNet
        self.wd = wd
        self.lr_mult: dict[Key, float] = {}
        self.wd_mult: dict[Key, float] = {}
        self.begin_num_update = begin_num_update
        self.num_update = begin_num_update  # (a property that includes shared counts)
        # one table of counts per device, since each device updates its own copy of a parameter
        self._all_index_update_counts: dict[int, MutableMapping[Key, int]] = {0: {}}
        self._index_update_count = self._all_index_update_counts[0]
        self.clip_gradient = clip_gradient
        self.multi_precision = multi_precision
        self.aggregate_num = 0
        self.idx2name: dict[Key, str] = dict(param_idx2name or {})
        self.sym_info: tuple[Any, ...] = (sym.attr_dict(), sym.list_arguments()) if sym is not None else ()
        self.param_dict: Mapping[Key, Any] = param_dict or {}
        self.allow_np_array = False
        self.set_lr_mult({})
        self.set_wd_mult({})

    @staticmethod
    def register(klass: type[OptimizerT]) -> type[OptimizerT]:
        """Register an optimizer under its lower-case class name; see `register`.

        Args:
            klass: a subclass of `Optimizer`.
        """
        return register(klass)

    @staticmethod
    def create_optimizer(name: str | Optimizer | Callable[..., Any], **kwargs: Any) -> Optimizer:
        """Create an optimizer by name; see `create`.

        Args:
            name: case-insensitive name of a registered class, or an optimizer, which is returned.

        Raises:
            ArgumentError: the name is not registered.
        """
        return create(name, **kwargs)

    # defined by subclasses

    def create_state(self, index: Key, weight: NDArray) -> Any:
        """Return the optimizer state of a parameter: None, an NDArray or a tuple of NDArrays.

        Args:
            index: key of the parameter.
            weight: the parameter, which determines shape, dtype and context of the state.
        """
        return None

    def update(self, index: Key, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Update a parameter in place.

        Args:
            index: key of the parameter.
            weight: the parameter or parameters, updated in place.
            grad: its gradient, of the same shape and type.
            state: result of `create_state`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define an update rule")

    def create_state_multi_precision(self, index: Key, weight: NDArray) -> Any:
        """Return the state, preceded by a float32 copy of a 16-bit parameter if `multi_precision` is set.

        Args:
            index: key of the parameter.
            weight: the parameter, which determines shape, dtype and context of the state.
        """
        if is_half(weight):
            if self.multi_precision:
                master = self.master_copy(weight)
                return master, self.create_state(index, master)
            warnings.warn(
                f"{type(self).__name__} updates 16-bit parameters directly, which loses small steps; "
                "multi_precision=True keeps float32 copies",
                stacklevel=2,
            )
        return self.create_state(index, weight)

    def update_multi_precision(self, index: Key, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Update a parameter in place, using its float32 copy if it has one.

        Args:
            index: key of the parameter.
            grad: its gradient, of the same shape and type.
            state: result of `create_state_multi_precision`.
        """
        if not (self.multi_precision and is_half(weight)):
            self.update(index, weight, grad, state)
            return
        master, inner = self.master_of(state)
        self.update(index, master, NDArray(grad.raw.float(), grad.context), inner)
        weight.raw.copy_(master.raw)

    # learning rates and weight decays

    @property
    def learning_rate(self) -> float:
        """The current learning rate, before multipliers."""
        if self.lr_scheduler is not None:
            return self.lr_scheduler(self.num_update)
        return float(self.lr)

    def set_learning_rate(self, lr: float) -> None:
        """Set the learning rate.

        Args:
            lr: the new learning rate.

        Raises:
            StateError: a scheduler sets the learning rate.
        """
        if self.lr_scheduler is not None:
            raise _SchedulerError(
                f"set_learning_rate({lr}): {type(self.lr_scheduler).__name__} sets the learning rate; "
                "change its base_lr, or create the optimizer without a scheduler"
            )
        self.lr = lr

    def set_lr_scale(self, args_lrscale: object) -> None:
        """Raise a DeprecationWarning; replaced by `set_lr_mult` in MXNet.

        Args:
            args_lrscale: ignored.

        Raises:
            DeprecationWarning: always.
        """
        raise DeprecationWarning("set_lr_scale is gone; use set_lr_mult")

    def set_lr_mult(self, args_lr_mult: Mapping[Key, float]) -> None:
        """Set learning-rate multipliers by name or index; others default to those of the Symbol, or 1.

        Args:
            args_lr_mult: multipliers; "*" in a name matches any text, as in ``{"conv*": 0.1}``.
        Source: MXNet 1.9.1 `Optimizer.set_lr_mult`, which does not support patterns.
        """
        self.lr_mult = {**self._symbol_multipliers("__lr_mult__"), **self._spread(args_lr_mult)}

    def set_wd_mult(self, args_wd_mult: Mapping[Key, float]) -> None:
        """Set weight-decay multipliers by name or index.

        Others default to those of the Symbol, else to 1 for names that end in ``_weight`` or ``_gamma`` (see `decayed`)
        and 0 for all other names.

        Source: MXNet 1.9.1 `Optimizer.set_wd_mult`.

        Args:
            args_wd_mult: factors of `wd`, as in `set_lr_mult`.
        """
        bare = {name: 0.0 for name in self.idx2name.values() if not name.endswith(self.decayed)}
        self.wd_mult = {**bare, **self._symbol_multipliers("__wd_mult__"), **self._spread(args_wd_mult)}

    def _spread(self, given: Mapping[Key, float]) -> dict[Key, float]:
        """Expand patterns in multipliers to matching names; full names take precedence."""
        patterns = [key for key in given if isinstance(key, str) and "*" in key]
        names = list(self.idx2name.values()) if patterns else []
        found: dict[Key, float] = {
            name: given[pattern] for pattern in patterns for name in names if fnmatchcase(name, pattern)
        }
        return {**found, **{key: value for key, value in given.items() if key not in patterns}}

    def _symbol_multipliers(self, key: str) -> dict[Key, float]:
        if not self.sym_info:
            return {}
        attrs, names = self.sym_info
        found = {name: attrs[name][key] for name in names if key in attrs.get(name, {})}
        try:
            return {name: float(text) for name, text in found.items()}
        except ValueError as error:
            raise ArgumentError(
                f"the symbol's {key} of {', '.join(found)}: {error}, expected numbers"
            ) from None

    def multipliers(self, index: Key) -> tuple[float, float]:
        """Return the multipliers of a parameter's learning rate and weight decay.

        Args:
            index: number or name of the parameter.
        """
        if index in self.param_dict:
            found = self.param_dict[index]
            return found.lr_mult, found.wd_mult
        name = self.idx2name.get(index)
        lr_mult, wd_mult = self.lr_mult, self.wd_mult
        return (
            lr_mult[index] if index in lr_mult else lr_mult.get(name, 1.0),
            wd_mult[index] if index in wd_mult else wd_mult.get(name, 1.0),
        )

    def _get_lrs(self, indices: Iterable[Key]) -> list[float]:
        """Return the learning rates of parameters."""
        rate = self.learning_rate
        return [rate * self.multipliers(index)[0] for index in indices]

    def _get_lr(self, index: Key) -> float:
        """Return the learning rate of a parameter."""
        return self._get_lrs([index])[0]

    def _get_wds(self, indices: Iterable[Key]) -> list[float]:
        """Return the weight decays of parameters."""
        return [self.wd * self.multipliers(index)[1] for index in indices]

    def _get_wd(self, index: Key) -> float:
        """Return the weight decay of a parameter."""
        return self._get_wds([index])[0]

    @property
    def limit(self) -> float | None:
        """Limit of gradient clipping, None without clipping."""
        limit = self.clip_gradient
        return limit if limit is not None and limit > 0.0 else None

    # counts

    @property
    def num_update(self) -> int:
        """The largest number of updates of any parameter; in a shared store, by all processes."""
        table = self._index_update_count
        if isinstance(table, SharedCounts):  # which loaded states may have lowered
            return table.largest()
        own: int = self.__dict__["num_update"]
        return own

    @num_update.setter
    def num_update(self, count: int) -> None:
        self.__dict__["num_update"] = count

    def count_of(self, index: Key) -> int:
        """Return the number of updates of a parameter.

        Args:
            index: number or name of the parameter.
        """
        tables = self._all_index_update_counts.values()
        return next((table[index] for table in tables if index in table), self.begin_num_update)

    def count_in(self, table: SharedCounts, devices: Iterable[int]) -> None:
        """Use a table of counts shared with other processes.

        Args:
            table: counts in shared memory.
            devices: numbers of the devices to which it applies.
        """
        self._all_index_update_counts = dict.fromkeys(devices, table)
        self._index_update_count = table

    def unshared(self) -> str | None:
        """Return a description of state that processes cannot share, None if there is none."""
        return None

    def use_device(self, device_id: int) -> None:
        """Count subsequent updates for a device.

        Args:
            device_id: position of the device among the contexts.
        """
        self._index_update_count = self._all_index_update_counts.setdefault(device_id, {})

    def _set_current_context(self, device_id: int) -> None:
        """Count subsequent updates for a device (MXNet's name for `use_device`)."""
        self.use_device(device_id)

    def _update_count(self, index: Key | list[Key]) -> None:
        """Count an update of one parameter, or of several."""
        self.advance(index if isinstance(index, (list, tuple)) else [index])

    def advance(self, indices: Sequence[Key]) -> list[int]:
        """Count an update of each parameter and return the new counts.

        Args:
            indices: numbers or names of parameters.
        """
        table = self._index_update_count
        if isinstance(table, SharedCounts):
            counts = table.advance(indices)
        else:
            before = list(map(table.get, indices))
            first, begin = before[0], self.begin_num_update
            if before.count(first) == len(before):  # usual case: all parameters have equal counts
                counts = [(begin if first is None else first) + 1] * len(before)
            else:
                counts = [(begin if count is None else count) + 1 for count in before]
            table.update(zip(indices, counts))
        own = self.__dict__
        own["num_update"] = max(own["num_update"], max(counts))
        return counts

    def add_updates(self, indices: Sequence[Key], number: int) -> None:
        """Count updates made by native code.

        Args:
            number: number of updates of each parameter, at least one.
        """
        table = self._index_update_count
        counts = [count + number - 1 for count in self.advance(indices)]
        table.update(zip(indices, counts))
        self.num_update = max(self.num_update, max(counts))

    def take_counts(self, other: Optimizer, indices: Iterable[Key]) -> None:
        """Copy the update counts of another optimizer, such as a loaded one."""
        self._index_update_count.update((index, other.count_of(index)) for index in indices)
        self.num_update = other.num_update

    def master_copy(self, weight: NDArray) -> NDArray:
        """Return a float32 copy of a parameter, on its context.

        Args:
            weight: a 16-bit parameter.
        """
        return NDArray(weight.raw.to(torch.float32, copy=True), weight.context)

    def master_of(self, state: Any) -> tuple[NDArray, Any]:
        """Split a `multi_precision` state into the float32 copy and the inner state.

        Args:
            state: result of `create_state_multi_precision`.
        """
        master, inner = state
        return master, inner

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without `param_dict`, which belongs to the caller, and with copies of shared counts."""
        state = {key: value for key, value in self.__dict__.items() if key != "param_dict"}
        if isinstance(self._index_update_count, SharedCounts):
            tables = {number: dict(table) for number, table in self._all_index_update_counts.items()}
            own = next(iter(tables.values()))
            state |= {"_all_index_update_counts": tables, "_index_update_count": own}
            state["num_update"] = self.num_update
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.param_dict = {}
        self.use_device(0)  # restores the identity of the active table and its entry


OptimizerT = TypeVar("OptimizerT", bound=Optimizer)

registry = Registry(Optimizer, "optimizer", unlisted=("test", "torchoptimizer"))
Optimizer.opt_registry = registry.classes


def register(klass: type[OptimizerT]) -> type[OptimizerT]:
    """Register an optimizer under its lower-case class name; usable as a decorator.

    Args:
        klass: a subclass of `Optimizer`.

    Raises:
        ArgumentError: `klass` does not derive from `Optimizer`.
    """
    before = registry.get(getattr(klass, "__name__", "").lower())
    if before is not None:
        warnings.warn(
            f"optimizer {klass.__module__}.{klass.__name__} replaces {before.__module__}.{before.__name__}",
            stacklevel=2,
        )
    registry.register(klass)
    return klass


def create(name: str | Optimizer | Callable[..., Any], **kwargs: Any) -> Optimizer:
    """Create an optimizer by case-insensitive name or from a torch class; return an Optimizer unchanged.

    Args:
        name: "sgd", "adam", "lamb" or the name of another registered class; an Optimizer; a class of `torch.optim`,
            or a function from a list of tensors to a torch optimizer, see `TorchOptimizer`.
        **kwargs: the constructor's arguments.

    Raises:
        ArgumentError: the name is not registered, or `name` is an Optimizer class.

    Example:
        >>> create("sgd", learning_rate=0.1, momentum=0.9).momentum
        0.9
    """
    if isinstance(name, type) and issubclass(name, Optimizer):
        raise ArgumentError(f"optimizer is the class {name.__name__}; pass its name or an instance")
    if isinstance(name, torch.optim.Optimizer) or (callable(name) and not isinstance(name, Optimizer)):
        return registry.create("torchoptimizer", name, **kwargs)
    return registry.create(name, **kwargs)


_TORCH = {"lr": "learning_rate", "weight_decay": "wd", "betas": "beta1 and beta2", "eps": "epsilon"}
"""Names of `torch.optim` arguments in this package."""


def _unknown(cls: type[Optimizer], unknown: Sequence[str]) -> str:
    """Return the error message for unknown arguments of an optimizer."""
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    constructors = [vars(each)["__init__"] for each in cls.__mro__[:-1] if "__init__" in vars(each)]
    parameters = [each for one in constructors for each in inspect.signature(one).parameters.values()]
    known = dict.fromkeys(each.name for each in parameters if each.kind in kinds and each.name != "self")
    hint = did_you_mean(unknown[0], known, *unknown[1:], synonyms=_TORCH)
    return (
        f"{cls.__name__} has no argument {', '.join(map(repr, unknown))}; it takes {', '.join(known)}{hint}"
    )


def is_half(weight: NDArray) -> bool:
    """Return True if a parameter has a 16-bit floating point dtype."""
    return weight.raw.dtype in HALF


def momentum_of(optimizer: Optimizer, momentum: Any) -> float:
    """Convert the momentum of an optimizer to a float."""
    try:
        return float(momentum)
    except (TypeError, ValueError):
        name = type(optimizer).__name__
        raise ArgumentError(f"{name}: momentum is {momentum!r}, expected a number; 0 means none") from None


def _starting_rate(rate: float | None, scheduler: LRScheduler | None) -> float | None:
    """Return the initial learning rate; with a scheduler, it replaces the scheduler's `base_lr`."""
    if scheduler is None:
        return 0.01 if rate is None else rate
    if isinstance(scheduler, type) or not callable(scheduler):
        raise ArgumentError(
            f"lr_scheduler is {scheduler!r}, expected an LRScheduler, such as FactorScheduler(step=100)"
        )
    if rate is not None and not hasattr(scheduler, "base_lr"):
        raise ArgumentError(
            f"lr_scheduler {scheduler!r} has no base_lr that learning_rate could replace; pass only one of them"
        )
    if rate is not None and scheduler.base_lr != rate:
        warnings.warn(
            f"learning_rate {rate} replaces base_lr {scheduler.base_lr} of the {type(scheduler).__name__}",
            stacklevel=4,
        )
        scheduler.base_lr = rate
    return rate
