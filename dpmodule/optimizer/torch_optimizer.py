"""Any `torch.optim.Optimizer` as an optimizer of this package."""

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
    """Let a `torch.optim` class update the parameters.

    Parameters are handed to torch when they are first updated, those of equal rate, decay and type together. Around
    torch's own rule everything of `Optimizer` holds: gradients are rescaled and clipped before; the learning rate is
    the scheduler's times `lr_mult`; the weight decay is torch's ``weight_decay`` times `wd_mult`, so that parameters
    whose names end neither in ``_weight`` nor in ``_gamma`` get none; `multi_precision` keeps float32 copies. States
    are saved and loaded through `Updater` as usual; a file without the optimizer in it can be loaded by any torch class
    that keeps states of these names.

    Args:
        factory: a class such as `torch.optim.AdamW`; or a function that takes a list of tensors and returns an
            optimizer for them. Its parameter groups keep the relation of their rates.
        **kwargs: arguments of `Optimizer` by their names; all others go to `factory`. ``lr`` and ``weight_decay`` mean
            the same as `learning_rate` and `wd`; what is not given is torch's default.

    Attributes:
        factory: the class or function.
        options: the arguments that went to it.

    Raises:
        ArgumentError: `factory` is something else, does not accept the arguments, needs a closure (LBFGS), or has no
            weight decay though one is given.

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
        self._owners: dict[Any, _Engine] = {}

    def create_state(self, index: Key, weight: NDArray) -> State:
        return {}

    def unshared(self) -> str:
        return "torch keeps its states in objects of its own"

    def step(self, group: Group, grads: list[Tensor], lr: float, wd: float, count: int) -> None:
        engine = group.cache
        if engine is None:
            engine = group.cache = _Engine(self._make(group.weights), group, self.defaults)
        if self.rescale_grad != 1.0 or self.limit is not None:
            grads = self.gradients(group, grads).views
        rates = {"lr": lr, "weight_decay": wd}
        if all(self._owners.get(key) is engine for key in group.keys):
            engine.step(grads, rates)
        else:  # another engine, for another choice of parameters, may have been here, or states were loaded
            engine.start(group.records, grads, rates)
            self._owners.update(dict.fromkeys(group.keys, engine))
        engine.save(group.records)

    def _make(self, params: list[Tensor]) -> torch.optim.Optimizer:
        made: torch.optim.Optimizer = self.factory(params, **self.options)
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without torch's objects; a class of `torch.optim` becomes its name."""
        state = {**super().__getstate__(), "_owners": {}}
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


class _Engine:
    """One torch optimizer over the parameters of a group."""

    def __init__(self, made: torch.optim.Optimizer, group: Group, defaults: Mapping[str, float]) -> None:
        self._made = made
        self._params = group.weights
        self._context = group.context
        self._shares = [
            {key: float(one[key]) / base if base else 1.0 for key, base in defaults.items() if key in one}
            for one in made.param_groups
        ]

    def start(self, records: list[State], grads: list[Tensor], rates: Mapping[str, float]) -> None:
        """Take over states and update the parameters."""
        try:
            self._load(records)
            self.step(grads, rates)
        except (KeyError, RuntimeError) as error:
            if not any(records):
                raise
            raise StateError(
                f"{type(self._made).__name__} cannot go on from states {sorted(set().union(*records))}: {error!r}; "
                "were they saved by another optimizer, or for another network?"
            ) from error

    def _load(self, records: list[State]) -> None:
        """Take over states by name; arrays that fit are shared, others brought to type and device."""
        numbers = {id(param): i for i, param in enumerate(_flat(self._made))}
        states = {
            numbers[id(param)]: {key: _to_torch(value) for key, value in record.items()}
            for param, record in zip(self._params, records)
            if record
        }
        if states:
            content = self._made.state_dict()
            self._made.load_state_dict({**content, "state": {**content["state"], **states}})

    def step(self, grads: list[Tensor], rates: Mapping[str, float]) -> None:
        """Update the parameters."""
        for one, shares in zip(self._made.param_groups, self._shares):
            one.update({key: rates[key] * share for key, share in shares.items()})
        for param, grad in zip(self._params, grads):
            param.grad = grad
        try:
            self._made.step()
        finally:
            count_write(self._params)  # torch does not count what its fused optimizers write
            for param in self._params:
                param.grad = None

    def save(self, records: list[State]) -> None:
        """Put what is new among the states into the records."""
        for param, record in zip(self._params, records):
            for key, value in self._made.state[param].items():
                held = record.get(key)
                if not (isinstance(held, NDArray) and held.raw is value):
                    record[key] = _from_torch(value, self._context)


def _flat(made: torch.optim.Optimizer) -> list[Tensor]:
    return [param for one in made.param_groups for param in one["params"]]


def _to_torch(value: Any) -> Any:
    """Return a state's value with tensors in place of NDArrays."""
    if isinstance(value, NDArray):
        value.pinned = True
        return value.raw
    return type(value)(map(_to_torch, value)) if isinstance(value, (list, tuple)) else value


def _from_torch(value: Any, context: Context) -> Any:
    """Return a state's value with NDArrays in place of tensors."""
    if isinstance(value, Tensor):
        made = NDArray(value, context if value.device == context.torch_device else cpu())
        made.pinned = True
        return made
    return type(value)(_from_torch(v, context) for v in value) if isinstance(value, (list, tuple)) else value


def _split(kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of `Optimizer` and those of torch; the two rates under both names if given at all."""
    ours = {key: value for key, value in kwargs.items() if key in _OURS}
    options = {key: value for key, value in kwargs.items() if key not in _OURS}
    for mine, theirs in (("learning_rate", "lr"), ("wd", "weight_decay")):
        if theirs in options:
            if ours.get(mine, options[theirs]) != options[theirs]:
                raise ArgumentError(
                    f"{mine} is {ours[mine]} and {theirs} is {options[theirs]}; give one of them"
                )
            ours[mine] = float(options[theirs])
    return {key: value for key, value in ours.items() if value is not None}, options


def _probe(factory: Any, options: dict[str, Any], ours: Mapping[str, Any]) -> torch.optim.Optimizer:
    """Make an optimizer of a parameter that nobody needs, to check the arguments and to learn the defaults."""
    name = getattr(factory, "__name__", repr(factory))
    if isinstance(factory, torch.optim.Optimizer) or not callable(factory):
        raise ArgumentError(
            f"optimizer is {type(factory).__name__}, expected a torch.optim class, or a function from a list of "
            "tensors to a torch optimizer; the tensors are known only later"
        )
    if isinstance(factory, type) and "lr" not in options and "learning_rate" in ours:
        options["lr"] = ours["learning_rate"]  # some classes demand one
    try:
        made = factory([torch.zeros(1, 1)], **options)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{name} does not accept {options}: {error}") from error
    if not isinstance(made, torch.optim.Optimizer):
        raise ArgumentError(f"{name} made a {type(made).__name__}, expected a torch.optim.Optimizer")
    closure = inspect.signature(made.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ArgumentError(
            f"{name} calls a closure for new gradients, but an update is given only one gradient"
        )
    return made
