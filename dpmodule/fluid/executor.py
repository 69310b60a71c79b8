"""`Executor` and `AsyncExecutor`: run programs on batches or files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import random
from .._core.closing import Closing
from ..base import ArgumentError, DeviceError, DTypeError, StateError
from ..context import Context, cpu
from ..executor.sparse_arrays import is_sparse
from ..hogwild.async_executor import AsyncExecutor as FileExecutor
from ..hogwild.data_feed_desc import DataFeedDesc
from ..initializer import InitDesc
from ..io import DataBatch, DataDesc
from ..module import Module
from ..ndarray import zeros
from ..optimizer.states import dump_states, load_states
from ..symbol import BlockGrad as block_gradient
from ..symbol import Group, Symbol
from .feeding import as_bound_shape, check_indices, feed_arrays
from .program import Program, default_main_program
from .variable import Data, Variable


class CPUPlace:
    """The CPU, the only place to run programs."""

    def __repr__(self) -> str:
        return "CPUPlace"


def context_of(place: Any) -> Context:
    """Return the context of a place, by default the CPU."""
    is_cpu = place is None or isinstance(place, CPUPlace)
    if not is_cpu and not (isinstance(place, Context) and place.device_type == "cpu"):
        raise DeviceError(
            f"place is {place!r}, expected CPUPlace(); to use a GPU, run the program's symbol in a Module"
        )
    return cpu()


class ProgramRunner:
    """The modules of a program: one that trains it, and others with fetches among their outputs."""

    def __init__(self) -> None:
        self._trainer: tuple[Symbol, Module] | None = None
        self._inference: dict[Any, tuple[Symbol, Module]] = {}
        self._states: bytes | None = None

    def trainer(self, program: Program, descs: Sequence[DataDesc]) -> Module:
        """Return the module that trains the program, with its optimizer.

        Args:
            descs: descriptions of the feed, to bind the module.
        """
        symbol, before = program.symbol, self._trainer
        if before is not None and before[0] is symbol:
            return before[1]
        check_initialized(program, symbol)
        module = Module(symbol, [desc.name for desc in descs], None)
        if before is not None:
            module.bind(list(descs), None, shared_module=before[1])
        else:
            module.bind(list(descs), None, store=program.store)
            self._install(program, module)
        self._trainer = symbol, module
        self._inference.clear()
        if self._states is not None:
            self.load_states(self._states)
            self._states = None
        return module

    def _install(self, program: Program, module: Module, reinitialize: bool = False) -> None:
        """Install the program's optimizer in a module."""
        optimizer = program.optimizer
        if optimizer is None:
            raise StateError("the program has no optimizer; call minimize() of an optimizer")
        optimizer.rescale_grad = 1.0 / module.group.num_samples  # otherwise the module warns of another value
        module.init_optimizer(None, optimizer, force_init=reinitialize)
        optimizer.rescale_grad = 1.0

    def module(self, program: Program, heads: Symbol, key: Any, descs: Sequence[DataDesc]) -> Module:
        """Return a module with given outputs, which trains if the program has an optimizer."""
        trainer = None if program.optimizer is None else self.trainer(program, descs)
        known = self._inference.get(key)
        if known is not None:
            return known[1]
        check_initialized(program, heads)
        module = Module(heads, [desc.name for desc in descs], None)
        if trainer is None:
            module.bind(list(descs), None, for_training=False, store=program.store)
        else:
            module.bind(list(descs), None, shared_module=trainer)
        self._inference[key] = heads, module
        return module

    def heads(self, key: Any) -> Symbol | None:
        """Return the outputs of a cached module, None if there is none."""
        known = self._inference.get(key)
        return None if known is None else known[0]

    def states(self) -> bytes | None:
        """Return the optimizer's states and counts, None before training."""
        if self._trainer is None:
            return None
        return self._trainer[1].updates.active_updater().get_states(dump_optimizer=True)

    def load_states(self, states: bytes) -> None:
        """Load the optimizer's states and counts, now or when there is an optimizer."""
        loaded, saved = load_states(states)
        if self._trainer is None:
            self._states = states
            return
        updater = self._trainer[1].updates.active_updater()
        updater.set_states(dump_states(loaded, None))
        if saved is not None:
            updater.optimizer.take_counts(saved, list(updater.states))

    def restart(self, program: Program) -> None:
        """Reset the optimizer's states and counts."""
        self._states = None
        program.restart_training()
        if self._trainer is None:
            return
        self._install(program, self._trainer[1], reinitialize=True)
        self._inference.clear()


def runner_of(program: Program) -> ProgramRunner:
    """Return the runner of a program."""
    runner: ProgramRunner = program.scope.runners.setdefault(program, ProgramRunner())
    return runner


