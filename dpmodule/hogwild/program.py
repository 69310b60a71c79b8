"""What an executor trains: a Module, a Symbol or what meets `TrainableProgram`, made ready for a feed."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ..base import ArgumentError, ShapeError, StateError, did_you_mean
from ..context import Context
from ..initializer import Uniform
from ..module import Module
from ..module.lifecycle import Stage
from ..params import ParamStore
from ..symbol import BlockGrad as block_gradient
from ..symbol import Group, Symbol
from .data_feed_desc import DataFeedDesc
from .data_files import FileRange
from .job import RunArguments
from .slot_feed import SlotFeed, feed_of

_logger = logging.getLogger(__name__)
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


@dataclass(frozen=True, slots=True)
class Fetch:
    """One value that is averaged.

    Args:
        output: its position among the heads; None for an input, which is read from the batch.
    """

    name: str
    output: int | None


@dataclass(frozen=True, slots=True)
class Fetches:
    """What a run averages, and the symbol that has it all among its outputs.

    Args:
        items: in the caller's order.
        heads: the program's outputs, and those behind them that are only fetched.
    """

    items: tuple[Fetch, ...]
    heads: Symbol

    @classmethod
    def find(cls, symbol: Symbol, fetch: Any, slots: Collection[str]) -> Fetches:
        """Find what is to be fetched.

        Args:
            fetch: names or symbols, or one alone; None: nothing.
        """
        given: Sequence[Any] = (
            fetch if isinstance(fetch, (list, tuple)) else () if fetch is None else (fetch,)
        )
        outputs = symbol.list_outputs()
        extras: list[Symbol] = []
        items = []
        for each in given:
            name, found = _resolve_fetch(symbol, each, slots)
            if found is None:
                items.append(Fetch(name, None))
            elif found.list_outputs()[0] in outputs:
                items.append(Fetch(name, outputs.index(found.list_outputs()[0])))
            else:
                items.append(Fetch(name, len(outputs) + len(extras)))
                extras.append(block_gradient(found, name=f"fetch{len(extras)}_{found.name}"))
        return cls(tuple(items), Group([symbol, *extras]) if extras else symbol)

    @property
    def names(self) -> list[str]:
        """What the caller calls them."""
        return [each.name for each in self.items]

    def check_shapes(self, feed: SlotFeed) -> None:
        """Refuse what is no one number a line."""
        inputs: Mapping[str, tuple[int, ...]] = {each.name: each.shape for each in (*feed.data, *feed.labels)}
        shapes = self.heads.infer_shape_partial(**inputs)[1]
        for each in self.items:
            shape = inputs[each.name] if each.output is None else tuple(shapes[each.output])
            lines = feed.desc.batch_size
            if len(shape) and shape[-1] != 1 and shape != (lines,):
                raise ShapeError(
                    f"fetch: {each.name!r} has the shape {shape}; what can be averaged has one number a line, of shape "
                    f"({lines},), ({lines}, 1) or ragged, or is one number"
                )


def _resolve_fetch(symbol: Symbol, given: Any, slots: Collection[str]) -> tuple[str, Symbol | None]:
    """Return what a fetch is called, and its symbol; None for an input."""
    if isinstance(given, Symbol):
        return _resolve_symbol(symbol, given, slots)
    if not isinstance(given, str):
        raise ArgumentError(
            f"fetch: {given!r} is of type {type(given).__name__}, expected a name or a Symbol"
        )
    if given in slots:
        return given, None
    internals = symbol.get_internals()
    names = internals.list_outputs()
    known = [*symbol.list_outputs(), *names]
    for name in (given, f"{given}_output"):
        if name in symbol.list_outputs():
            return given, symbol[name]
        if name in names:
            return given, internals[name]
    raise ArgumentError(
        f"fetch: {given!r} is no output or slot of the program; its outputs are {', '.join(symbol.list_outputs())}"
        f"{did_you_mean(given, known)}"
    )


def _resolve_symbol(symbol: Symbol, given: Symbol, slots: Collection[str]) -> tuple[str, Symbol | None]:
    if len(given.entries) != 1:
        raise ArgumentError(
            f"fetch: {given!r} has {len(given.entries)} outputs; give those that are meant one by one"
        )
    name = given.list_outputs()[0]
    if given.entries[0][0].op is None and name in slots:
        return name, None
    unknown = [each for each in given.list_inputs() if each not in symbol.list_inputs()]
    if unknown:
        raise ArgumentError(
            f"fetch: {name!r} depends on {', '.join(unknown)}, which the program does not have: is it of another one?"
        )
    return name, given


# keys are identities: each table keeps alive what they are of, so that nothing else comes to have them


class ProgramCache:
    """Modules for programs, made when a program first comes, and the store of those that are symbols."""

    # keys are identities: each table keeps alive what they are of, so that nothing else comes to have them

    def __init__(self, context: Context) -> None:
        self._context = context
        self._scope = ParamStore([context])
        self._modules: dict[int, tuple[Any, Module]] = {}
        self._feeds: dict[int, tuple[Module, Any, SlotFeed]] = {}
        self._prepared: dict[int, BoundProgram] = {}
        self._first: dict[int, tuple[Module, RunArguments]] = {}

    def prepare(
        self,
        program: Any,
        desc: DataFeedDesc,
        parts: Sequence[FileRange],
        fetch: Any,
        train: bool,
        args: RunArguments,
    ) -> BoundProgram:
        """Return a program that is bound for a feed."""
        module, store = self._module_of(program, desc)
        feed = self._feed_of(module, desc, parts, args)
        names = [each.name for each in (*feed.data, *feed.labels)]
        fetches = Fetches.find(module.symbol, fetch, names)
        if train:
            fetches.check_shapes(feed)
        args.metric()
        is_own = not isinstance(program, (Module, Symbol))
        if is_own and train:
            args = args.with_optimizer(_optimizer_of(program))
        elif train:
            self._warn_ignored(module, args)
        with warnings.catch_warnings():
            if is_own:  # by what gradients are divided, the program has said
                warnings.simplefilter("ignore", UserWarning)
            make_ready(module, feed, store, train, args)
            if is_own and train and module.optimizer is not program.optimizer:
                module.init_optimizer(None, program.optimizer, force_init=True)
        found = BoundProgram(module, feed, fetches, train)
        self._prepared[id(program)] = found
        return found

    def _warn_ignored(self, module: Module, args: RunArguments) -> None:
        """Warn of keywords of the first run that are others now, which has no effect."""
        if module.stage < Stage.READY:
            self._first[id(module)] = module, args
            return
        _, before = self._first.get(id(module), (module, None))
        for name in ("initializer", "arg_params", "aux_params", "optimizer", "optimizer_params"):
            value = getattr(args, name)
            if value is not None and (
                before is None or getattr(before, name) is not value != getattr(before, name)
            ):
                _logger.warning(
                    "run_from_files: %s counts at a program's first run and is passed over now", name
                )

    def module(self, program: Any) -> Module:
        """Return a program's module."""
        if isinstance(program, Module):
            return program
        found = self._modules.get(id(program))
        if found is None or not found[1].binded:
            raise StateError(
                "the program has not been run by this executor, so that it has no parameters here"
            )
        return found[1]

    def last(self, program: Any) -> BoundProgram | None:
        """Return what a program was last made ready for, None if it never was."""
        return self._prepared.get(id(program))

    def _module_of(self, program: Any, desc: DataFeedDesc) -> tuple[Module, ParamStore | None]:
        """Return a program's module, and where it is to be bound."""
        slots = [slot.name for slot in desc.slots]
        if isinstance(program, Module):
            self._modules[id(program)] = program, program
            return program, None
        if isinstance(program, Symbol):
            symbol, store = program, self._scope
        elif isinstance(program, TrainableProgram):
            symbol, store = program.symbol, program.store
        else:
            raise ArgumentError(
                f"the program is of type {type(program).__name__}, expected a Module, a Symbol, or what has the "
                "attributes symbol, store and optimizer"
            )
        data, labels = input_names(symbol, slots)
        _, module = self._modules.get(id(program), (None, None))
        if (
            module is None
            or (module.data_names, module.label_names) != (data, labels)
            or module.symbol is not symbol
        ):
            module = Module(symbol, data, labels, context=self._context)
            self._modules[id(program)] = program, module
        return module, store

    def _feed_of(
        self, module: Module, desc: DataFeedDesc, parts: Sequence[FileRange], args: RunArguments
    ) -> SlotFeed:
        """Return how a feed's slots become a module's inputs: as found before, if the slots are the same."""
        own = tuple((slot.name, slot.type, slot.is_dense, slot.width) for slot in desc.slots)
        key = desc.batch_size, desc.pipe_command, own
        known = self._feeds.get(id(module))
        if known is not None and known[1] == key:
            return known[2]
        arguments = module.symbol.list_arguments()
        labels = [name for name in module.label_names if name in arguments]
        bound = {}
        if module.binded:
            bound = {
                each.name: tuple(each.shape) for each in (*module.data_shapes, *(module.label_shapes or ()))
            }
        given = {*(args.arg_params or ()), *(module.preloaded or ((),))[0]}
        if module.binded:
            given.update(arguments)
        feed = feed_of(module.symbol, desc, module.data_names, labels, parts, bound, given)
        self._feeds[id(module)] = module, key, feed
        return feed


def _optimizer_of(program: TrainableProgram) -> Any:
    """Return a program's optimizer."""
    if program.optimizer is None:
        raise StateError(
            "run_from_files: the program has no optimizer, and can only be run by infer_from_files"
        )
    return program.optimizer
