"""`Program`: heads of a symbol with named variables, an optimizer and a store; the current programs of layers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from ..base import ArgumentError, ShapeError, StateError, did_you_mean
from ..initializer import Initializer
from ..optimizer import Optimizer
from ..params import ParamStore
from ..symbol import BlockGrad as block_gradient
from ..symbol import Group, Symbol
from ..symbol import MakeLoss as make_loss
from ..symbol import Variable as symbol_variable
from .scope import ProgramGroup, Scope, global_scope
from .variable import Data, ParamAttr, Parameter, Shape, Variable

V = TypeVar("V", bound=Variable)


@dataclass(frozen=True)
class ParameterInit:
    """Initialization of a parameter.

    Args:
        shape: its shape.
        is_state: whether a layer updates it.
    """

    shape: Shape
    dtype: str
    initializer: Initializer
    is_state: bool


class TrainingSetup:
    """Loss and optimizer of a program; each scope has an optimizer of its own, which counts updates."""

    def __init__(self, loss: Variable, make: Callable[[], Optimizer], penalty: Symbol | None) -> None:
        self.loss = loss
        self.penalty = penalty
        self._make = make
        self._optimizers: WeakKeyDictionary[Scope, Optimizer] = WeakKeyDictionary()
        self.restart()

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer in the current scope."""
        scope = global_scope()
        if scope not in self._optimizers:
            self._optimizers[scope] = self._make()
        return self._optimizers[scope]

    def restart(self) -> None:
        """Recreate the optimizer, when parameters are initialized again."""
        self._optimizers[global_scope()] = self._make()


