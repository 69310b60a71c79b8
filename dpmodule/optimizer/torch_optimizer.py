"""`TorchOptimizer`: a `torch.optim` optimizer as an optimizer of this package."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..base import ArgumentError, FileFormatError, StateError
from ..context import Context, cpu
from ..ndarray import NDArray
from ..ops.write_tracking import count_write
from .base import Optimizer, register
from .group import Group, Key
from .grouped import GroupedOptimizer

Tensor = torch.Tensor
State = dict[str, Any]

_RATES = ("lr", "weight_decay")
_OURS = frozenset(inspect.signature(Optimizer.__init__).parameters) - {"self"}


@register
class TorchOptimizer(GroupedOptimizer):
    """Update parameters with a `torch.optim` optimizer.

    Parameters are passed to torch on their first update, grouped by learning rate, weight decay and dtype. All features
    of `Optimizer` apply: gradients are rescaled and clipped; the learning rate is the scheduler's times `lr_mult`; the
    weight decay is torch's ``weight_decay`` times `wd_mult`, so that only names that end in ``_weight`` or ``_gamma``
    have weight decay; `multi_precision` keeps float32 copies. `Updater` saves and loads the states; a file without the
    optimizer can be loaded by any torch class with the same state names.

    Args:
        factory: a class such as `torch.optim.AdamW`, or a function from a list of tensors to an optimizer. The ratios
            of the rates of its parameter groups are preserved.
        **kwargs: arguments of `Optimizer`; all others are passed to `factory`. ``lr`` and ``weight_decay`` are
            equivalent to `learning_rate` and `wd`; the defaults are torch's.

    Attributes:
        factory: the class or function.
        options: the arguments of `factory`.

    Raises:
        ArgumentError: `factory` is invalid, does not accept the arguments, needs a closure (LBFGS), or does not support
            a given weight decay.

    Example:
        >>> import torch
        >>> update = mx.optimizer.get_updater(mx.optimizer.create(torch.optim.SGD, lr=0.5))
        >>> weight = mx.nd.ones((2,))
        >>> update(0, mx.nd.ones((2,)), weight)
        >>> weight.asnumpy()
        array([0.5, 0.5], dtype=float32)
    """

    def __init__(self, factory: Callable[..., Any], **kwargs: Any) -> None:
        ours, options = _split(kwargs)
        self.factory = factory
        self.options = options
        probe = _probe(factory, options, ours)
        self.defaults = {
            key: float(probe.param_groups[0][key]) for key in _RATES if key in probe.param_groups[0]
        }
        if ours.get("wd") and "weight_decay" not in self.defaults:
            raise ArgumentError(f"wd is {ours['wd']}, but {type(probe).__name__} has no weight decay")
        if ours.get("lr_scheduler") is None:
            ours.setdefault("learning_rate", self.defaults.get("lr"))
        ours.setdefault("wd", self.defaults.get("weight_decay", 0.0))
        super().__init__(**ours)
        self._groups_by_key: dict[Any, _TorchGroup] = {}

    def create_state(self, index: Key, weight: NDArray) -> State:
        return {}

    def unshared(self) -> str:
        return "torch keeps its states in its own objects"

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        torch_group = group.cache
        if torch_group is None:
            torch_group = group.cache = _TorchGroup(self._make(group.weights), group, self.defaults)
        if self.rescale_grad != 1.0 or self.limit is not None:
            grads = self.gradients(group, grads).views
        rates = {"lr": lr, "weight_decay": wd}
        if all(self._groups_by_key.get(key) is torch_group for key in group.keys):
            torch_group.step(grads, rates)
        else:  # another group may have updated the parameters, or states were loaded
            torch_group.start(group.records, grads, rates)
            self._groups_by_key.update(dict.fromkeys(group.keys, torch_group))
        torch_group.save(group.records)

    def _make(self, params: list[Tensor]) -> torch.optim.Optimizer:
        optimizer: torch.optim.Optimizer = self.factory(params, **self.options)
        return optimizer

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without torch's objects, with the name of a `torch.optim` class."""
        state = {**super().__getstate__(), "_groups_by_key": {}}
        name = getattr(self.factory, "__name__", "")
        if getattr(torch.optim, name, None) is self.factory:
            state["factory"] = name
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        factory = state.get("factory")
        if isinstance(factory, str):
            found = getattr(torch.optim, factory, None)
            if not (isinstance(found, type) and issubclass(found, torch.optim.Optimizer)):
                raise FileFormatError(f"torch.optim has no optimizer {factory!r}")
            state = {**state, "factory": found}
        super().__setstate__(state)


