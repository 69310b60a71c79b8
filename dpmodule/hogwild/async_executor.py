"""`AsyncExecutor`: Hogwild training straight from files."""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from .. import generators, later
from ..base import ArgumentError, StateError
from ..context import Context, cpu
from ..module import Module
from ..ndarray import NDArray
from ..symbol import Symbol
from .arguments import RunArguments, check_seconds, check_workers
from .data_feed import Part, check_files, split_parts
from .fetches import Fetches
from .job import Job, WorkerStats
from .program import Prepared, check_module, input_names, make_ready
from .results import Progress, Results
from .serial_engine import SerialEngine
from .slot_feed import SlotFeed, feed_of

__all__ = ["AsyncExecutor"]

later.publish(__name__, __all__)

_logger = logging.getLogger(__name__)


class AsyncExecutor:
    """Trains programs from files with several workers, which all write to the same parameters without locks."""

    def __init__(self, context: Context | None = None, timeout_s: float = 60.0) -> None:
        self.context = cpu() if context is None else context
        self.timeout_s = timeout_s
        self._closed = False
        self._modules: dict[Any, Module] = {}
        self._engine = SerialEngine()

    def run_from_files(
        self,
        program: Any,
        data_feed: Any,
        filelist: Sequence[Any],
        thread_num: int,
        fetch: Any,
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
    ) -> Results:
        args = RunArguments(
            mode,
            initializer,
            arg_params,
            aux_params,
            optimizer,
            optimizer_params,
            eval_metric,
            callback,
            callback_s,
            progress,
            split_files,
            on_bad_line,
            debug,
        ).checked()
        workers = check_workers(thread_num)
        files = check_files(filelist)
        parts = split_parts(files, workers) if split_files else [Part(path) for path in files]
        start = time.monotonic()
        prepared = self._prepare(program, data_feed, parts, fetch, True, args)
        job = Job(prepared.feed.desc, parts, 1, prepared.fetches.names, metric=args.metric())
        stats = self._engine.run(prepared, job)
        return Results(job.fetch, stats, time.monotonic() - start, debug)

    def _prepare(
        self, program: Any, desc: Any, parts: Sequence[Part], fetch: Any, train: bool, args: RunArguments
    ) -> Prepared:
        module = self._module_of(program, desc)
        names = module.symbol.list_arguments()
        labels = [name for name in module.label_names if name in names]
        bound = {d.name: d.shape for d in (*module.data_shapes, *(module.label_shapes or ()))} if module.binded else {}
        feed = feed_of(module.symbol, desc, module.data_names, labels, parts, bound)
        fetches = Fetches.find(module.symbol, fetch, [*module.data_names, *labels])
        fetches.check_shapes(feed)
        make_ready(module, feed, None, train, args)
        return Prepared(module, feed, fetches, train)

    def _module_of(self, program: Any, desc: Any) -> Module:
        if isinstance(program, Module):
            return program
        return self._modules[id(program)]
