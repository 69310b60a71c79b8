"""`Runs`: the modules that run one program over its scope's parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import random
from ..base import StateError
from ..context import cpu
from ..initializer import InitDesc
from ..io import DataDesc
from ..module import Module
from ..ndarray import zeros
from ..optimizer.states import dump_states, load_states
from ..symbol import Symbol
from .program import Program


class Runs:
    """The modules that run one program: one that trains it, and those that have its fetches among their outputs."""

    def __init__(self) -> None:
        self._trainer: tuple[Symbol, Module] | None = None
        self._others: dict[Any, tuple[Symbol, Module]] = {}
        self._states: bytes | None = None

    def trainer(self, program: Program, descs: Sequence[DataDesc]) -> Module:
        """Return the module that trains the program, with its optimizer.

        Args:
            descs: descriptions of what is fed, should it not be bound yet.
        """
        symbol, before = program.symbol, self._trainer
        if before is not None and before[0] is symbol:
            return before[1]
        check_filled(program, symbol)
        module = Module(symbol, [each.name for each in descs], None)
        if before is not None:
            module.bind(list(descs), None, shared_module=before[1])
        else:
            module.bind(list(descs), None, store=program.store)
            self._install(program, module)
        self._trainer = symbol, module
        self._others.clear()
        if self._states is not None:
            self.load_states(self._states)
            self._states = None
        return module

    def _install(self, program: Program, module: Module, anew: bool = False) -> None:
        """Give a module the program's optimizer."""
        optimizer = program.optimizer
        if optimizer is None:
            raise StateError("the program has no optimizer; call minimize() of one")
        optimizer.rescale_grad = 1.0 / module.group.num_samples  # else the module warns of another one
        module.init_optimizer(None, optimizer, force_init=anew)
        optimizer.rescale_grad = 1.0

    def module(self, program: Program, heads: Symbol, key: Any, descs: Sequence[DataDesc]) -> Module:
        """Return a module that has certain outputs, and trains if the program has an optimizer."""
        trainer = None if program.optimizer is None else self.trainer(program, descs)
        known = self._others.get(key)
        if known is not None:
            return known[1]
        check_filled(program, heads)
        module = Module(heads, [each.name for each in descs], None)
        if trainer is None:
            module.bind(list(descs), None, for_training=False, store=program.store)
        else:
            module.bind(list(descs), None, shared_module=trainer)
        self._others[key] = heads, module
        return module

    def heads(self, key: Any) -> Symbol | None:
        """Return the outputs that a module was made for, None if there is none."""
        known = self._others.get(key)
        return None if known is None else known[0]

    def states(self) -> bytes | None:
        """Return the optimizer's states and counts, None before it has trained."""
        if self._trainer is None:
            return None
        return self._trainer[1].updates.active_updater().get_states(dump_optimizer=True)

    def load_states(self, states: bytes) -> None:
        """Take the optimizer's states and counts, at once or when there is an optimizer."""
        found, saved = load_states(states)
        if self._trainer is None:
            self._states = states
            return
        updater = self._trainer[1].updates.active_updater()
        updater.set_states(dump_states(found, None))
        if saved is not None:
            updater.optimizer.take_counts(saved, list(updater.states))

    def begin_anew(self, program: Program) -> None:
        """Begin the optimizer's states and counts anew."""
        self._states = None
        program.begin_training_anew()
        if self._trainer is None:
            return
        self._install(program, self._trainer[1], anew=True)
        self._others.clear()


def runs_of(program: Program) -> Runs:
    """Return what runs a program."""
    runs: Runs = program.scope.runs.setdefault(program, Runs())
    return runs


def check_filled(program: Program, symbol: Symbol) -> None:
    """Refuse to run before the parameters have values."""
    filled = program.store.filled
    empty = [name for name in symbol.list_arguments() if not program.var(name).is_data and name not in filled]
    if empty:
        raise StateError(
            f"{', '.join(empty)}: parameters without values; run the startup program first, as in "
            "executor.run(fluid.default_startup_program()), or load them"
        )


def data_descs(program: Program, shapes: Mapping[str, tuple[int, ...]]) -> list[DataDesc]:
    """Return descriptions of what is fed.

    Args:
        shapes: of a batch, by name.
    """
    found = []
    for name, shape in shapes.items():
        variable = program.var(name)
        stype = "ragged" if variable.lod_level else "default"
        found.append(DataDesc(name, shape, variable.dtype, stype=stype))
    return found


def initialize(program: Program) -> None:
    """Give the parameters of a startup program their first values, and let their optimizers begin anew."""
    if program.random_seed:
        random.seed(program.random_seed)
    scope = program.started_scope
    values = {}
    for name, first in program.first_values.items():
        values[name] = zeros(first.shape, cpu(), first.dtype)
        attributes = {"__init__": first.initializer.dumps()}
        first.initializer(InitDesc(name, attributes), values[name])
        scope.store.declare(name, first.shape, first.dtype, needs_grad=False)
    scope.store.load(values, {})
    for other, runs in list(scope.runs.items()):
        runs.begin_anew(other)
