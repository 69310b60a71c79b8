"""`AsyncExecutor`: Hogwild training straight from files."""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import torch

from .._core import lazy
from .._core.closing import Closing
from .._devices import generators
from ..base import ArgumentError, SignatureError, StateError, did_you_mean
from ..context import Context, cpu
from ..kvstore.ranks import Ranks
from ..module import Module
from ..ndarray import NDArray
from ..symbol import Symbol
from .data_feed_desc import DataFeedDesc
from .data_files import FileRange
from .dataset import InMemoryDataset, QueueDataset, ReadPlan
from .engines import EngineChoice, Engines
from .file_run import FileRun, join_processes
from .job import Job, Reporter, Results, RunArguments, check_seconds, check_workers
from .program import BoundProgram, ProgramCache
from .progress import Snapshot, last_snapshot
from .slot_feed import check_first_labels
from .spread_tables import SpreadTables
from .worker import Inferred

__all__ = ["AsyncExecutor"]

lazy.publish(__name__, __all__)

_logger = logging.getLogger(__name__)


class AsyncExecutor(Closing):
    r"""Trains programs from files with several workers that update the same parameters without locks.

    A *program* is a `Module`, which the executor binds from the feed; a `Symbol`, whose parameters the executor keeps
    by name in one store for all symbols; or an object with the attributes `symbol`, `store` and `optimizer`. The first
    call that needs workers starts them, and later calls reuse them; `close`, or the end of a ``with`` statement, ends
    them.

    Args:
        timeout_s: longest time of a batch before a worker counts as stuck, in seconds.
        start_method: start method of worker processes, as in `streams.Supervisor`; None: "forkserver", with only torch
            imported, if the system supports it, else "spawn".

    Attributes:
        context: the device.
        timeout_s: the timeout in seconds.

    Raises:
        ArgumentError: the device is not the CPU, the timeout is not valid, or the start method is unknown.

    Example:
        >>> with open("part-0", "w") as file:
        ...     lines = file.write("3 0.5 1.5 -1 1 1\n3 0.5 -1.5 1 1 0\n" * 50)
        >>> feed = mx.DataFeedDesc('''batch_size: 10 multi_slot_desc {
        ...     slots { name: "x" type: "float" is_dense: true }
        ...     slots { name: "label" type: "uint64" is_dense: true } }''')
        >>> net = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=2)
        >>> net = mx.sym.SoftmaxOutput(net, mx.sym.Variable("label"))
        >>> with mx.AsyncExecutor() as run:
        ...     result = run.run_from_files(net, feed, ["part-0"], 1, "label", eval_metric="acc")
        >>> result[0], result.examples, result.batches
        (0.5, 100, 10)

    Source: the description of Paddle's AsyncExecutor; `docs/differences/systems.md` lists the differences.
    """

    def __init__(
        self, context: Any = None, timeout_s: float = 60.0, *, start_method: str | None = None
    ) -> None:
        self.context = cpu() if context is None else Context(context)
        if self.context.device_type != "cpu":
            raise ArgumentError(
                f"AsyncExecutor: context is {self.context}, but workers train on the CPU; give mx.cpu()"
            )
        check_seconds("timeout_s", timeout_s)
        self.timeout_s = float(timeout_s)
        self._engines = Engines(self.timeout_s, start_method)
        self._programs = ProgramCache(self.context)
        self._file_run: FileRun | None = None
        self._is_running = False
        self._closed = False

    # training

    def run_from_files(
        self,
        program: Any,
        data_feed: DataFeedDesc,
        filelist: Sequence[Any],
        thread_num: int,
        fetch: Any = (),
        debug: bool = False,
        *,
        mode: str = "auto",
        initializer: Any = None,
        arg_params: Mapping[str, NDArray] | None = None,
        aux_params: Mapping[str, NDArray] | None = None,
        optimizer: Any = None,
        optimizer_params: Any = None,
        eval_metric: Any = None,
        callback: Any = None,
        callback_s: float = 10.0,
        progress: bool = False,
        split_files: bool = False,
        on_bad_line: str = "error",
        check_labels: str = "raise",
        resume: Any = None,
        average_every_n_batches: int | None = None,
        average_every_s: float | None = None,
        shard_rows: bool = True,
    ) -> Results:
        """Train on every line of some files once.

        Every worker has a reader with a bounded queue of batches, which takes files from a shared counter. Batches span
        files, so that only the last batch of a worker may be short. Its gradient is also divided by the full batch
        size, as in `fit`.

        Args:
            program: the program to train.
            data_feed: description of the lines. A slot feeds the variable of its name as declared: ragged, or dense,
                (N, values per line); slots with one value feed (N,) if the graph needs that, else (N, 1).
            filelist: paths.
            thread_num: number of workers; at most the number of files, unless `split_files` is set.
            fetch: values to average: one or several names of outputs or slots, or symbols. Each has one number per
                line, or is a scalar.
            debug: whether the result has each worker's seconds by stage.
            mode: "native" (threads of C++), "process" (processes over shared parameters), "serial" (the calling
                thread) or "auto"; see `explain`.
            initializer: initializer of parameters, as in `fit`; used in a program's first run, like the next four
                arguments.
            optimizer: name or `Optimizer`; default "sgd".
            optimizer_params: its arguments; default of rescale_grad: 1 / batch size.
            eval_metric: name, list of names, or `EvalMetric`.
            callback: called with a `Progress` in the calling thread while the workers run.
            callback_s: seconds between two calls.
            progress: whether to show a progress bar.
            split_files: split files by bytes, so that several workers share a file.
            on_bad_line: "error", or "skip" to skip and count lines that do not match the description.
            check_labels: action on labels in the first batch that are not classes of the network, such as 10 for ten
                scores: "raise" before training, "warn", or "ignore". For pipes, and for feeds with a `pipe_command`,
                each worker checks its own first batch, except in the native engine.
            resume: prefix of a snapshot of a run over the same files: load its parameters, optimizer states and random
                numbers, and train on the remaining lines; None: train on all lines.
            average_every_n_batches: with several processes, started by torchrun: average their parameters whenever
                this process has trained on this number of batches. Processes with the same files distribute them, else
                each trains on its own files. With this or the next argument, all processes take part.
            average_every_s: the same, after this number of seconds.
            shard_rows: False to keep whole tables in every process. By default, in a program's first run with other
                processes, the native engine spreads the rows of tables with row-sparse gradients over them.

        Returns:
            The mean of each fetch over all batches of all workers, where the value of a batch is the mean of its
            numbers; with `examples`, `batches`, `seconds`, `skipped` (lines), `workers` (their number) and `metric`.

        Raises:
            ArgumentError: an argument, a name or a slot is not valid; or the snapshot to resume has another network,
                optimizer, batch size or other files, or files have changed: lists all differences.
            FileError: a file is missing or cannot be read, or there is no snapshot to resume.
            ShapeError: a fetch has more than one number per line.
            FileFormatError: a line is malformed; the text names file, line and slot.
            BoundsError: a value is not a row of its table, or a label of the first batch is not a class and
                `check_labels` is "raise".
            NonFiniteError: an output or a gradient is not finite; the parameters are unchanged. It has the attributes
                `file` and `batch`.
            WorkerDied: a worker process has died, with the attributes `index` and `file`; the parameters stay usable.
            WorkerStuck: a worker has not finished a batch within `timeout_s`, or did not start.
            KeyboardInterrupt: Ctrl-C, raised after the running batches; the executor stays usable.
            LostWorkerError: another process has ended, or has not reached an average within 5 * `timeout_s`.
            StateError: the executor is closed or already running.
        """
        given = {name: value for name, value in locals().items() if name in RunArguments.__dataclass_fields__}
        args = RunArguments(**given).checked()
        return self._train(program, _dataset(filelist, data_feed), thread_num, fetch, args)

    def train_from_dataset(
        self,
        program: Any,
        dataset: Any,
        thread_num: int,
        fetch: Any = (),
        debug: bool = False,
        **keywords: Any,
    ) -> Results:
        """Train on every line of a dataset once.

        Args:
            program: as in `run_from_files`.
            dataset: a `QueueDataset` with files, or a loaded `InMemoryDataset`.
            thread_num: number of workers.
            fetch: values to average.
            debug: whether the result has each worker's seconds by stage.
            keywords: keyword arguments of `run_from_files`.

        Raises:
            StateError: the dataset has no files or is not loaded.
            MXNetError: as in `run_from_files`.
        """
        unknown = [name for name in keywords if name not in RunArguments.__dataclass_fields__]
        if unknown:
            raise SignatureError(
                f"train_from_dataset: there is no argument {unknown[0]!r}"
                f"{did_you_mean(unknown[0], RunArguments.__dataclass_fields__)}"
            )
        args = RunArguments(debug=debug, **keywords).checked()
        return self._train(program, dataset, thread_num, fetch, args)

    def _train(self, program: Any, data: Any, workers: Any, fetch: Any, args: RunArguments) -> Results:
        self._check_idle()
        start = time.monotonic()
        ranks = join_processes(args, self.timeout_s)
        reading, workers = _read_plan(data, workers, args.split_files, 1 if ranks is None else ranks.size)
        spread = None if ranks is None else partial(_spread, ranks)
        prepared = self._programs.prepare(program, reading.desc, reading.parts, fetch, True, args, spread)
        choice = self._engines.choose(prepared, args.mode, workers)
        if prepared.tables is not None and (ranks is None or choice.mode != "native"):
            raise StateError(
                f"the tables {', '.join(prepared.tables.names)} of the program are spread over processes; train "
                "it with average_every_n_batches or average_every_s, and with mode 'auto' or 'native'"
            )
        if choice.mode == "serial" and workers > 1:
            _logger.warning("mode 'serial' has one worker; thread_num %d is ignored", workers)
            workers = 1
        if choice.mode == "process":
            prepared.module.store.share_memory()
        self._is_running = True
        try:
            with (
                FileRun(prepared, reading, args, ranks) as file_run,
                Reporter(args, prepared.fetches.names) as reporter,
            ):
                self._file_run = file_run
                parts, symbol = file_run.parts, prepared.module.symbol
                job = _make_job(
                    prepared,
                    parts,
                    min(workers, max(1, len(parts))),
                    args,
                    file_run.lines_done,
                    report=reporter.report if reporter.is_wanted else None,
                    report_s=reporter.every_s,
                    averaging=file_run.averager,
                    check_labels=check_first_labels(
                        prepared.feed, symbol, parts, args.on_bad_line, args.check_labels
                    ),
                )
                stats = file_run.end(self._engines.run(choice.mode, prepared, job))
                reporter.end(stats)
                if args.resume is None and not any(worker.examples or worker.skipped for worker in stats):
                    _logger.warning("run_from_files: the files have no lines, so nothing was trained")
        finally:
            self._is_running = False
        return Results(prepared.fetches.names, stats, time.monotonic() - start, args.debug)

    def explain(
        self,
        program: Any,
        data_feed: DataFeedDesc | None = None,
        thread_num: int = 2,
        *,
        optimizer: Any = None,
        optimizer_params: Any = None,
    ) -> EngineChoice:
        """Return the engine that mode "auto" chooses for a program, and the reason, as a printable `EngineChoice`.

        Args:
            program: a Module, a Symbol, or a program of `fluid`.
            data_feed: description of its feed; None: that of its last run.
            thread_num: number of workers.
            optimizer: as in `run_from_files`, only with `data_feed`.

        Raises:
            StateError: the program has not been run, and no feed is given.
        """
        prepared: BoundProgram | None
        if data_feed is None:
            prepared = self._programs.last(program)
        else:
            own = (
                None
                if isinstance(program, (Module, Symbol))
                else deepcopy(getattr(program, "optimizer", None))
            )
            if own is not None:  # the program sets the divisor of gradients itself
                own.rescale_grad = 1.0 / data_feed.batch_size
            args = RunArguments(optimizer=own or optimizer, optimizer_params=optimizer_params)
            symbol = getattr(program, "symbol", program)
            prepared = ProgramCache(self.context).prepare(symbol, data_feed, [], (), True, args)
        if prepared is None:
            raise StateError("explain: the program has not been run yet; give data_feed")
        return self._engines.choose(prepared, "auto", check_workers(thread_num))

    # inference

    def infer_from_files(
        self,
        program: Any,
        data_feed: DataFeedDesc,
        filelist: Sequence[Any],
        thread_num: int,
        fetch: Any,
        *,
        mode: str = "auto",
        on_bad_line: str = "error",
    ) -> Iterator[Inferred]:
        """Return an iterator over a program's outputs for the lines of files.

        Batches do not span files. With several workers, each reads every n-th file.

        Args:
            program: as in `run_from_files`; it must have parameters.
            data_feed: description of the lines, including slots that only training needs.
            filelist: paths.
            thread_num: number of workers.
            fetch: one or several names of outputs or slots, or symbols; of any shape.
            mode: "process", "serial", or "auto": processes for several workers.
            on_bad_line: as in `run_from_files`; skipped lines are not counted.

        Returns:
            An iterator of (file, number of the first line, an array for each fetch), in the order of the files.

        Raises:
            StateError: the program has no parameters.
            ArgumentError, FileError, FileFormatError, WorkerDied, WorkerStuck: as in `run_from_files`.
        """
        args = RunArguments(mode=mode, on_bad_line=on_bad_line).checked()
        self._check_idle()
        return self._infer(program, *_read_plan(_dataset(filelist, data_feed), thread_num), fetch, args)

    def infer_from_dataset(
        self,
        program: Any,
        dataset: Any,
        thread_num: int,
        fetch: Any,
        *,
        mode: str = "auto",
        on_bad_line: str = "error",
    ) -> Iterator[Inferred]:
        """Return an iterator over a program's outputs for the lines of a dataset; see `infer_from_files`.

        Args:
            program: as in `run_from_files`; it must have parameters.
            dataset: a `QueueDataset` or `InMemoryDataset`.
            thread_num: number of workers.
            fetch: one or several names of outputs or slots, or symbols; of any shape.
            mode: "process", "serial", or "auto": processes for several workers.
            on_bad_line: as in `run_from_files`; skipped lines are not counted.

        Raises:
            StateError: the dataset has no files or is not loaded, or the program has no parameters.
            MXNetError: as in `infer_from_files`.
        """
        args = RunArguments(mode=mode, on_bad_line=on_bad_line).checked()
        self._check_idle()
        return self._infer(program, *_read_plan(dataset, thread_num), fetch, args)

    def _infer(
        self, program: Any, reading: ReadPlan, workers: int, fetch: Any, args: RunArguments
    ) -> Iterator[Inferred]:
        if args.mode == "native":
            raise ArgumentError(
                "mode is 'native', which supports only training; expected 'auto', 'process' or 'serial'"
            )
        prepared = self._programs.prepare(program, reading.desc, reading.parts, fetch, False, args)
        # other processes answer only this one
        if args.mode == "serial" or (args.mode == "auto" and (workers == 1 or prepared.tables is not None)):
            return self._engines.serial.infer(prepared, _make_job(prepared, reading.parts, 1, args))
        return self._engines.process.infer(prepared, _make_job(prepared, reading.parts, workers, args))

    # programs and their parameters

    def module(self, program: Any) -> Module:
        """Return a Module over the parameters of a program.

        Args:
            program: a Module, a Symbol, or a program of `fluid` that has been run.

        Raises:
            StateError: it has not been run.
        """
        return self._programs.module(program)

    def get_params(self, program: Any) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return copies of a program's parameters and auxiliary states.

        Args:
            program: a Module, a Symbol, or a program of `fluid` that has been run.

        Raises:
            StateError: it has not been run.
        """
        return self.module(program).get_params()

    def snapshot(self, prefix: str, epoch: int = 0) -> None:
        """Save a checkpoint of the current or last run, possibly while it runs.

        Call it in a callback or another thread. The workers pause between two batches while the parameters are copied,
        so that rows are consistent; since workers are at different points, no order of batches by one worker gives the
        same parameters, as always in Hogwild training. The checkpoint also has the files that are done and the number
        of lines done of the others, so that `resume` trains on exactly the remaining lines. The files are replaced
        together.

        Args:
            prefix: path and first part of the names: ``prefix-symbol.json``, and ``prefix-0000`` with ``.params``,
                ``.states`` (of the optimizer) and ``.run`` (progress and random numbers).
            epoch: the number in the name.

        With several processes, the first one that requests a snapshot writes it for all, at the next average.

        Raises:
            StateError: there was no run, or a batch does not end within `timeout_s`.
        """
        if self._file_run is None:
            raise StateError("snapshot: there was no run yet")
        self._file_run.snapshot(prefix, epoch, self._engines.paused)

    @staticmethod
    def last_snapshot(prefix: Any) -> Snapshot | None:
        """Return the snapshot with the highest number under a prefix, None if there is none.

        It has the attributes `epoch`, `done` (files that are done) and `in_progress` (lines done of each other file).

        Args:
            prefix: as for `snapshot`.

        Raises:
            FileFormatError: it is damaged, or belongs to another kind of run.
        """
        return last_snapshot(prefix)

    # life

    def _check_idle(self) -> None:
        if self._closed:
            raise StateError("the AsyncExecutor is closed; create a new one")
        if self._is_running:
            raise StateError("the AsyncExecutor is running; wait, or create another one for another program")

    def close(self) -> None:
        self._closed = True
        self._engines.close()


def _dataset(filelist: Any, desc: Any) -> QueueDataset:
    """Return a dataset of files."""
    if not isinstance(desc, DataFeedDesc):
        raise ArgumentError(
            f"data_feed is {desc!r}, expected a DataFeedDesc such as DataFeedDesc('data.prototxt')"
        )
    dataset = QueueDataset(desc)
    dataset.set_filelist(filelist)
    return dataset


def _read_plan(
    dataset: Any, thread_num: Any, split: bool = False, join_processes: int = 1
) -> tuple[ReadPlan, int]:
    """Return the read plan of a dataset, and the number of workers of each process."""
    workers = check_workers(thread_num)
    if not isinstance(dataset, (QueueDataset, InMemoryDataset)):
        raise ArgumentError(f"dataset is {dataset!r}, expected a QueueDataset or an InMemoryDataset")
    reading = dataset.reading(workers * join_processes, split)
    count = max(1, len(reading.parts) // join_processes)
    if workers > count:
        hint = "" if split or isinstance(dataset, InMemoryDataset) else "; split_files=True splits files"
        _logger.warning("thread_num is reduced from %d to %d, the number of files%s", workers, count, hint)
    return reading, min(workers, count)


def _spread(ranks: Ranks, prepared: BoundProgram, args: RunArguments) -> SpreadTables | None:
    return SpreadTables.install(prepared, ranks, args)


def _make_job(
    prepared: BoundProgram,
    parts: list[FileRange],
    workers: int,
    args: RunArguments,
    lines_done: torch.Tensor | None = None,
    **more: Any,
) -> Job:
    """Return the job for an engine; `more` are fields of `Job` for training only."""
    seed = zlib.crc32(generators.generator(cpu()).get_state().numpy().tobytes())
    if (
        args.resume is not None and lines_done is not None
    ):  # other random numbers than at the beginning of the epoch
        seed = zlib.crc32(lines_done.numpy().tobytes(), seed)
    names, metric = prepared.fetches.names, args.metric()
    desc, train = prepared.feed.desc, prepared.train
    return Job(
        desc, parts, workers, names, train, args.on_bad_line, seed, metric, lines_done=lines_done, **more
    )
