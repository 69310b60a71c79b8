"""`AsyncExecutor`: Hogwild training straight from files."""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch

from .._core import lazy
from .._core.closing import Closing
from .._devices import generators
from ..base import ArgumentError, SignatureError, StateError, did_you_mean
from ..context import Context, cpu
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
from .worker import Inferred

__all__ = ["AsyncExecutor"]

lazy.publish(__name__, __all__)

_logger = logging.getLogger(__name__)


class AsyncExecutor(Closing):
    r"""Trains programs from files with several workers, which all write to the same parameters without locks.

    A *program* is a `Module`, which is bound here from the feed; a `Symbol`, whose parameters the executor keeps, by
    name, in one store for all symbols; or anything with the attributes `symbol`, `store` and `optimizer`. Workers are
    started by the first call that needs them, and kept for the following ones; leave the executor's context, or call
    `close`, to end them.

    Args:
        timeout_s: how long a worker may go without finishing a batch before it counts as stuck, in seconds.
        start_method: how worker processes are started, as in `streams.Supervisor`; None: forked from a process that
            has imported torch and nothing else ("forkserver"), where the system has that, else "spawn".

    Attributes:
        context: the device.
        timeout_s: as given.

    Raises:
        ArgumentError: another device than the CPU, a time that is none, or an unknown way to start processes.

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

    Source: the description of Paddle's AsyncExecutor; `docs/differences/systems.md` says where this departs from it.
    """

    def __init__(
        self, context: Any = None, timeout_s: float = 60.0, *, start_method: str | None = None
    ) -> None:
        self.context = cpu() if context is None else Context(context)
        if self.context.device_type != "cpu":
            raise ArgumentError(
                f"AsyncExecutor: context is {self.context}, and its workers train on the CPU: mx.cpu()"
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
    ) -> Results:
        """Train on every line of some files once.

        Every worker has a reader, with a bounded queue of batches, that takes files from a common counter; its batches
        run on over its files, so that only its last may be short. A short batch's gradient is divided by the full batch
        size too, as in `fit`.

        Args:
            program: what to train; it, and all other arguments, may be others in the next call.
            data_feed: description of the lines. A slot feeds the variable of its name as that is declared: ragged, or
                dense, (N, values a line); one value a line feeds (N,) where the graph wants that, else (N, 1).
            filelist: paths.
            thread_num: how many workers; no more than there are files, unless `split_files` is set.
            fetch: names of outputs or slots, or symbols, or one of these alone: what is averaged. Each has one number a
                line, or is one number.
            debug: whether the result has each worker's seconds by stage.
            mode: "native" (threads of C++), "process" (processes over shared parameters), "serial" (the calling
                thread) or "auto"; see `explain`.
            initializer: gives parameters their first values, as in `fit`; counts at a program's first run, like the
                four arguments that follow.
            optimizer: name or `Optimizer`; "sgd" unless given.
            optimizer_params: its arguments; rescale_grad is 1 / batch size unless given.
            eval_metric: name, list of names, or `EvalMetric`.
            callback: called with a `Progress` while the workers work, in the calling thread.
            callback_s: how often, in seconds.
            progress: whether a progress bar is shown.
            split_files: cut files by bytes, so that one file keeps several workers busy.
            on_bad_line: "error", or "skip" to pass over lines that are not as described, and count them.
            check_labels: what to do about labels in the first batch that are not classes of the network, such as 10
                beside ten scores: "raise" before anything is trained, "warn", or "ignore". Of pipes, and where the
                feed has a `pipe_command`, each worker looks at its own first batch, except those of the native engine.
            resume: prefix of a snapshot of a run over the same files: its parameters, optimizer states and random
                numbers are taken, and the lines trained on that it was not; None: all lines are.
            average_every_n_batches: with several processes, as torchrun starts them: average parameters over them
                whenever this one has trained on so many batches. They deal the files among them if all have given
                the same, else each trains on its own. Either this or the next argument has all of them take part.
            average_every_s: likewise whenever so many seconds are over.

        Returns:
            The mean of each fetch over all batches of all workers, a batch's value being the mean of its numbers; with
            `examples`, `batches`, `seconds`, `skipped` (lines), `workers` (how many) and `metric`.

        Raises:
            ArgumentError: an argument, a name, a slot does not fit; or the snapshot to resume is of another network,
                optimizer, batch size or other files, or files have changed since: lists every difference.
            FileError: a file is missing, or cannot be read; or there is no snapshot to resume.
            ShapeError: a fetch has more than one number a line.
            FileFormatError: a bad line; names file, line and slot.
            BoundsError: a value is no row of the table that is looked up; or a label of the first batch is not a
                class, and `check_labels` is "raise".
            NonFiniteError: an output or a gradient is not finite; it has changed no parameter. It has the attributes
                `file` and `batch`.
            WorkerDied: a worker process is gone, `index` says which, and `file` what it was working on; parameters are
                usable.
            WorkerStuck: a worker has not finished a batch within `timeout_s`, or could not be started.
            KeyboardInterrupt: Ctrl-C, raised after the batches that were running; the executor stays usable.
            LostWorkerError: another process is gone, or has not come to an average within 5 `timeout_s`.
            StateError: the executor is closed, or runs already.
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
            program: as in `run_from_files`, like all that follow.
            dataset: a `QueueDataset` with files, or an `InMemoryDataset` that has been loaded.
            thread_num: how many workers.
            fetch: what is averaged.
            debug: whether the result has each worker's seconds by stage.
            keywords: those of `run_from_files`.

        Raises:
            StateError: the dataset has no files, or has not been loaded.
            MXNetError: as `run_from_files` does.
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
        prepared = self._programs.prepare(program, reading.desc, reading.parts, fetch, True, args)
        choice = self._engines.choose(prepared, args.mode, workers)
        if choice.mode == "serial" and workers > 1:
            _logger.warning("mode 'serial' has one worker; thread_num %d is passed over", workers)
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
                if args.resume is None and not any(each.examples or each.skipped for each in stats):
                    _logger.warning("run_from_files: no file has a line, so nothing was trained")
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
        """Return which engine trains a program in mode "auto", and why; print it to read it. Changes nothing.

        Args:
            program: what is trained.
            data_feed: description of its feed; None: as in its last run.
            thread_num: how many workers it would have.
            optimizer: as in `run_from_files`, with `data_feed` only.

        Raises:
            StateError: it has not been run, and no feed is given.
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
            if own is not None:  # by what gradients are divided, the program has said
                own.rescale_grad = 1.0 / data_feed.batch_size
            args = RunArguments(optimizer=own or optimizer, optimizer_params=optimizer_params)
            symbol = getattr(program, "symbol", program)
            prepared = ProgramCache(self.context).prepare(symbol, data_feed, [], (), True, args)
        if prepared is None:
            raise StateError("explain: the program has not been run yet; give its data_feed")
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
        """Return an iterator over what a program says of the lines of some files; changes nothing.

        Batches end with their files here. With several workers each takes every n-th file.

        Args:
            program: as in `run_from_files`; it must have parameters.
            data_feed: description of the lines, which have all slots, also those that only training needs.
            filelist: paths.
            thread_num: how many workers.
            fetch: names of outputs or slots, or symbols, or one of these alone; of any shape.
            mode: "process", "serial", or "auto": processes if there are several workers.
            on_bad_line: as in `run_from_files`; lines passed over are not counted here.

        Returns:
            An iterator of (file, number of its first line, an array for each fetch), in the order of the files.

        Raises:
            StateError: the program has no parameters.
            ArgumentError, FileError, FileFormatError, WorkerDied, WorkerStuck: as `run_from_files`.
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
        """Return an iterator over what a program says of the lines of a dataset; as `infer_from_files`.

        Args:
            program: as in `run_from_files`; it must have parameters.
            dataset: a `QueueDataset` or `InMemoryDataset`.
            thread_num: how many workers.
            fetch: names of outputs or slots, or symbols, or one of these alone; of any shape.
            mode: "process", "serial", or "auto": processes if there are several workers.
            on_bad_line: as in `run_from_files`; lines passed over are not counted here.

        Raises:
            StateError: the dataset has no files, or has not been loaded; or the program has no parameters.
            MXNetError: as `infer_from_files` does.
        """
        args = RunArguments(mode=mode, on_bad_line=on_bad_line).checked()
        self._check_idle()
        return self._infer(program, *_read_plan(dataset, thread_num), fetch, args)

    def _infer(
        self, program: Any, reading: ReadPlan, workers: int, fetch: Any, args: RunArguments
    ) -> Iterator[Inferred]:
        if args.mode == "native":
            raise ArgumentError("mode is 'native', which only trains; expected 'auto', 'process' or 'serial'")
        prepared = self._programs.prepare(program, reading.desc, reading.parts, fetch, False, args)
        if args.mode == "serial" or (args.mode == "auto" and workers == 1):
            return self._engines.serial.infer(prepared, _make_job(prepared, reading.parts, 1, args))
        return self._engines.process.infer(prepared, _make_job(prepared, reading.parts, workers, args))

    # programs and their parameters

    def module(self, program: Any) -> Module:
        """Return a Module over the parameters of a program that has been run.

        Args:
            program: what was given to `run_from_files`: a Module, a Symbol, or a program of `fluid`.

        Raises:
            StateError: it has not.
        """
        return self._programs.module(program)

    def get_params(self, program: Any) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return copies of a program's parameters and auxiliary states.

        Args:
            program: what was given to `run_from_files`: a Module, a Symbol, or a program of `fluid`.

        Raises:
            StateError: it has not been run.
        """
        return self.module(program).get_params()

    def snapshot(self, prefix: str, epoch: int = 0) -> None:
        """Write the parameters of the program that runs, or ran last, as a checkpoint, while it runs.

        For a callback, or another thread. The workers wait between two batches while the parameters are copied, so that
        no row is torn; but each has come as far as it has, and what is saved is a mixture of moments as in all Hogwild
        training: no order of batches by one worker gives it. With it goes which files are done, and how many lines of
        those under way: exactly the lines that these parameters have learned from, so that a run with `resume` trains
        on the others. The files switch together.

        Args:
            prefix: path and first part of the names: ``prefix-symbol.json``, and ``prefix-0000`` with ``.params``,
                ``.states`` (of the optimizer) and ``.run`` (places and random numbers).
            epoch: the number in the name.
        Of several processes the first that has asked writes the snapshot, at their next average: for all of them.

        Raises:
            StateError: nothing has been run, or a batch does not end within `timeout_s`.
        """
        if self._file_run is None:
            raise StateError("snapshot: nothing has been run yet")
        self._file_run.snapshot(prefix, epoch, self._engines.paused)

    @staticmethod
    def last_snapshot(prefix: Any) -> Snapshot | None:
        """Return the snapshot with the highest number under a prefix, None if there is none.

        It has the attributes `epoch`, `done` (files that are done) and `in_progress` (lines done of each other file).

        Args:
            prefix: as for `snapshot`.

        Raises:
            FileFormatError: it is damaged, or the state of another kind of run.
        """
        return last_snapshot(prefix)

    # life

    def _check_idle(self) -> None:
        if self._closed:
            raise StateError("the AsyncExecutor is closed; make a new one")
        if self._is_running:
            raise StateError("the AsyncExecutor is running; wait, or make another one for another program")

    def close(self) -> None:
        self._closed = True
        self._engines.close()


