"""Programs of an executor: a Module, a Symbol or a `TrainableProgram`, bound for a feed."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
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


@runtime_checkable
class TrainableProgram(Protocol):
    """Protocol of programs other than a Module or a Symbol.

    Attributes:
        optimizer: the optimizer; None for prediction only.
    """

    symbol: Symbol
    store: ParamStore
    optimizer: Any


@dataclass(frozen=True, slots=True)
class BoundProgram:
    """A program bound for a feed.

    Args:
        module: module over the program's store, with the optimizer for training.
        tables: tables that are spread over processes, see `SpreadTables`; `module` is then that of the workers.
    """

    module: Module
    feed: SlotFeed
    fetches: Fetches
    train: bool
    tables: Any = None

    @property
    def key(self) -> tuple[Any, ...]:
        """Key of programs that can use the same workers."""
        module = self.module
        inputs = tuple((d.name, d.shape, str(d.dtype)) for d in (*self.feed.data, *self.feed.labels))
        optimizer = id(module.optimizer) if self.train else None
        return id(module.group.store), self.fetches.heads.graph.key, inputs, self.train, optimizer


def input_names(symbol: Symbol, slots: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the data arguments and the label arguments of a symbol: those with the name of a slot."""
    labels = symbol.graph.labels
    fed = [name for name in symbol.list_arguments() if name in slots]
    return [name for name in fed if name not in labels], [name for name in fed if name in labels]


def _check_module(module: Module) -> None:
    """Raise ArgumentError for a bound module that workers cannot copy."""
    contexts, states = module.group.contexts, module.group.state_names
    if len(contexts) != 1 or contexts[0].device_type != "cpu":
        raise ArgumentError(
            f"the module is on {', '.join(map(str, contexts))}, but workers train on one CPU; "
            "create it with context=mx.cpu()"
        )
    if states:
        raise ArgumentError(
            f"the module has states between batches, {', '.join(states)}, which are not supported for files"
        )


def make_ready(
    module: Module,
    feed: SlotFeed,
    store: ParamStore | None,
    train: bool,
    args: RunArguments,
    spread: Callable[[], Any] | None = None,
) -> Any:
    """Bind a module, initialize its parameters and install the optimizer, unless already done.

    Args:
        store: store of its parameters; None: its own.
        spread: spreads the tables of the module, instead of installing the optimizer, if it does not return None.

    Returns:
        The result of `spread`, if it has been called.
    """
    if not module.binded or (train and not module.for_training):
        labels = list(feed.labels) or None
        module.bind(list(feed.data), labels, train, force_rebind=module.binded, store=store)
    _check_module(module)
    if not train:
        if module.stage < Stage.INITIALIZED:
            raise StateError(
                "infer_from_files: the program has no parameters yet; train it, or set or load parameters first"
            )
        return None
    if module.stage < Stage.INITIALIZED:
        initializer = Uniform(0.01) if args.initializer is None else args.initializer
        module.init_params(initializer, args.arg_params, args.aux_params, allow_missing=True)
    tables = None
    if module.stage < Stage.READY:
        tables = None if spread is None else spread()
        if tables is None:
            module.init_optimizer(None, *args.how_to_update())
    return tables


def metric_outputs(symbol: Symbol, num_labels: int) -> list[str]:
    """Return the outputs for a metric: all, or only losses if their number is that of the labels."""
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
    """A value to average.

    Args:
        output: its index among the heads; None for an input, which is read from the batch.
    """

    name: str
    output: int | None


@dataclass(frozen=True, slots=True)
class Fetches:
    """Values that a run averages, and a symbol with these outputs.

    Args:
        items: the values in the caller's order.
        heads: the program's outputs, followed by additional fetched outputs.
    """

    items: tuple[Fetch, ...]
    heads: Symbol

    @classmethod
    def find(cls, symbol: Symbol, fetch: Any, slots: Collection[str]) -> Fetches:
        """Resolve the argument `fetch`.

        Args:
            fetch: one or several names or symbols; None: nothing.
        """
        requested: Sequence[Any] = (
            fetch if isinstance(fetch, (list, tuple)) else () if fetch is None else (fetch,)
        )
        outputs = symbol.list_outputs()
        extras: list[Symbol] = []
        items = []
        for item in requested:
            name, value = _resolve_fetch(symbol, item, slots)
            if value is None:
                items.append(Fetch(name, None))
            elif value.list_outputs()[0] in outputs:
                items.append(Fetch(name, outputs.index(value.list_outputs()[0])))
            else:
                items.append(Fetch(name, len(outputs) + len(extras)))
                extras.append(block_gradient(value, name=f"fetch{len(extras)}_{value.name}"))
        return cls(tuple(items), Group([symbol, *extras]) if extras else symbol)

    @property
    def names(self) -> list[str]:
        """Names of the values for the caller."""
        return [item.name for item in self.items]

    def check_shapes(self, feed: SlotFeed) -> None:
        """Raise ShapeError for a value without one number per line."""
        inputs: Mapping[str, tuple[int, ...]] = {desc.name: desc.shape for desc in (*feed.data, *feed.labels)}
        shapes = self.heads.infer_shape_partial(**inputs)[1]
        for item in self.items:
            shape = inputs[item.name] if item.output is None else tuple(shapes[item.output])
            lines = feed.desc.batch_size
            if len(shape) and shape[-1] != 1 and shape != (lines,):
                raise ShapeError(
                    f"fetch: {item.name!r} has shape {shape}, expected one number per line, of shape ({lines},), "
                    f"({lines}, 1) or ragged, or a scalar"
                )