def check_initialized(program: Program, symbol: Symbol) -> None:
    """Raise StateError if parameters have no values."""
    filled = program.store.filled
    empty = [name for name in symbol.list_arguments() if not program.var(name).is_data and name not in filled]
    if empty:
        raise StateError(
            f"{', '.join(empty)}: these parameters have no values; run the startup program first, as in "
            "executor.run(fluid.default_startup_program()), or load them"
        )


def data_descs(program: Program, shapes: Mapping[str, tuple[int, ...]]) -> list[DataDesc]:
    """Return descriptions of a feed.

    Args:
        shapes: shapes of a batch by name.
    """
    descs = []
    for name, shape in shapes.items():
        variable = program.var(name)
        stype = "ragged" if variable.lod_level else "default"
        descs.append(DataDesc(name, shape, variable.dtype, stype=stype))
    return descs


def initialize(program: Program) -> None:
    """Initialize the parameters of a startup program, and reset their optimizers."""
    if program.random_seed:
        random.seed(program.random_seed)
    scope = program.startup_scope
    values = {}
    for name, first in program.initial_values.items():
        values[name] = zeros(first.shape, cpu(), first.dtype)
        attributes = {"__init__": first.initializer.dumps()}
        first.initializer(InitDesc(name, attributes), values[name])
        scope.store.declare(name, first.shape, first.dtype, needs_grad=False)
    scope.store.load(values, {})
    for other, runner in list(scope.runners.items()):
        runner.restart(other)


_GRADIENT = "@GRAD"


def _program(call: str, given: Any) -> Program:
    program = default_main_program() if given is None else given
    if not isinstance(program, Program):
        raise ArgumentError(
            f"{call}: program is of type {type(program).__name__}, expected a Program of fluid"
        )
    return program


def _as_list(fetch: Any) -> list[Any]:
    return [] if fetch is None else list(fetch) if isinstance(fetch, (list, tuple)) else [fetch]


def _fetch_variable(program: Program, given: Any) -> Variable:
    """Return the variable of a fetch."""
    name = given if isinstance(given, str) else getattr(given, "name", None)
    if not isinstance(given, (str, Variable)) or name is None:
        raise ArgumentError(f"fetch: {given!r} is neither a variable of fluid nor a name")
    return program.var(name)


class AsyncExecutor(Closing):
    """Trains programs from files with several workers, as `mx.AsyncExecutor` does.

    Args:
        place: `CPUPlace()`.
        timeout_s: as for `mx.AsyncExecutor`, in seconds.

    Raises:
        DeviceError: the place is not the CPU.
    """

    def __init__(self, place: Any = None, timeout_s: float = 60.0) -> None:
        self._executor = FileExecutor(context_of(place), timeout_s)

    def run_from_files(
        self,
        program: Any,
        data_feed: Any,
        filelist: Sequence[Any],
        thread_num: int,
        fetch: Any,
        debug: bool = False,
        **more: Any,
    ) -> Any:
        """Train a program on files; see `mx.AsyncExecutor.run_from_files`.

        Args:
            program: the program; None: the current one.
            data_feed: description of the lines of the files.
            thread_num: number of workers.
            fetch: one or several variables or names to average.
            debug: whether to measure the time of each stage.
            more: further arguments of `mx.AsyncExecutor.run_from_files`.

        Returns:
            The averages, in the order of `fetch`.

        Raises:
            ArgumentError: an argument is not valid.
            StateError: the startup program has not been run, or the program has no optimizer.
        """
        owner = _program("run_from_files", program)
        if not isinstance(data_feed, DataFeedDesc):
            raise ArgumentError(f"run_from_files: data_feed is {data_feed!r}, expected a DataFeedDesc")
        size = data_feed.batch_size
        shapes = {data.name: (size, *data.fed_shape[1:]) for data in owner.data_of(owner.symbol)}
        module = runner_of(owner).trainer(owner, data_descs(owner, shapes))
        names = [_fetch_variable(owner, item).name for item in _as_list(fetch)]
        return self._executor.run_from_files(module, data_feed, filelist, thread_num, names, debug, **more)

    run = run_from_files

    def close(self) -> None:
        self._executor.close()


