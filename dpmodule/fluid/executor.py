"""`Executor` and `AsyncExecutor`: run programs on batches or files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from .. import random
from .._core.closing import Closing
from ..base import ArgumentError, DeviceError, DTypeError, ShapeError, StateError
from ..context import Context, cpu
from ..executor.sparse_arrays import is_sparse
from ..hogwild.async_executor import AsyncExecutor as FileExecutor
from ..hogwild.data_feed_desc import DataFeedDesc
from ..hogwild.worker import limit_norms
from ..initializer import InitDesc
from ..io import DataBatch, DataDesc
from ..module import Module
from ..ndarray import zeros
from ..optimizer.states import dump_states, load_states
from ..symbol import BlockGrad as block_gradient
from ..symbol import Group, Symbol
from .compiler import CompiledProgram
from .dataset import VariableDataset
from .feeding import as_bound_shape, check_indices, feed_arrays
from .lod_tensor import LoDTensor
from .program import Program, default_main_program, load_values
from .scope import Scope, guard_of
from .variable import Data, RunningValue, Variable


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


class EOFException(StateError):
    """A loader that feeds a program has no further batch; call its `reset`."""


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
    runner: ProgramRunner = program.group.runners.setdefault(program, ProgramRunner())
    return runner


def check_initialized(program: Program, symbol: Symbol) -> None:
    """Raise StateError if parameters have no values."""
    filled = program.store.filled
    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    empty = [name for name in names if not program.var(name).is_data and name not in filled]
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
        layout = {} if variable.shape[0] == -1 else {"layout": ""}  # a fixed first axis is not a batch
        descs.append(DataDesc(name, shape, variable.dtype, stype=stype, **layout))
    return descs


def initialize(program: Program) -> None:
    """Initialize the parameters of a startup program, and reset their optimizers."""
    if program.random_seed:
        random.seed(program.random_seed)
    group = program.startup_group
    values = {}
    for name, first in program.initial_values.items():
        values[name] = zeros(first.shape, cpu(), first.dtype)
        attributes = {"__init__": first.initializer.dumps()}
        first.initializer(InitDesc(name, attributes), values[name])
    load_values(group.store, program.initial_values, values)
    for other, runner in list(group.runners.items()):
        runner.restart(other)


_GRADIENT = "@GRAD"


def _program(call: str, given: Any) -> Program:
    program = default_main_program() if given is None else given
    if isinstance(program, CompiledProgram):
        program = program.program
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
        module, names = self._trainer(owner, data_feed, fetch)
        result = self._executor.run_from_files(module, data_feed, filelist, thread_num, names, debug, **more)
        return _finished(owner, names, result)

    run = run_from_files

    def _trainer(self, program: Program, feed: DataFeedDesc, fetch: Any) -> tuple[Module, list[str]]:
        """Return the module that trains a program on lines, and the names of fetches."""
        descs = data_descs(program, _shapes(program, program.symbol, feed))
        names = [_fetch_variable(program, item).name for item in _as_list(fetch)]
        return runner_of(program).trainer(program, descs), names

    def train_from_dataset(
        self,
        program: Program,
        dataset: VariableDataset,
        thread_num: int,
        fetch: Any,
        debug: bool,
        **more: Any,
    ) -> Any:
        """Train a program on a dataset; see `Executor.train_from_dataset`."""
        lines = dataset.lines()
        module, names = self._trainer(program, lines.data_feed, fetch)
        result = self._executor.train_from_dataset(module, lines, thread_num, names, debug, **more)
        return _finished(program, names, result)

    def infer_from_dataset(
        self, program: Program, dataset: VariableDataset, thread_num: int, fetch: Any
    ) -> Any:
        """Return an iterator over the fetches for the lines of a dataset."""
        lines, owner = dataset.lines(), program.clone(for_test=True)
        heads = Group([_fetch_variable(owner, item).symbol for item in _as_list(fetch)])
        descs = data_descs(owner, _shapes(owner, heads, lines.data_feed))
        module = runner_of(owner).module(owner, heads, ("lines", *heads.list_outputs()), descs)
        return self._executor.infer_from_dataset(module, lines, thread_num, heads.list_outputs())

    def close(self) -> None:
        self._executor.close()


def _finished(program: Program, names: Sequence[str], averages: Any) -> Any:
    """Replace averages by present values in place, for variables that are about all batches; return the list."""
    for i, name in enumerate(names):
        variable = program.var(name)
        if isinstance(variable, RunningValue):
            averages[i] = variable.latest()
    return averages


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
        self._is_closed = False

    def run(
        self,
        program: Any = None,
        feed: Any = None,
        fetch_list: Any = None,
        feed_var_name: str = "feed",
        fetch_var_name: str = "fetch",
        scope: Scope | None = None,
        return_numpy: bool = True,
        use_program_cache: bool = False,
    ) -> list[Any]:
        """Initialize a startup program's parameters, or run a program on a batch and train it if it has an optimizer.

        Args:
            program: the program; None: the current one.
            feed: arrays by name; sequences are ragged arrays, see `create_lod_tensor`, or lists of lists. None if a
                loader with ``iterable=False`` feeds the program.
            fetch_list: variables or names to return; ``name@GRAD`` is the gradient of a parameter.
            scope: where the parameters are; None: the current scope.
            return_numpy: whether to return NumPy arrays.
            use_program_cache: ignored; modules of programs are always cached.

        Returns:
            The values in the order of `fetch_list`; parameters have their values after the step.

        Raises:
            ArgumentError: an argument is not valid or is missing.
            BoundsError: an index is not a row of its table.
            DTypeError: a fetch is ragged, and `return_numpy` is True.
            ShapeError: the shape of a feed differs from the declared one.
            StateError: the startup program has not been run, or the executor is closed.
            EOFException: the loader that feeds the program has no further batch.
        """
        self._check_open()
        owner = _program("run", program)
        with guard_of("run", scope):
            if owner.initial_values:
                initialize(owner)
            if not owner.list_vars():
                return []
            if feed is None and owner.feeder is not None:
                feed = owner.feeder.next_feed()
                if feed is None:
                    raise EOFException(
                        "run: the loader that feeds the program has no further batch; call reset()"
                    )
            if isinstance(feed, (list, tuple)) and len(feed) == 1:  # for one place
                feed = feed[0]
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
            limit_norms(module)
            module.update()
        arrays = module.get_outputs()[-len(outputs) :] if outputs else []
        computed = dict(zip((output.name for output in outputs), arrays))
        results = [self._value(program, fetch, computed, feed, module) for fetch in fetch_list]
        if as_numpy:
            return [_as_numpy(*pair) for pair in zip(fetch_list, results)]
        return [LoDTensor(result) for result in results]

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
        return program.store.value(variable.name, 0).copy()

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
        return self._file_executor().run_from_files(
            program, data_feed, filelist, thread_num, fetch, debug, **more
        )

    def train_from_dataset(
        self,
        program: Any = None,
        dataset: Any = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Any = None,
        fetch_info: Any = None,
        print_period: int = 100,
        **more: Any,
    ) -> Any:
        """Train a program on the lines of a dataset.

        Args:
            program: the program; None: the current one.
            dataset: a result of `DatasetFactory.create_dataset`.
            scope: where the parameters are; None: the current scope.
            thread: number of workers; 0: that of the dataset.
            debug: whether to measure the time of each stage.
            fetch_list: variables or names to average, and to print while training.
            fetch_info: texts to print before the values; None: the names.
            print_period: number of batches between two prints, which are at least 0.1 s apart, but for the last.
            more: further arguments of `mx.AsyncExecutor.run_from_files`.

        Returns:
            The averages over all batches, in the order of `fetch_list`.

        Raises:
            ArgumentError: an argument is not valid.
            StateError: the dataset has no lines, or the startup program has not been run.
        """
        owner, dataset, shown = _checked("train_from_dataset", program, dataset, fetch_list, fetch_info)
        names = [_fetch_variable(owner, item).name for item in _as_list(fetch_list)]
        printer = _Printer(shown, print_period, partial(_finished, owner, names))
        if shown:
            more = {"callback": printer.callback, "callback_s": _PRINT_S, **more}
        with guard_of("train_from_dataset", scope):
            result = self._file_executor().train_from_dataset(
                owner, dataset, thread or dataset.thread_num, fetch_list, debug, **more
            )
        if shown:
            printer.show(result.batches, result)
        return result

    def infer_from_dataset(
        self,
        program: Any = None,
        dataset: Any = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Any = None,
        fetch_info: Any = None,
        print_period: int = 100,
    ) -> list[float]:
        """Compute the means of variables over the lines of a dataset, without training.

        Args:
            program: the program; None: the current one.
            dataset: a result of `DatasetFactory.create_dataset`.
            scope: where the parameters are; None: the current scope.
            thread: number of workers; 0: that of the dataset.
            debug: accepted.
            fetch_list: variables or names.
            fetch_info: texts to print before the values; None: the names.
            print_period: number of batches between two prints.

        Returns:
            The mean of each over all lines, in the order of `fetch_list`.

        Raises:
            ArgumentError: an argument is not valid.
            StateError: the dataset has no lines, or the program has no parameters.
        """
        owner, dataset, shown = _checked("infer_from_dataset", program, dataset, fetch_list, fetch_info)
        if not shown:
            raise ArgumentError("infer_from_dataset: fetch_list is empty, expected variables or names")
        names = [_fetch_variable(owner, item).name for item in _as_list(fetch_list)]
        latest = partial(_finished, owner, names)
        printer, sums, lines = _Printer(shown, print_period, latest), np.zeros(len(shown)), 0
        with guard_of("infer_from_dataset", scope):
            found = self._file_executor().infer_from_dataset(
                owner, dataset, thread or dataset.thread_num, fetch_list
            )
            for number, (_, _, values) in enumerate(found, 1):
                arrays = [np.asarray(value.asnumpy(), dtype=np.float64) for value in values]
                count = max((len(array) for array in arrays if array.ndim), default=1)
                sums += [count * array.mean() for array in arrays]
                lines += count
                printer.show(number, (sums / lines).tolist())
            return list(latest((sums / max(lines, 1)).tolist()))

    def _check_open(self) -> None:
        if self._is_closed:
            raise StateError("the executor is closed; create another one")

    def _file_executor(self) -> AsyncExecutor:
        self._check_open()
        if self._files is None:
            self._files = AsyncExecutor(self._place)
        return self._files

    def close(self) -> None:
        if self._files is not None:
            self._files.close()
            self._files = None
        self._is_closed = True


_PRINT_S = 0.1
"""Seconds between two looks at the progress of a run."""


class _Printer:
    """Prints values once in a number of batches.

    Args:
        texts: printed before the values.
        period: number of batches between two prints.
        latest: function that replaces averages by present values.
    """

    def __init__(self, texts: Sequence[str], period: int, latest: Callable[[list[float]], Any]) -> None:
        if isinstance(period, bool) or not isinstance(period, int) or period < 1:
            raise ArgumentError(f"print_period is {period!r}, expected an integer from 1")
        self._texts, self._period, self._printed, self._latest = texts, period, 0, latest

    def callback(self, progress: Any) -> None:
        """Print the averages of a run; a callback of `mx.AsyncExecutor`."""
        self.show(progress.batches, list(progress.fetched.values()))

    def show(self, batches: int, values: Sequence[float]) -> None:
        """Print values, if enough batches have passed."""
        if batches // self._period > self._printed:
            self._printed = batches // self._period
            shown = ", ".join(
                f"{text}: {value:.6g}" for text, value in zip(self._texts, self._latest(list(values)))
            )
            sys.stdout.write(f"batch {batches}, {shown}\n")


def _checked(
    call: str, program: Any, dataset: Any, fetch_list: Any, fetch_info: Any
) -> tuple[Program, VariableDataset, list[str]]:
    """Return the program, the dataset and the texts of the fetches of a call."""
    owner = _program(call, program)
    if not isinstance(dataset, VariableDataset):
        raise ArgumentError(
            f"{call}: dataset is {dataset!r}, expected a result of fluid.DatasetFactory().create_dataset()"
        )
    names = [_fetch_variable(owner, item).name for item in _as_list(fetch_list)]
    texts = names if fetch_info is None else [str(text) for text in _as_list(fetch_info)]
    if len(texts) != len(names):
        raise ArgumentError(f"{call}: fetch_info has {len(texts)} texts for {len(names)} of fetch_list")
    return owner, dataset, texts


def _shapes(program: Program, symbol: Symbol, feed: DataFeedDesc) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a batch of lines, of the data that a symbol depends on."""
    needed = program.data_of(symbol)
    for data in needed:
        if data.shape[0] != -1 or -1 in data.shape[1:]:
            raise ShapeError(
                f"data {data.name!r} has the shape {data.shape}; lines of files have -1 first, and then sizes"
            )
    return {data.name: (feed.batch_size, *data.fed_shape[1:]) for data in needed}