def _resolve_fetch(symbol: Symbol, given: Any, slots: Collection[str]) -> tuple[str, Symbol | None]:
    """Return the name of a fetch and its symbol, None for an input."""
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
        f"fetch: {given!r} is not an output or slot of the program; its outputs are {', '.join(symbol.list_outputs())}"
        f"{did_you_mean(given, known)}"
    )


def _resolve_symbol(symbol: Symbol, given: Symbol, slots: Collection[str]) -> tuple[str, Symbol | None]:
    if len(given.entries) != 1:
        raise ArgumentError(f"fetch: {given!r} has {len(given.entries)} outputs; give one output at a time")
    name = given.list_outputs()[0]
    if given.entries[0][0].op is None and name in slots:
        return name, None
    unknown = [name for name in given.list_inputs() if name not in symbol.list_inputs()]
    if unknown:
        raise ArgumentError(
            f"fetch: {name!r} depends on {', '.join(unknown)}, which the program does not have"
        )
    return name, given


class ProgramCache:
    """Modules of programs, created on first use, and the shared store of symbols."""

    # keys are ids: the tables keep their objects alive, so that ids are not reused

    def __init__(self, context: Context) -> None:
        self._context = context
        self._scope = ParamStore([context])
        self._modules: dict[int, tuple[Any, Module]] = {}
        self._feeds: dict[int, tuple[Module, Any, SlotFeed]] = {}
        self._prepared: dict[int, BoundProgram] = {}
        self._first: dict[int, tuple[Module, RunArguments]] = {}
        self._spread: dict[int, tuple[Module, Any]] = {}

    def prepare(
        self,
        program: Any,
        desc: DataFeedDesc,
        parts: Sequence[FileRange],
        fetch: Any,
        train: bool,
        args: RunArguments,
        spread: Callable[[BoundProgram, RunArguments], Any] | None = None,
    ) -> BoundProgram:
        """Return a program bound for a feed.

        Args:
            spread: spreads the tables of a program over processes; returns None if they stay whole.
        """
        module, store = self._module_of(program, desc)
        feed = self._feed_of(module, desc, parts, args)
        names = [desc.name for desc in (*feed.data, *feed.labels)]
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
            if is_own:  # the program sets the divisor of gradients itself
                warnings.simplefilter("ignore", UserWarning)
            bound = BoundProgram(module, feed, fetches, train)
            found = make_ready(
                module, feed, store, train, args, None if spread is None else partial(spread, bound, args)
            )
            if found is not None:
                self._spread[id(module)] = module, found
            _, tables = self._spread.get(id(module), (module, None))
            if tables is not None:
                bound = replace(bound, module=tables.worker if train else module, tables=tables)
            elif is_own and train and module.optimizer is not program.optimizer:
                module.init_optimizer(None, program.optimizer, force_init=True)
        self._prepared[id(program)] = bound
        return bound

    def _warn_ignored(self, module: Module, args: RunArguments) -> None:
        """Warn of changed keywords that have an effect only in the first run."""
        if module.stage < Stage.READY:
            self._first[id(module)] = module, args
            return
        _, before = self._first.get(id(module), (module, None))
        for name in ("initializer", "arg_params", "aux_params", "optimizer", "optimizer_params"):
            value, first = getattr(args, name), getattr(before, name, None)
            has_arrays = name in ("arg_params", "aux_params")  # which cannot be compared with `!=`
            if value is not None and value is not first and (has_arrays or value != first):
                _logger.warning(
                    "run_from_files: %s is used only in a program's first run and is ignored now", name
                )

    def module(self, program: Any) -> Module:
        """Return a program's module."""
        if isinstance(program, Module):
            return program
        known = self._modules.get(id(program))
        if known is None or not known[1].binded:
            raise StateError("the program has no parameters in this executor, since it has not been run")
        return known[1]

    def last(self, program: Any) -> BoundProgram | None:
        """Return the last bound form of a program, None if there is none."""
        return self._prepared.get(id(program))

    def _module_of(self, program: Any, desc: DataFeedDesc) -> tuple[Module, ParamStore | None]:
        """Return the module of a program, and the store to bind it to."""
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
                f"the program is of type {type(program).__name__}, expected a Module, a Symbol, or an object with "
                "the attributes symbol, store and optimizer"
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
        """Return the `SlotFeed` of a module, cached for the same slots."""
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
                desc.name: tuple(desc.shape) for desc in (*module.data_shapes, *(module.label_shapes or ()))
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
        raise StateError("run_from_files: the program has no optimizer; use infer_from_files, or add one")
    return program.optimizer