class Program:
    """A network of layers: its variables by name, its loss and its optimizer.

    It implements the protocol of programs of `mx.AsyncExecutor`.

    Attributes:
        initial_values: of a startup program: initialization of parameters by name.
        is_test: whether it runs in prediction mode, without dropout.
        random_seed: of a startup program: seed of parameters; 0: that of `mx.random.seed`.
        gradient_clip: of `clip.set_gradient_clip`, or None.
        feeder: a loader that feeds it, or None.
        differentiated: the loss of `append_backward`, or None.
    """

    def __init__(self) -> None:
        self._training: TrainingSetup | None = None
        self.initial_values: dict[str, ParameterInit] = {}
        self.is_test = False
        self.random_seed = 0
        self.gradient_clip: Any = None
        self._variables: dict[str, Variable] = {}
        self._group: ProgramGroup | None = None
        self._startup_group: ProgramGroup | None = None
        self._heads: tuple[Any, Symbol] | None = None
        feeder: Any = None
        self.feeder = feeder
        self.differentiated: Variable | None = None

    def __repr__(self) -> str:
        trained = "" if self.optimizer is None else f", trained by {type(self.optimizer).__name__}"
        return f"<Program of {len(self._variables)} variables, {len(self.initial_values)} to initialize{trained}>"

    # training

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer; None before `minimize` of a fluid optimizer."""
        return None if self._training is None else self._training.optimizer

    @property
    def loss(self) -> Variable | None:
        """The loss; None before `minimize`."""
        return None if self._training is None else self._training.loss

    def train_for(
        self,
        loss: Variable,
        make: Callable[[], Optimizer],
        penalty: Symbol | None = None,
    ) -> None:
        """Set the loss and the optimizer.

        Args:
            loss: the loss to minimize.
            make: function that returns the optimizer.
            penalty: what is minimized in addition, but not part of the loss.

        Raises:
            StateError: the program already has an optimizer.
        """
        if self._training is not None:
            raise StateError(
                "minimize: the program already has an optimizer; add the losses, or create another program"
            )
        self._training = TrainingSetup(loss, make, penalty)

    def restart_training(self) -> None:
        """Recreate the optimizer, if there is one."""
        if self._training is not None:
            self._training.restart()

    # heads and parameters

    @property
    def group(self) -> ProgramGroup:
        """The programs with its parameters: those of its startup program, by default of the current one."""
        if self._group is None:
            self._group = default_startup_program().startup_group
        return self._group

    @property
    def startup_group(self) -> ProgramGroup:
        """As a startup program: the programs whose parameters it initializes."""
        if self._startup_group is None:
            self._startup_group = ProgramGroup()
        return self._startup_group

    @property
    def store(self) -> ParamStore:
        """The parameters, in the current scope."""
        return self.group.store

    @property
    def symbol(self) -> Symbol:
        """The loss, if there is one, and every variable that is not an input of others.

        Raises:
            StateError: the program has no layers.
        """
        key = (len(self._variables), self.loss)
        if self._heads is None or self._heads[0] != key:
            self._heads = key, self._made_heads()
        return self._heads[1]

    def _made_heads(self) -> Symbol:
        computed = [each for each in self._variables.values() if each.is_computed]
        if not computed:
            raise StateError(
                f"{self!r} has no layers to run; run a startup program with Executor.run(program)"
            )
        used = {child for each in computed for node in each.symbol.graph.nodes for child in node.inputs}
        ends = [each for each in computed if each.symbol.entries[0] not in used and each is not self.loss]
        if self.loss is None:
            return Group([each.symbol for each in ends])
        kept = [block_gradient(each.symbol, name=f"{each.name}_end") for each in ends]
        losses = [make_loss(self.loss.symbol, name=f"{self.loss.name}_loss")]
        if self._training is not None and self._training.penalty is not None:
            losses.append(make_loss(self._training.penalty, name=f"{self.loss.name}_penalty"))
        return Group([*losses, *kept])

    def data_of(self, symbol: Symbol) -> list[Data]:
        """Return the data that a symbol depends on.

        Args:
            symbol: one whose arguments are variables of this program.
        """
        arguments = (self.var(name) for name in symbol.list_arguments())
        return [each for each in arguments if isinstance(each, Data)]

    # variables

    def join(self, startup: Program) -> None:
        """Use the parameters of a startup program.

        Args:
            startup: program that initializes the parameters.

        Raises:
            StateError: the program already uses those of another one.
        """
        if self._group is None:
            self._group = startup.startup_group
        elif self._group is not startup.startup_group:
            raise StateError(
                "the program has parameters of another startup program; pass that one to program_guard"
            )

    def add(self, variable: V) -> V:
        """Add a variable, and return it.

        Args:
            variable: a new value of this program.

        Raises:
            ArgumentError: the name is in use.
        """
        if variable.name in self._variables:
            raise ArgumentError(f"the program already has a variable {variable.name!r}; choose another name")
        self._variables[variable.name] = variable
        return variable

    def derive(
        self,
        hint: str,
        make: Callable[[str], Symbol],
        shape: Shape | None = None,
        dtype: str | None = None,
        lod_level: int = 0,
        name: str | None = None,
    ) -> Variable:
        """Add a variable that is computed from other variables.

        Args:
            make: function from a name to its symbol.
            shape: its shape, if known.
            dtype: its element type, if known.
            lod_level: 1 if it is ragged.
            name: its name; None: one made from `hint`.
        """
        name = self.unique(hint) if name is None else name
        return self.add(Variable(self, make(name), name, shape, dtype, lod_level))

    def unique(self, hint: str) -> str:
        """Return the next free name with a prefix.

        Args:
            hint: the prefix, such as ``"fc"``; a number is appended.
        """
        names = self.group.names
        while True:
            name = names.generate(hint)
            if name not in self._variables:
                return name

    def create_parameter(
        self,
        startup: Program,
        name: str,
        shape: Shape,
        dtype: str,
        attr: ParamAttr,
        initializer: Initializer,
        kind: type[Parameter] = Parameter,
    ) -> Parameter:
        """Return a parameter, which is created unless it exists.

        Args:
            startup: the program that initializes it.
            name: its name, if `attr` has none.
            shape: length of each axis.
            attr: its attributes from the layer.
            initializer: its initializer, if `attr` has none.
            kind: `LayerState` for a variable that a layer updates.

        Raises:
            ShapeError: it exists with another shape.
            ArgumentError: it exists, but is of another kind.
        """
        self.join(startup)
        name = attr.name or name
        known = self._variables.get(name)
        first = startup.initial_values.get(name)
        if known is not None and type(known) is not kind:
            raise ArgumentError(
                f"param_attr: {name!r} is of type {type(known).__name__}, expected a {kind.__name__}; choose another "
                "name"
            )
        for other in (known, first):
            if other is not None and other.shape != shape:
                raise ShapeError(f"parameter {name!r} has shape {other.shape}, but this layer needs {shape}")
        if known is not None:
            return known
        chosen = attr.initializer or initializer
        if first is None:
            startup.initial_values[name] = ParameterInit(shape, dtype, chosen, kind.is_state)
        symbol = symbol_variable(name, shape=shape, dtype=dtype, init=chosen)
        return self.add(kind(self, symbol, name, shape, dtype, attr))

    def find(self, name: str) -> Variable | None:
        """Return a variable by name, None if there is none.

        Args:
            name: name of a layer's result, or of `fluid.layers.data`.
        """
        return self._variables.get(name)

    def var(self, name: str) -> Variable:
        """Return a variable by name.

        Args:
            name: name of a layer's result, or of `fluid.layers.data`.

        Raises:
            ArgumentError: the name is unknown.
        """
        if name not in self._variables:
            raise ArgumentError(f"the program has no variable {name!r}{did_you_mean(name, self._variables)}")
        return self._variables[name]

    def list_vars(self) -> list[Variable]:
        """Return all variables."""
        return list(self._variables.values())

    def all_parameters(self) -> list[Parameter]:
        """Return the parameters."""
        return [each for each in self._variables.values() if isinstance(each, Parameter)]

    def global_block(self) -> Program:
        """Return the program itself, which has no other blocks."""
        return self

    current_block = global_block

    def block(self, index: int) -> Program:
        """Return the program itself; see `global_block`.

        Args:
            index: must be 0.

        Raises:
            ArgumentError: it is not 0.
        """
        if index != 0:
            raise ArgumentError(f"block: index is {index!r}, expected 0: a program has one block")
        return self

    def clone(self, for_test: bool = False) -> Program:
        """Return a program with the same variables and parameters.

        Args:
            for_test: whether to drop loss and optimizer, and to disable dropout.
        """
        other = Program()
        other._group = self.group
        other._variables, other.feeder = dict(self._variables), self.feeder
        other.is_test, other.random_seed = for_test or self.is_test, self.random_seed
        if not for_test:
            other._training = self._training
            other.initial_values, other._startup_group = dict(self.initial_values), self._startup_group
        return other


def load_values(
    store: ParamStore, declared: Mapping[str, ParameterInit | Parameter], values: Mapping[str, Any]
) -> None:
    """Copy values of parameters and states to a store, which allocates them if needed.

    Args:
        declared: shapes, types and kinds by name.
    """
    for name in values:
        each = declared[name]
        if each.is_state:
            store.declare_aux(name, each.shape, each.dtype)
        else:
            store.declare(name, each.shape, each.dtype, needs_grad=False)
    states = {name: value for name, value in values.items() if declared[name].is_state}
    store.load({name: value for name, value in values.items() if name not in states}, states)


class _CurrentPrograms(threading.local):
    """The current programs of a thread."""

    def __init__(self) -> None:
        self.main, self.startup = _MAIN, _STARTUP


_MAIN, _STARTUP = Program(), Program()
_current = _CurrentPrograms()


def default_main_program() -> Program:
    """Return the program that layers are added to."""
    return _current.main


def default_startup_program() -> Program:
    """Return the program that initializes the parameters of layers."""
    return _current.startup


@contextmanager
def program_guard(main_program: Program, startup_program: Program | None = None) -> Iterator[None]:
    """Set the current programs inside a ``with`` statement.

    Args:
        main_program: program that layers are added to.
        startup_program: program that initializes their parameters; None: the current one.

    Raises:
        ArgumentError: an argument is not a program.
    """
    for name, given in (("main_program", main_program), ("startup_program", startup_program)):
        if not isinstance(given, Program) and (given is not None or name == "main_program"):
            raise ArgumentError(f"program_guard: {name} is {given!r}, expected a Program")
    before = _current.main, _current.startup
    _current.main = main_program
    _current.startup = _current.startup if startup_program is None else startup_program
    try:
        yield
    finally:
        _current.main, _current.startup = before