def _dataset(filelist: Any, desc: Any) -> QueueDataset:
    """Return files as a dataset."""
    if not isinstance(desc, DataFeedDesc):
        raise ArgumentError(
            f"data_feed is {desc!r}, expected a DataFeedDesc, as DataFeedDesc('data.prototxt')"
        )
    dataset = QueueDataset(desc)
    dataset.set_filelist(filelist)
    return dataset


def _read_plan(
    dataset: Any, thread_num: Any, split: bool = False, join_processes: int = 1
) -> tuple[ReadPlan, int]:
    """Return what is read of a dataset, and by how many workers of each process."""
    workers = check_workers(thread_num)
    if not isinstance(dataset, (QueueDataset, InMemoryDataset)):
        raise ArgumentError(f"dataset is {dataset!r}, expected a QueueDataset or an InMemoryDataset")
    reading = dataset.reading(workers * join_processes, split)
    count = max(1, len(reading.parts) // join_processes)
    if workers > count:
        hint = "" if split or isinstance(dataset, InMemoryDataset) else "; split_files=True cuts files"
        _logger.warning(
            "thread_num is reduced from %d to %d, as many as there are files%s", workers, count, hint
        )
    return reading, min(workers, count)


def _make_job(
    prepared: BoundProgram,
    parts: list[FileRange],
    workers: int,
    args: RunArguments,
    lines_done: torch.Tensor | None = None,
    **more: Any,
) -> Job:
    """Return what engines are told; `more` are fields of `Job` that only training has."""
    seed = zlib.crc32(generators.generator(cpu()).get_state().numpy().tobytes())
    if (
        args.resume is not None and lines_done is not None
    ):  # not once more the numbers with which the epoch began
        seed = zlib.crc32(lines_done.numpy().tobytes(), seed)
    names, metric = prepared.fetches.names, args.metric()
    desc, train = prepared.feed.desc, prepared.train
    return Job(
        desc, parts, workers, names, train, args.on_bad_line, seed, metric, lines_done=lines_done, **more
    )