class _TorchGroup:
    """A torch optimizer for the parameters of a group."""

    def __init__(self, optimizer: torch.optim.Optimizer, group: Group, defaults: Mapping[str, float]) -> None:
        self._torch_optimizer = optimizer
        self._params = group.weights
        self._context = group.context
        self._shares = [
            {
                key: float(options[key]) / base if base else 1.0
                for key, base in defaults.items()
                if key in options
            }
            for options in optimizer.param_groups
        ]

    def start(self, records: list[State], grads: list[Tensor], rates: Mapping[str, float]) -> None:
        """Load states and update the parameters."""
        try:
            self._load(records)
            self.step(grads, rates)
        except (KeyError, RuntimeError) as error:
            if not any(records):
                raise
            raise StateError(
                f"{type(self._torch_optimizer).__name__} cannot continue from states "
                f"{sorted(set().union(*records))}: {error!r}; were they saved "
                "by another optimizer, or for another network?"
            ) from error

    def _load(self, records: list[State]) -> None:
        """Load states by name, sharing arrays of the right dtype and device and converting others."""
        numbers = {id(param): i for i, param in enumerate(_flat(self._torch_optimizer))}
        states = {
            numbers[id(param)]: {key: _to_torch(value) for key, value in record.items()}
            for param, record in zip(self._params, records)
            if record
        }
        if states:
            content = self._torch_optimizer.state_dict()
            self._torch_optimizer.load_state_dict({**content, "state": {**content["state"], **states}})

    def step(self, grads: list[Tensor], rates: Mapping[str, float]) -> None:
        """Update the parameters."""
        for param_group, shares in zip(self._torch_optimizer.param_groups, self._shares):
            param_group.update({key: rates[key] * share for key, share in shares.items()})
        for param, grad in zip(self._params, grads):
            param.grad = grad
        try:
            self._torch_optimizer.step()
        finally:
            count_write(self._params)  # fused optimizers do not increment tensor versions
            for param in self._params:
                param.grad = None

    def save(self, records: list[State]) -> None:
        """Store new states in the records."""
        for param, record in zip(self._params, records):
            for key, value in self._torch_optimizer.state[param].items():
                held = record.get(key)
                if not (isinstance(held, NDArray) and held.raw is value):
                    record[key] = _from_torch(value, self._context)


def _flat(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [param for param_group in optimizer.param_groups for param in param_group["params"]]


def _to_torch(value: Any) -> Any:
    """Replace NDArrays in a state by tensors."""
    if isinstance(value, NDArray):
        value.pinned = True
        return value.raw
    return type(value)(map(_to_torch, value)) if isinstance(value, (list, tuple)) else value


def _from_torch(value: Any, context: Context) -> Any:
    """Replace tensors in a state by NDArrays."""
    if isinstance(value, Tensor):
        optimizer = NDArray(value, context if value.device == context.torch_device else cpu())
        optimizer.pinned = True
        return optimizer
    return type(value)(_from_torch(v, context) for v in value) if isinstance(value, (list, tuple)) else value


def _split(kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the arguments into those of `Optimizer` and those of torch; rates are passed to both."""
    ours = {key: value for key, value in kwargs.items() if key in _OURS}
    options = {key: value for key, value in kwargs.items() if key not in _OURS}
    for mine, theirs in (("learning_rate", "lr"), ("wd", "weight_decay")):
        if theirs in options:
            if ours.get(mine, options[theirs]) != options[theirs]:
                raise ArgumentError(
                    f"{mine} is {ours[mine]} and {theirs} is {options[theirs]}; pass only one of them"
                )
            ours[mine] = float(options[theirs])
    return {key: value for key, value in ours.items() if value is not None}, options


def _probe(factory: Any, options: dict[str, Any], ours: Mapping[str, Any]) -> torch.optim.Optimizer:
    """Create an optimizer of a dummy parameter, to check the arguments and get the defaults."""
    name = getattr(factory, "__name__", repr(factory))
    if isinstance(factory, torch.optim.Optimizer) or not callable(factory):
        raise ArgumentError(
            f"optimizer is {type(factory).__name__}, expected a torch.optim class, or a function from a list of "
            "tensors to a torch optimizer; the tensors are known only later"
        )
    if isinstance(factory, type) and "lr" not in options and "learning_rate" in ours:
        options["lr"] = ours["learning_rate"]  # some classes require it
    try:
        optimizer = factory([torch.zeros(1, 1)], **options)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{name} does not accept {options}: {error}") from error
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ArgumentError(f"{name} returned a {type(optimizer).__name__}, expected a torch.optim.Optimizer")
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ArgumentError(f"{name} calls a closure for new gradients, but an update has only one gradient")
    return optimizer
