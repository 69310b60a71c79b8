"""What an executor trains: a Module, a Symbol or what meets `TrainableProgram`, made ready for a feed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ..base import ArgumentError, StateError
from ..initializer import Uniform
from ..module import Module
from ..module.lifecycle import Stage
from ..params import ParamStore
from ..symbol import Symbol
from .arguments import RunArguments
from .fetches import Fetches
from .slot_feed import SlotFeed

_OPTIMIZER_PARAMS = (("learning_rate", 0.01),)


@runtime_checkable
class TrainableProgram(Protocol):
    """What can be trained besides a Module and a Symbol.

    Attributes:
        optimizer: how gradients become new parameters; None if it is only run.
    """

    symbol: Symbol
    store: ParamStore
    optimizer: Any


@dataclass(frozen=True, slots=True)
class BoundProgram:
    """A program that is bound for a feed.

    Args:
        module: over the program's store, with the optimizer if it is trained.
    """

    module: Module
    feed: SlotFeed
    fetches: Fetches
    train: bool

    @property
    def key(self) -> tuple[Any, ...]:
        """What two preparations have in common for which the same workers will do."""
        module = self.module
        inputs = tuple((d.name, d.shape, str(d.dtype)) for d in (*self.feed.data, *self.feed.labels))
        optimizer = id(module.optimizer) if self.train else None
        return id(module.group.store), self.fetches.heads.graph.key, inputs, self.train, optimizer


def input_names(symbol: Symbol, slots: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return which arguments of a symbol are inputs, and which are labels: those that are named as a slot is."""
    labels = symbol.graph.labels
    fed = [name for name in symbol.list_arguments() if name in slots]
    return [name for name in fed if name not in labels], [name for name in fed if name in labels]


def _check_module(module: Module) -> None:
    """Refuse a bound module that no worker can have a copy of."""
    contexts, states = module.group.contexts, module.group.state_names
    if len(contexts) != 1 or contexts[0].device_type != "cpu":
        raise ArgumentError(
            f"the module is on {', '.join(map(str, contexts))}; workers train on one CPU: make it with context=mx.cpu()"
        )
    if states:
        raise ArgumentError(
            f"the module carries {', '.join(states)} from batch to batch, which lines of files have no use for"
        )


def make_ready(
    module: Module, feed: SlotFeed, store: ParamStore | None, train: bool, args: RunArguments
) -> None:
    """Bind a module, give parameters their first values and install the optimizer, as far as that is still to do.

    Args:
        store: where its parameters are, or will be; None: its own.
    """
    if not module.binded or (train and not module.for_training):
        labels = list(feed.labels) or None
        module.bind(list(feed.data), labels, train, force_rebind=module.binded, store=store)
    _check_module(module)
    if not train:
        if module.stage < Stage.INITIALIZED:
            raise StateError(
                "infer_from_files: the program has no parameters yet; train it, or set or load them first"
            )
        return
    if module.stage < Stage.INITIALIZED:
        initializer = Uniform(0.01) if args.initializer is None else args.initializer
        module.init_params(initializer, args.arg_params, args.aux_params, allow_missing=True)
    if module.stage < Stage.READY:
        params = _OPTIMIZER_PARAMS if args.optimizer_params is None else args.optimizer_params
        module.init_optimizer(None, "sgd" if args.optimizer is None else args.optimizer, params)


def metric_outputs(symbol: Symbol, num_labels: int) -> list[str]:
    """Return the outputs that a metric sees beside some labels: all, or those that have a label if so many have."""
    names = symbol.list_outputs()
    if len(names) == num_labels:
        return names
    labels = set(symbol.graph.labels)
    losses = [
        name
        for name, (node, _) in zip(names, symbol.entries)
        if any(child.op is None and child.name in labels for child, _ in node.inputs)
    ]
    return losses if len(losses) == num_labels else names