def _outputs_symbol(program: Program, outputs: list[Variable]) -> Symbol:
    """Return the outputs of a module: in training the program's heads, followed by the fetches."""
    if program.optimizer is None:
        return Group([each.symbol for each in outputs]) if outputs else program.symbol
    kept = [block_gradient(each.symbol, name=f"fetch{i}_{each.name}") for i, each in enumerate(outputs)]
    return Group([program.symbol, *kept]) if kept else program.symbol


class FetchedNumbers(np.ndarray):
    """A NumPy array that `float` and `int` convert if it has one element, which NumPy itself does before 2.4."""

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __array_wrap__(self, found: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return found[()] if found.ndim == 0 else found.view(FetchedNumbers)  # sums and means are numbers

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __format__(self, spec: str) -> str:
        return format(self.item() if spec and self.size == 1 else self.view(np.ndarray), spec)


def _as_numpy(fetch: Any, value: Any) -> Any:
    if is_sparse(value):
        value = value.tostype("default") if value.stype != "ragged" else value
        if is_sparse(value):
            name = fetch if isinstance(fetch, str) else fetch.name
            raise DTypeError(
                f"fetch: {name!r} holds sequences, which are not a NumPy array; set return_numpy=False"
            )
    return value.asnumpy().view(FetchedNumbers)
