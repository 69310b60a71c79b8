"""`Executor` and `AsyncExecutor`: what runs programs, on one batch or on files."""

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
    """The CPU, the only place that programs of this package run at."""

    def __repr__(self) -> str:
        return "CPUPlace"


def context_of(place: Any) -> Context:
    """Return the context of a place; that of the CPU without one."""
    is_cpu = place is None or isinstance(place, CPUPlace)
    if not is_cpu and not (isinstance(place, Context) and place.device_type == "cpu"):
        raise DeviceError(
            f"place is {place!r}, expected CPUPlace(); on GPUs run the program's symbol in a Module"
        )
    return cpu()


class ProgramRunner:
    """The modules that run one program: one that trains it, and those that have its fetches among their outputs."""

    def __init__(self) -> None:
        self._trainer: tuple[Symbol, Module] | None = None
        self._inference: dict[Any, tuple[Symbol, Module]] = {}
        self._states: bytes | None = None

    def trainer(self, program: Program, descs: Sequence[DataDesc]) -> Module:
        """Return the module that trains the program, with its optimizer.

        Args:
            descs: descriptions of what is fed, should it not be bound yet.
        """
        symbol, before = program.symbol, self._trainer
        if before is not None and before[0] is symbol:
            return before[1]
        check_initialized(program, symbol)
        module = Module(symbol, [each.name for each in descs], None)
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
        """Give a module the program's optimizer."""
        optimizer = program.optimizer
        if optimizer is None:
            raise StateError("the program has no optimizer; call minimize() of one")
        optimizer.rescale_grad = 1.0 / module.group.num_samples  # else the module warns of another one
        module.init_optimizer(None, optimizer, force_init=reinitialize)
        optimizer.rescale_grad = 1.0

    def module(self, program: Program, heads: Symbol, key: Any, descs: Sequence[DataDesc]) -> Module:
        """Return a module that has certain outputs, and trains if the program has an optimizer."""
        trainer = None if program.optimizer is None else self.trainer(program, descs)
        known = self._inference.get(key)
        if known is not None:
            return known[1]
        check_initialized(program, heads)
        module = Module(heads, [each.name for each in descs], None)
        if trainer is None:
            module.bind(list(descs), None, for_training=False, store=program.store)
        else:
            module.bind(list(descs), None, shared_module=trainer)
        self._inference[key] = heads, module
        return module

    def heads(self, key: Any) -> Symbol | None:
        """Return the outputs that a module was made for, None if there is none."""
        known = self._inference.get(key)
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

    def restart(self, program: Program) -> None:
        """Begin the optimizer's states and counts anew."""
        self._states = None
        program.restart_training()
        if self._trainer is None:
            return
        self._install(program, self._trainer[1], reinitialize=True)
        self._inference.clear()


def runner_of(program: Program) -> ProgramRunner:
    """Return what runs a program."""
    runner: ProgramRunner = program.scope.runners.setdefault(program, ProgramRunner())
    return runner


def check_initialized(program: Program, symbol: Symbol) -> None:
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
    """Return what a fetch means."""
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
        DeviceError: it is another place.
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
            program: the program; None: the present one.
            data_feed: description of the files' lines.
            thread_num: how many workers.
            fetch: variables or names, or one alone, whose averages are returned.
            debug: whether time is taken by stage.
            more: further arguments of `mx.AsyncExecutor.run_from_files`.

        Returns:
            the averages, in the order of `fetch`.

        Raises:
            ArgumentError: an argument is none that there is.
            StateError: the startup program has not been run, or the program has no optimizer.
        """
        owner = _program("run_from_files", program)
        if not isinstance(data_feed, DataFeedDesc):
            raise ArgumentError(f"run_from_files: data_feed is {data_feed!r}, expected a DataFeedDesc")
        size = data_feed.batch_size
        shapes = {each.name: (size, *each.fed_shape[1:]) for each in owner.data_of(owner.symbol)}
        module = runner_of(owner).trainer(owner, data_descs(owner, shapes))
        found = [_fetch_variable(owner, each).name for each in _as_list(fetch)]
        return self._executor.run_from_files(module, data_feed, filelist, thread_num, found, debug, **more)

    run = run_from_files

    def close(self) -> None:
        self._executor.close()


class Executor(Closing):
    """Runs programs: a startup program, a batch, or files.

    Args:
        place: `CPUPlace()`.

    Raises:
        DeviceError: it is another place.
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
            program: the program; None: the present one.
            feed: arrays by name; of sequences a ragged array, see `create_lod_tensor`, or a list of lists.
            fetch_list: variables or names whose values are returned; also ``name@GRAD``, the gradient of a parameter.
            scope: accepted as None.
            return_numpy: whether values are returned as NumPy arrays.
            use_program_cache: accepted; what was made for a program is always used again.

        Returns:
            the values, in the order of `fetch_list`; parameters as they are after the step.

        Raises:
            ArgumentError: an argument is none that there is, or is missing.
            BoundsError: a number that is looked up is no row of its table.
            DTypeError: a fetch holds sequences, and NumPy arrays are asked for.
            ShapeError: what is fed has another shape than was declared.
            StateError: the startup program has not been run.
        """
        owner = _program("run", program)
        if scope is not None:
            raise ArgumentError("run: scope is given; parameters belong to the startup program here")
        if owner.initial_values:
            initialize(owner)
        if not owner.list_vars():
            return []
        return self._run_batch(owner, feed, _as_list(fetch_list), return_numpy)

    def _run_batch(self, program: Program, feed: Any, fetch_list: list[Any], as_numpy: bool) -> list[Any]:
        gradients = [each for each in fetch_list if isinstance(each, str) and each.endswith(_GRADIENT)]
        wanted = [_fetch_variable(program, each) for each in fetch_list if each not in gradients]
        outputs = [each for each in wanted if each.is_computed]
        key = (
            id(program.symbol) if program.optimizer or not outputs else None,
            program.is_test,
            *(each.name for each in outputs),
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
        batch = DataBatch([values[each.name] for each in descs], [])
        if program.optimizer is None:
            module.forward(batch, not program.is_test)
        else:
            module.forward_backward(batch)
            module.update()
        arrays = module.get_outputs()[-len(outputs) :] if outputs else []
        found = dict(zip((each.name for each in outputs), arrays))
        whole = [self._value(program, each, found, feed, module) for each in fetch_list]
        return [_as_numpy(*each) for each in zip(fetch_list, whole)] if as_numpy else whole

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
            program: what to train; it, and all other arguments, may be others in the next call.
            data_feed: description of the lines. A slot feeds the variable of its name as that is declared:
                ragged, or dense, (N, values a line); one value a line feeds (N,) where the graph wants that,
                else (N, 1).
            filelist: paths.
            thread_num: how many workers; no more than there are files, unless `split_files` is set.
            fetch: names of outputs or slots, or symbols, or one of these alone: what is averaged. Each has
                one number a line, or is one number.
            debug: whether the result has each worker's seconds by stage.
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
    """Return what a module has to compute: in training the program's heads, and the fetches behind them."""
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
                f"fetch: {name!r} holds sequences, which are no NumPy array; give return_numpy=False"
            )
    return value.asnumpy()