class Executor(Closing):
    """Runs startup programs, and programs on batches or files.

    Args:
        place: `CPUPlace()`.

    Raises:
        DeviceError: the place is not the CPU.
    """

    def __init__(self, place: Any = None) -> None:
        self._place = context_of(place)
        self._files: AsyncExecutor | None = None

    def run(
        self,
        program: Any = None,
        feed: Any = None,
        fetch_list: Any = None,
        feed_var_name: str = "feed",
        fetch_var_name: str = "fetch",
        scope: None = None,
        return_numpy: bool = True,
        use_program_cache: bool = False,
    ) -> list[Any]:
        """Initialize a startup program's parameters, or run a program on a batch and train it if it has an optimizer.

        Args:
            program: the program; None: the current one.
            feed: arrays by name; sequences are ragged arrays, see `create_lod_tensor`, or lists of lists.
            fetch_list: variables or names to return; ``name@GRAD`` is the gradient of a parameter.
            scope: must be None.
            return_numpy: whether to return NumPy arrays.
            use_program_cache: ignored; modules of programs are always cached.

        Returns:
            The values in the order of `fetch_list`; parameters have their values after the step.

        Raises:
            ArgumentError: an argument is not valid or is missing.
            BoundsError: an index is not a row of its table.
            DTypeError: a fetch is ragged, and `return_numpy` is True.
            ShapeError: the shape of a feed differs from the declared one.
            StateError: the startup program has not been run.
        """
        owner = _program("run", program)
        if scope is not None:
            raise ArgumentError("run: scope is not supported; parameters belong to the startup program")
        if owner.initial_values:
            initialize(owner)
        if not owner.list_vars():
            return []
        return self._run_batch(owner, feed, _as_list(fetch_list), return_numpy)

    def _run_batch(self, program: Program, feed: Any, fetch_list: list[Any], as_numpy: bool) -> list[Any]:
        gradients = [fetch for fetch in fetch_list if isinstance(fetch, str) and fetch.endswith(_GRADIENT)]
        variables = [_fetch_variable(program, fetch) for fetch in fetch_list if fetch not in gradients]
        outputs = [variable for variable in variables if variable.is_computed]
        key = (
            id(program.symbol) if program.optimizer or not outputs else None,
            program.is_test,
            *(output.name for output in outputs),
        )
        runner = runner_of(program)
        heads = runner.heads(key)
        if heads is None:
            heads = _outputs_symbol(program, outputs)
        data = program.data_of(heads)
        values = {
            each.name: as_bound_shape(each, value)
            for each, value in zip(data, feed_arrays(program, feed, data).values())
        }
        check_indices(heads, values)
        descs = data_descs(program, {name: value.shape for name, value in values.items()})
        module = runner.module(program, heads, key, descs)
        batch = DataBatch([values[desc.name] for desc in descs], [])
        if program.optimizer is None:
            module.forward(batch, not program.is_test)
        else:
            module.forward_backward(batch)
            module.update()
        arrays = module.get_outputs()[-len(outputs) :] if outputs else []
        computed = dict(zip((output.name for output in outputs), arrays))
        results = [self._value(program, fetch, computed, feed, module) for fetch in fetch_list]
        return [_as_numpy(*pair) for pair in zip(fetch_list, results)] if as_numpy else results

    def _value(self, program: Program, fetch: Any, outputs: dict[str, Any], feed: Any, module: Any) -> Any:
        """Return the value of one fetch."""
        if isinstance(fetch, str) and fetch.endswith(_GRADIENT):
            name = program.var(fetch.removesuffix(_GRADIENT)).name
            gradient = program.store.grad(name, 0)
            if program.optimizer is None or gradient is None:
                raise ArgumentError(f"fetch: the program does not compute {fetch!r}")
            return gradient.copy()
        variable = _fetch_variable(program, fetch)
        if variable.name in outputs:
            return outputs[variable.name]
        if isinstance(variable, Data):
            return feed_arrays(program, feed, [variable])[variable.name]
        return program.store.array(variable.name, 0).copy()

    def run_from_files(
        self,
        program: Any,
        data_feed: Any,
        filelist: Sequence[Any],
        thread_num: int,
        fetch: Any,
        debug: bool = False,
        **more: Any,
    ) -> Any:
        """Train a program on files; see `AsyncExecutor.run_from_files`.

        Args:
            program: the program; None: the current one.
            data_feed: description of the lines of the files.
            filelist: paths.
            thread_num: number of workers.
            fetch: one or several variables or names to average.
            debug: whether to measure the time of each stage.
            **more: further arguments of `AsyncExecutor.run_from_files`.
        """
        if self._files is None:
            self._files = AsyncExecutor(self._place)
        return self._files.run_from_files(program, data_feed, filelist, thread_num, fetch, debug, **more)

    def close(self) -> None:
        if self._files is not None:
            self._files.close()
            self._files = None


def _outputs_symbol(program: Program, outputs: list[Variable]) -> Symbol:
    """Return the outputs of a module: in training the program's heads, followed by the fetches."""
    if program.optimizer is None:
        return Group([each.symbol for each in outputs]) if outputs else program.symbol
    kept = [block_gradient(each.symbol, name=f"fetch{i}_{each.name}") for i, each in enumerate(outputs)]
    return Group([program.symbol, *kept]) if kept else program.symbol


def _as_numpy(fetch: Any, value: Any) -> Any:
    if is_sparse(value):
        value = value.tostype("default") if value.stype != "ragged" else value
        if is_sparse(value):
            name = fetch if isinstance(fetch, str) else fetch.name
            raise DTypeError(
                f"fetch: {name!r} holds sequences, which are not a NumPy array; set return_numpy=False"
            )
    return value.asnumpy()
