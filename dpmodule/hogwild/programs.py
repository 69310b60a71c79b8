"""The programs of one executor: their modules, and what they were last made ready for."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import Any

from ..base import ArgumentError, StateError
from ..context import Context
from ..module import Module
from ..module.lifecycle import Stage
from ..params import ParamStore
from ..symbol import Symbol
from .arguments import RunArguments
from .data_feed_desc import DataFeedDesc
from .data_files import Part
from .fetches import Fetches
from .program import BoundProgram, TrainableProgram, input_names, make_ready
from .slot_feed import SlotFeed, feed_of

_logger = logging.getLogger(__name__)

# keys are identities: each table keeps alive what they are of, so that nothing else comes to have them

_Entry = tuple[Any, Module, ParamStore | None]
"""A program, which is kept alive so that nothing else has its identity; its module; where its parameters are."""


class Programs:
    """Modules for programs, made when a program first comes, and the store of those that are symbols."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._scope = ParamStore([context])
        self._entries: dict[int, _Entry] = {}
        self._feeds: dict[int, tuple[Module, Any, SlotFeed]] = {}
        self._prepared: dict[int, BoundProgram] = {}
        self._first: dict[int, tuple[Module, RunArguments]] = {}

    def prepare(
        self,
        program: Any,
        desc: DataFeedDesc,
        parts: Sequence[Part],
        fetch: Any,
        train: bool,
        args: RunArguments,
    ) -> BoundProgram:
        """Return a program that is bound for a feed."""
        module, store = self._module_for(program, desc)
        feed = self._feed_for(module, desc, parts, args)
        names = [each.name for each in (*feed.data, *feed.labels)]
        fetches = Fetches.find(module.symbol, fetch, names)
        if train:
            fetches.check_shapes(feed)
        args.metric()
        is_own = not isinstance(program, (Module, Symbol))
        if is_own and train:
            args = args.with_optimizer(_optimizer_of(program))
        elif train:
            self._tell_ignored(module, args)
        with warnings.catch_warnings():
            if is_own:  # by what gradients are divided, the program has said
                warnings.simplefilter("ignore", UserWarning)
            make_ready(module, feed, store, train, args)
            if is_own and train and module.optimizer is not program.optimizer:
                module.init_optimizer(None, program.optimizer, force_init=True)
        found = BoundProgram(module, feed, fetches, train)
        self._prepared[id(program)] = found
        return found

    def _tell_ignored(self, module: Module, args: RunArguments) -> None:
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
        found = self._entries.get(id(program))
        if found is None or not found[1].binded:
            raise StateError(
                "the program has not been run by this executor, so that it has no parameters here"
            )
        return found[1]

    def last(self, program: Any) -> BoundProgram | None:
        """Return what a program was last made ready for, None if it never was."""
        return self._prepared.get(id(program))

    def _module_for(self, program: Any, desc: DataFeedDesc) -> tuple[Module, ParamStore | None]:
        """Return a program's module, and where it is to be bound."""
        slots = [slot.name for slot in desc.slots]
        if isinstance(program, Module):
            self._entries[id(program)] = program, program, None
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
        known = self._entries.get(id(program))
        if (
            known is None
            or (known[1].data_names, known[1].label_names) != (data, labels)
            or known[1].symbol is not symbol
        ):
            module = Module(symbol, data, labels, context=self._context)
            known = self._entries[id(program)] = program, module, store
        return known[1], store

    def _feed_for(
        self, module: Module, desc: DataFeedDesc, parts: Sequence[Part], args: RunArguments
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
