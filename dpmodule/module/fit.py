"""Training: the loop over batches and epochs of a `Trainable` module."""

from __future__ import annotations

import inspect
import math
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from numbers import Integral
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from .. import metric as metrics
from .._core.overrides import is_users
from ..base import ArgumentError, BoundsError, NonFiniteError, StateError
from ..callback import BatchEndParam, Callback, ProgressBar, Speedometer, TqdmBar
from ..callback.base import as_list
from ..context import Context
from ..initializer import Uniform
from ..ndarray import NDArray
from .class_labels import check_choice as check_label_choice
from .class_labels import find_invalid_label
from .history import History
from .interrupts import DeferredInterrupt
from .lockstep import Lockstep, shard
from .metric_names import check_measured
from .nonfinite import NonFiniteCheck, check_choice, nonfinite_names
from .protocol import Trainable
from .step_timer import StepTimer, deterministic_algorithms
from .training_data import bindable, labelled_iter, named_batches, sample_numbers, samples_in

if TYPE_CHECKING:
    from ..callback.base import CallbackLike
    from ..io import DataBatch, DataIter
    from ..metric import EvalMetric
    from ..metric.composite import MetricLike
    from .types import (
        BatchLike,
        CheckpointLike,
        DataLike,
        EvalDataLike,
        InitializerLike,
        KVStoreLike,
        Labels,
        MonitorLike,
        OptimizerLike,
        OptimizerParams,
        RowIdFunction,
    )


class FitOptions(SimpleNamespace):
    """The arguments of `fit`, by name."""


def _first_batch(module: Trainable, data: DataIter, epoch: int) -> tuple[Any, Iterator[Any]]:
    """Return the first batch and an iterator over the others; reset an exhausted iterator."""
    batches = named_batches(module, data)
    batch = next(batches, None)
    if batch is None:  # exhausted, as after `score`
        data.reset()
        batches = named_batches(module, data)
        batch = next(batches, None)
    if batch is None:
        raise StateError(
            f"fit: train_data has no batch in epoch {epoch}, even after reset(); is it empty, or smaller than a batch "
            "whose rest is discarded?"
        )
    return batch, batches


def _prepare_module(module: Trainable, options: FitOptions, data: DataIter) -> None:
    """Bind, initialize parameters and install the optimizer, unless that is done already."""
    rebind: Any = getattr(module, "rebind", None)
    shapes = bindable(module, data.provide_data)
    if (options.contexts is not None or options.workload is not None) and rebind is None:
        raise ArgumentError(
            f"fit: {type(module).__name__} does not accept contexts here; pass them to its constructor"
        )
    if options.contexts is not None or options.workload is not None:
        rebind(options.contexts, options.workload, shapes, data.provide_label)
    elif module.binded and not module.for_training and rebind is not None:
        rebind(None, None, shapes, data.provide_label)
    elif not module.binded or options.force_rebind:
        module.bind(
            data_shapes=shapes,
            label_shapes=data.provide_label,
            for_training=True,
            force_rebind=options.force_rebind,
        )
    if options.monitor is not None:
        module.install_monitor(options.monitor)
    module.init_params(
        initializer=options.initializer,
        arg_params=options.arg_params,
        aux_params=options.aux_params,
        allow_missing=options.allow_missing,
        force_init=options.force_init,
    )
    module.init_optimizer(
        kvstore=options.kvstore, optimizer=options.optimizer, optimizer_params=options.optimizer_params
    )


def fit(
    module: Trainable,
    train_data: DataLike,
    eval_data: EvalDataLike = None,
    eval_metric: MetricLike = "acc",
    epoch_end_callback: CallbackLike = None,
    batch_end_callback: CallbackLike = None,
    kvstore: KVStoreLike = "local",
    optimizer: OptimizerLike = "sgd",
    optimizer_params: OptimizerParams = (("learning_rate", 0.01),),
    eval_end_callback: CallbackLike = None,
    eval_batch_end_callback: CallbackLike = None,
    initializer: InitializerLike = Uniform(0.01),
    arg_params: Mapping[str, NDArray] | None = None,
    aux_params: Mapping[str, NDArray] | None = None,
    allow_missing: bool = False,
    force_rebind: bool = False,
    force_init: bool = False,
    begin_epoch: int = 0,
    num_epoch: int | None = None,
    validation_metric: MetricLike | None = None,
    monitor: MonitorLike | None = None,
    sparse_row_id_fn: RowIdFunction = None,
    *,
    contexts: Sequence[Context] | None = None,
    workload: Sequence[float] | None = None,
    count_padding: bool = False,
    on_nonfinite: str = "raise",
    check_labels: str = "warn",
    callbacks: CallbackLike = None,
    training_step: Callable[[Any, Any], Any] | None = None,
    accumulate: int = 1,
    clip_global_norm: float | None = None,
    eval_every_n_batches: int | None = None,
    max_batches: int | None = None,
    max_time_s: float | None = None,
    dry_run: bool = False,
    checkpoint: CheckpointLike = None,
    resume: str | None = None,
    shard: bool = False,
    profile: bool = False,
    deterministic: bool = False,
    progress: bool = True,
) -> History:
    """Train a module, and return the metrics.

    Args:
        module: the module; bound, initialized or neither.
        train_data: a DataIter, a torch DataLoader, or anything that yields (x, y), dicts or DataBatches and
            can be iterated once per epoch.
        eval_data: the same, for validation after every epoch, or several by name; None = no validation.
        eval_metric: name, list of names, function or `EvalMetric`.
        epoch_end_callback: ``(epoch, symbol, arg_params, aux_params)``, or a list of such functions. One that returns
            True ends training after the epoch.
        batch_end_callback: ``(BatchEndParam)``, or a list of such functions. One that returns True ends training
            immediately.
        kvstore: "local", "device", None, "dist_sync" or another for several processes, or a store.
        optimizer: name or `Optimizer`.
        optimizer_params: arguments of the optimizer, a dict or pairs; rescale_grad defaults to 1 / batch size.
        eval_end_callback: called after validation.
        eval_batch_end_callback: called after every batch of validation.
        initializer: initializes parameters; an `Initializer`, or its name.
        allow_missing: let the initializer fill parameters that `arg_params` lacks.
        force_rebind: bind a bound module again.
        num_epoch: number of the epoch after the last.
        validation_metric: metric for validation; None = `eval_metric`.
        monitor: a `Monitor` to install.
        sparse_row_id_fn: passed to `prepare`.
        contexts: devices to train on; binds the module to them again, keeping parameters.
        workload: share of each device; None = equal.
        count_padding: count padding rows of the last batch in metrics, as MXNet does.
        on_nonfinite: action on NaN or infinity in an output or a gradient: "raise" before the parameters change,
            "skip" the batch, "warn", or "ignore".
        check_labels: action on labels in the first batch of an epoch that are not class numbers of the network, such
            as 10 for ten scores: "warn" once an epoch, "raise" before training on them, or "ignore".
        callbacks: `callback.Callback` objects, such as `callback.EarlyStopping`; the other callback arguments accept
            them, too.
        training_step: ``(module, batch)``, replaces forward, backward and update of a batch. Its result, a dict of
            numbers or None, is averaged over the epoch and replaces `eval_metric`.
        accumulate: number of batches whose gradients are summed for one update, as for one batch of all their samples;
            the last update of an epoch may sum fewer.
        clip_global_norm: largest global norm of the gradients; see `BaseModule.clip_by_global_norm`.
        eval_every_n_batches: also evaluate within epochs, after every so many batches.
        max_batches: largest number of batches in total, including those before a `resume`; several processes that
            `accumulate` end after the next update.
        max_time_s: end after the batch in which this many seconds have passed. If either limit ends an epoch early, the
            state of the run is saved, given a `checkpoint` with `save_on_interrupt`.
        dry_run: train on one batch and evaluate on one as a test. Epoch-end callbacks are not called, nothing is
            saved, and saved runs are not resumed. The parameters do change.
        checkpoint: a `callback.Checkpoint`, or its prefix.
        resume: "auto" resumes from the newest state that `checkpoint` has saved, or starts a run if there is none; any
            other text is the prefix of a saved run. A resumed run is bit for bit that of a run without interruption;
            `num_epoch` may be larger.
        shard: let each process of a kvstore "dist_sync" read its own part of `train_data` and `eval_data`; metrics
            then cover all parts.
        profile: log after every epoch the time spent waiting for data, computing, and updating. This waits for the
            devices after each step, which takes time itself.
        deterministic: use deterministic algorithms until `fit` returns, which GPUs do not by default; some are slower,
            and torch warns about operators without one. For equal runs also call `mx.random.seed_all` before making
            the module.
        progress: show a bar in a terminal or a notebook, on rank 0, unless a callback reports progress (`Speedometer`,
            `ProgressBar`, `TqdmBar`) or `fit` runs within another bar. ``DPMODULE_PROGRESS=0`` also turns it off.

    Shape:
        arg_params[name], aux_params[name]: that of the parameter or state.
        batch.data[i], batch.label[i] of `train_data`: (N, ...), N samples on the axis that the layout calls "N".

    Returns:
        The metrics of every epoch.

    Raises:
        ArgumentError: an argument is invalid.
        BoundsError: a label is not a class number, and `check_labels` is "raise".
        NonFiniteError: an output or a gradient is not finite; parameters and auxiliary states are those before the
            batch. A `checkpoint` saves this state as that of a run that skipped the batch.
        LostWorkerError: another process of the run has exited or stopped.
        KeyboardInterrupt: Ctrl-C, raised after the current batch; the module stays usable.
        SystemExit: SIGTERM, likewise; its status is 143.
        StateError: an epoch has no batch, or another run saves under the prefix.

    Source: MXNet 1.9.1 `BaseModule.fit`, including the order of its steps.
    """
    options = FitOptions(**{name: value for name, value in locals().items() if name != "module"})
    with deterministic_algorithms(deterministic):
        return TrainingRun(module, options).train()


_ENDED_BY_OTHERS = "another process ended training"


def _lockstep(module: Trainable, options: FitOptions, data: Sequence[Any]) -> Lockstep:
    """Return the `Lockstep` of the processes that train the module, after giving all the same parameters."""
    lockstep = Lockstep(module)
    if lockstep.is_distributed and options.training_step is not None:
        raise ArgumentError(
            "fit: a training_step updates parameters itself, which several processes cannot synchronize; omit it, or "
            "train in one process"
        )
    lockstep.align(module)
    if options.shard:
        for iterator in data:
            shard(iterator, lockstep)
    return lockstep


_SAME_OPTIONS = (
    "begin_epoch num_epoch eval_every_n_batches accumulate clip_global_norm on_nonfinite shard dry_run resume"
)
"""Arguments of `fit` that must be equal in all processes, so that they make the same updates."""


def _check_same_options(
    lockstep: Lockstep, options: FitOptions, evaluations: Mapping[str, Any], metric: EvalMetric
) -> None:
    """Raise ArgumentError if arguments differ between the processes of a run."""
    if not lockstep.is_distributed:
        return
    validation = options.validation_metric
    lockstep.check_same(
        "fit",
        {
            **{name: getattr(options, name) for name in _SAME_OPTIONS.split()},
            "eval_data": list(evaluations),
            "eval_metric": _metric_names(metric),
            "validation_metric": None if validation is None else _metric_names(metrics.create(validation)),
            "checkpoint": options.checkpoint is not None,
        },
    )


def _metric_names(metric: EvalMetric) -> list[str]:
    return [name for name, _ in metric.get_name_value()]


class _NoSaver:
    """Replaces `RunSaver` in a run that is neither saved nor resumed."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass

    def wants_batch(self, nbatch: int) -> bool:
        return False

    def wants_end(self, requested: bool) -> bool:
        return False

    def find_state(self, resume: None, fingerprint: object) -> None:
        return None

    def begin(self, run: TrainingRun) -> None:
        pass

    def begin_epoch(self) -> None:
        pass

    def note_position(self, nbatch: int, last: object = None) -> None:
        pass

    def after_epoch(self, run: TrainingRun, ends: bool) -> None:
        pass


def _saving(options: FitOptions, data: DataIter, lockstep: Lockstep, others: Mapping[str, Any]) -> Any:
    """Return the `RunSaver` of a run; only saved runs import it."""
    if options.dry_run or (options.checkpoint is None and options.resume is None):
        return _NoSaver()
    from .saving import RunSaver

    return RunSaver(options.checkpoint, data, lockstep, {**others, "callbacks": _user_objects(options)})


def _user_objects(options: FitOptions) -> list[Any]:
    """Return the user's functions and objects that `fit` calls, which may have random generators."""
    return [
        options.epoch_end_callback,
        options.batch_end_callback,
        options.eval_end_callback,
        options.eval_batch_end_callback,
        options.callbacks,
        options.training_step,
        options.sparse_row_id_fn,
    ]


class TrainingRun:
    """One call of `fit`: its data, position, and reason to end.

    Attributes:
        epoch: number of the epoch.
        num_batches: number of batches trained on in all epochs.
    """

    def __init__(self, module: Trainable, options: FitOptions) -> None:
        _check_options(options)
        self.module: Any = module
        self.epoch, self.nbatch, self.num_batches = options.begin_epoch, 0, 0
        self.history = History()
        self._options = options
        self._data = labelled_iter(module, options.train_data, "fit")
        self._evaluations = _evaluations(module, options.eval_data)
        _prepare_module(module, options, self._data)
        self._lockstep = _lockstep(module, options, [self._data, *self._evaluations.values()])
        self.metric = metrics.create(options.eval_metric)
        self._validation = self.metric if options.validation_metric is None else options.validation_metric
        # evaluations within an epoch reset their metric, so it cannot be the metric of the epoch
        self._metric_within_epoch: Any = deepcopy(self._validation) if options.eval_every_n_batches else None
        self._callbacks: list[Any] = _callbacks(options)
        _check_same_options(self._lockstep, options, self._evaluations, self.metric)
        self._batch_callbacks = _plain_functions(options.batch_end_callback)
        self._bar = None if self._lockstep.rank else _default_bar(options, self._batch_callbacks, self._data)
        if self._bar is not None:
            self._batch_callbacks.append(self._bar)
        self._epoch_callbacks = _plain_functions(options.epoch_end_callback)
        self._timer = StepTimer(self.module, options.profile)
        self._steps = _TrainingSteps(self.module, options, self._lockstep, self._timer)
        self._begun = self._epoch_begun = time.monotonic()
        self._stopped = self._is_out_of_time = False
        others = {
            "module": module,
            "metrics": [self.metric, self._validation],
            "eval_data": self._evaluations,
        }
        self._saving = _saving(options, self._data, self._lockstep, others)
        self._has_scheduled_work = (
            self._lockstep.is_distributed
            or self._metric_within_epoch is not None
            or not isinstance(self._saving, _NoSaver)
        )
        self._resumed: dict[str, Any] | None = None
        # set after the last batch of an epoch: its metrics, and True once parameters are averaged over contexts
        self._epoch_metrics: list[tuple[str, float]] | None = None
        self._contexts_averaged = False

    def _fingerprint(self) -> dict[str, Any]:
        from .run_state import fingerprint

        options, is_distributed = self._options, self._lockstep.is_distributed
        settings = {
            "accumulate": options.accumulate,
            "clip_global_norm": options.clip_global_norm,
            "a training_step": options.training_step is not None,
            "shard": options.shard and is_distributed,
        }
        run = fingerprint(self.module, self._data, self._lockstep.size, settings)
        return {**run, "metric": self.metric.settings()}

    def state_dict(self, over: bool = False) -> dict[str, Any]:
        """Return the state of the run beyond MXNet's files, as plain data and arrays."""
        from .run_state import kernels, module_state, optimizer_state

        chain = self.module.all_updates()
        return {
            "epoch": self.epoch,
            "nbatch": self.nbatch,
            "num_batches": self.num_batches,
            "over": over,
            "metric": self.metric.state_dict(),
            "found": self._epoch_metrics if over else None,
            "averaged": self._contexts_averaged,
            "steps": self._steps.state_dict(),
            "module": module_state(self.module),
            "optimizers": [optimizer_state(updates) for updates in chain] if len(chain) > 1 else [],
            "history": self.history.rows,
            "callbacks": [
                [type(callback).__name__, callback.state_dict()]
                for callback in self._callbacks
                if hasattr(callback, "state_dict")
            ],
            "threads": torch.get_num_threads(),
            "kernels": kernels(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `state_dict`; parameters and optimizer states come from their own files."""
        from .run_state import load_module, load_optimizer_state, rounding_differences

        self.epoch, self.nbatch, self.num_batches = state["epoch"], state["nbatch"], state["num_batches"]
        self._log_change(self._saving.load_parameters(self.module, state["facts"]["rates"]))
        load_module(self.module, state["module"])
        self._lockstep.load_own_state(self.module, state.get("own", ()))
        rates = state["facts"]["rates"]
        for updates, data, rate in zip(self.module.all_updates(), state["optimizers"], rates):
            self._log_change(load_optimizer_state(updates, data, rate))
        self.metric.reset()
        if self.nbatch:  # the metric may be changed at the start of an epoch
            self.metric.load_state_dict(state["metric"])
        values = state.get("found")
        self._epoch_metrics = values and [(name, value) for name, value in values]
        self._contexts_averaged = state.get("averaged", False)
        self._steps.load_state_dict(state["steps"])
        self.history.rows = list(state["history"])
        self._load_callbacks(state["callbacks"])
        if different := rounding_differences(state):
            self.module.logger.warning(
                "the run was saved %s: the remaining training may differ in the last digits",
                "; ".join(different),
            )
        self._saving.load_position(state)

    def _log_change(self, change: str | None) -> None:
        if change is not None:
            self._log("fit: %s", change)

    def _load_callbacks(self, states: Iterable[Any]) -> None:
        """Restore the states of callbacks, matched by class and order."""
        saved = defaultdict(list)
        for name, state in states:
            saved[name].append(state)
        for callback in self._callbacks:
            if hasattr(callback, "load_state_dict"):
                name = type(callback).__name__
                if saved[name]:
                    callback.load_state_dict(saved[name].pop(0))
                else:
                    self._log("the run was saved without %s, which starts from its initial state", name)

    @property
    def num_updates(self) -> int:
        """Number of parameter updates."""
        return self._steps.updates

    def check_measured(self, name: str) -> None:
        """Raise ArgumentError if no epoch will measure a metric, as far as that is known before the first epoch."""
        if self._options.training_step is None:
            evaluated = dict.fromkeys(self._evaluations, metrics.create(self._validation))
            check_measured(name, {"train": self.metric, **evaluated})

    def stop(self, why: str) -> None:
        """End training after the current batch, or after the work at the end of the epoch."""
        self._stopped = True
        self.history.ended = self.history.ended or why

    @property
    def position(self) -> str:
        """The batch and its epoch, for messages."""
        return f"batch {self.nbatch} of epoch {self.epoch}"

    def samples_in(self, batch: BatchLike) -> str:
        """Return a description of the samples of the last batch; "" if the iterator does not number them."""
        return samples_in(self.module, batch, self._data)

    def train(self) -> History:
        """Run the remaining epochs."""
        with self._saving, DeferredInterrupt() as interrupt:
            self._resumed = self._saving.find_state(self._options.resume, self._fingerprint)
            self._begin()
            with nullcontext() if self._bar is None else self._bar:
                for epoch in range(self.epoch, self._options.num_epoch or 0):
                    if self._stopped:
                        break
                    self.epoch = epoch
                    self._run_epoch(interrupt)
            for callback in self._callbacks:
                callback.on_fit_end(self)
            if interrupt.requested:
                interrupt.raise_now()
        return self.history

    def _begin(self) -> None:
        """Call `on_fit_begin` of callbacks, and restore the state of a resumed run."""
        self._saving.begin(self)
        for callback in self._callbacks:
            callback.on_fit_begin(self)
        for scheduler in _schedulers(self.module):
            if hasattr(scheduler, "on_fit_begin"):
                scheduler.on_fit_begin(self)
        if self._resumed is None:
            return
        self.load_state_dict(self._resumed)
        self._log("fit: resuming in epoch %d after %d batches", self.epoch, self.nbatch)
        for callback in self._callbacks:
            if callback.has_ended():
                self.stop(f"{type(callback).__name__} before it was resumed")
        limit = self._options.max_batches
        if limit is not None and self.num_batches >= limit:
            self.stop(f"max_batches={limit}")

    def _run_epoch(self, interrupt: DeferredInterrupt) -> None:
        module, epoch = self.module, self.epoch
        self._epoch_begun = time.monotonic()
        if self._resumed is None or not self.nbatch:
            self.metric.reset()
            self.nbatch = 0
        module.start_epoch(epoch, self._data)
        try:
            values = self._train_epoch(interrupt)
        finally:
            module.end_epoch()
        self._log_epoch(values)
        if not self._contexts_averaged:
            module.sync_contexts()
            self._lockstep.average_states(module)
        self._contexts_averaged = True
        if is_users(module.get_params) or is_users(module.set_params):  # MXNet's fit calls both
            module.set_params(*module.get_params())
        row = {f"train-{name}": value for name, value in values}
        if self._stopped and not self._options.dry_run:  # before the end of the epoch
            self._add_to_history(row)
            return
        if (
            not self._lockstep.is_distributed
        ):  # an interrupted evaluation and these callbacks are repeated on resume
            self._saving.note_position(self.nbatch)
        if not self._options.dry_run:
            self._call_epoch_callbacks()
        row.update(self._evaluate_epoch(interrupt))
        self._add_to_history(row)
        if not self._options.dry_run:
            self._call_on_epoch_end()
        self._saving.begin_epoch()
        self._data.reset()
        requested = interrupt.requested
        if not self._options.dry_run:
            with interrupt.uninterrupted():
                self._saving.after_epoch(self, requested)
        if requested and not self._lockstep.is_distributed:  # else all processes end after the next batch
            interrupt.raise_now()

    def _evaluate_epoch(self, interrupt: DeferredInterrupt) -> dict[str, float]:
        """Evaluate after an epoch; a stop request interrupts the evaluation, which is repeated on resume.

        Several processes evaluate to the end, and exchange stop requests with the next batch.
        """
        if self._lockstep.is_distributed:
            return self._evaluate(self._validation)
        try:
            with interrupt.immediate():
                return self._evaluate(self._validation)
        except (KeyboardInterrupt, SystemExit):
            if interrupt.requested and self._saving.wants_end(True):
                with interrupt.uninterrupted():
                    self._saving.within_epoch(self, True, is_repeated=True)
            raise

    def _call_on_epoch_end(self) -> None:
        """Call `on_epoch_end` of callbacks and schedulers."""
        for callback in self._callbacks:
            if callback.on_epoch_end(self) is True:
                self.stop(f"{type(callback).__name__} after epoch {self.epoch}")
        for scheduler in _schedulers(self.module):
            scheduler.on_epoch_end(self)
        if self._lockstep.any(self._stopped):
            self.stop(_ENDED_BY_OTHERS)

    def _log(self, text: str, *values: object) -> None:
        if not self._lockstep.rank:
            self.module.logger.info(text, *values)

    def _log_epoch(self, values: list[tuple[str, float]]) -> None:
        """Log the metrics and the time of an epoch."""
        epoch, time_s = self.epoch, time.monotonic() - self._epoch_begun
        for name, value in values:
            self._log("Epoch[%d] Train-%s=%f", epoch, name, value)
        self._log("Epoch[%d] Time cost=%.3f", epoch, time_s)
        for line in self._timer.lines(time_s):
            self._log("Epoch[%d] %s", epoch, line)

    def _add_to_history(self, row: dict[str, float]) -> None:
        self.history.add(self.epoch, self.nbatch, time.monotonic() - self._epoch_begun, row)

    def _call_epoch_callbacks(self) -> None:
        if not self._epoch_callbacks:
            return
        # only some processes may have callbacks, which must not fetch tables that others keep
        get = self.module.get_params
        arg_params, aux_params = (get if is_users(get) else getattr(self.module, "live_params", get))()
        for callback in self._epoch_callbacks:
            if callback(self.epoch, self.module.symbol, arg_params, aux_params) is True:
                self.stop(f"epoch_end_callback after epoch {self.epoch}")

    def _evaluate(self, metric: MetricLike, batch: int | None = None) -> dict[str, float]:
        """Evaluate a metric on all evaluation data, and return the values by name."""
        options, row = self._options, {}
        where = f"Epoch[{self.epoch}]" + ("" if batch is None else f" Batch[{batch}]")
        for title, data in self._evaluations.items():
            values = self.module.score(
                data,
                metric,
                num_batch=1 if options.dry_run else None,
                score_end_callback=[
                    partial(self._call_batch_callback, callback)
                    for callback in as_list(options.eval_end_callback)
                ],
                batch_end_callback=options.eval_batch_end_callback,
                epoch=self.epoch,
                count_padding=options.count_padding,
            )
            for name, value in values:
                self._log("%s %s-%s=%f", where, title.capitalize(), name, value)
                row[f"{title}-{name}"] = value
        return row

    def _train_epoch(self, interrupt: DeferredInterrupt) -> list[tuple[str, float]]:
        """Train on every batch of an epoch, unless training ends earlier, and return the metrics."""
        is_resumed, is_over = self._resumed is not None, self._resumed is not None and self._resumed["over"]
        self._resumed = None
        metric = self.metric
        if is_over:
            # saved between the last batch and the end of the epoch; the iterator must still keep the rolled-over rest
            next(self._data, None)
            self._saving.continue_after(None)
        else:
            self._epoch_metrics, self._contexts_averaged = None, False
            for callback in self._batch_callbacks:
                if isinstance(callback, TqdmBar):
                    callback.on_epoch_begin(self)
            metric = self._train_batches(interrupt, is_resumed)
            if self._bar is not None and not self._stopped:
                self._bar.total = self.nbatch
        if self._lockstep.is_distributed:
            self._wait_for_others(interrupt)
        elif interrupt.requested and not self._stopped:
            if self._saving.wants_end(True):
                with interrupt.uninterrupted():
                    self._saving.note_position(self.nbatch)
                    self._saving.within_epoch(self, True)
            interrupt.raise_now()
        return self._steps.values(metric) if self._epoch_metrics is None else self._epoch_metrics

    def _train_batches(self, interrupt: DeferredInterrupt, is_resumed: bool) -> Any:
        """Train on the epoch's batches; return the metric, or a copy if other processes may still train."""
        monitor, limit = self._options.monitor, self._options.max_time_s
        saving, lockstep = self._saving, self._lockstep
        metric = self.metric
        batch, batches = self._first_batch(is_resumed)
        self._check_labels(batch)
        while batch is not None:
            if monitor is not None:
                monitor.tic()
            if self._has_scheduled_work:
                self._announce_scheduled_work(interrupt)
            try:
                self._steps.train(batch, self)
            except NonFiniteError:
                self._save_before_bad_batch(batch, batches)
                raise
            requested = lockstep.stop_requested(interrupt) if lockstep.is_distributed else interrupt.requested
            self._is_out_of_time = limit is not None and time.monotonic() - self._begun >= limit
            ends = requested or (self._is_out_of_time and not lockstep.is_distributed)
            saves = self._has_scheduled_work and (lockstep.pop_flag("due") or saving.wants_end(ends))
            if saves:  # before the next batch is read, which is not part of the saved state
                saving.note_position(self.nbatch + 1, batch)
            following = self._next(batches)
            if following is None:
                metric = self._finish_epoch_metrics()
            if monitor is not None:
                monitor.toc_print()
            self._after(batch, following is None)
            if saves:
                with interrupt.uninterrupted():
                    saving.within_epoch(self, following is None, following)
            # a signal that arrives in a callback waits for the next batch only if other processes or a save need it
            if requested or (
                interrupt.requested and not lockstep.is_distributed and not saving.wants_end(True)
            ):
                interrupt.raise_now()
            batch = None if self._stopped else following
        return metric

    def _check_labels(self, batch: BatchLike) -> None:
        """Check a batch for labels that are not class numbers of the network."""
        choice, network_inputs = self._options.check_labels, getattr(self.module, "network_inputs", None)
        if choice == "ignore" or network_inputs is None:  # a module written for MXNet
            return
        for part in batch if isinstance(batch, list) else [batch]:
            labels = (find_invalid_label(inputs, pad_of(part)) for inputs in network_inputs(part))
            invalid = next(filter(None, labels), None)
            if invalid is None:
                continue
            numbers = sample_numbers(part, self._data)
            sample = invalid.row if numbers is None or invalid.row >= len(numbers) else numbers[invalid.row]
            text = f"fit: {invalid.describe(f'sample {sample} in {self.position}')}"
            if choice == "raise":
                raise BoundsError(
                    f'{text} Correct the labels; check_labels="warn" trains on them, as MXNet does'
                )
            self.module.logger.warning(
                '%s Training continues, as in MXNet; check_labels="raise" stops it, "ignore" hides this warning',
                text,
            )
            return

    def _first_batch(self, is_resumed: bool) -> tuple[Any, Iterator[Any]]:
        with self._timer.data:
            batch, batches = _first_batch(self.module, self._data, self.epoch)
        if is_resumed:
            self._saving.continue_after(batch)
        return batch, batches

    def _finish_epoch_metrics(self) -> Any:
        """Finish the last update of an epoch and, in one process, record the metrics; return the metric to use."""
        self._steps.finish(self)
        if self._lockstep.is_distributed:  # others may have batches left, and callbacks reset the metric
            return deepcopy(self.metric)
        self._epoch_metrics = self._steps.values(self.metric)
        return self.metric

    def _announce_scheduled_work(self, interrupt: DeferredInterrupt) -> None:
        """Set the flags for the work after the next batch, which all processes do together."""
        count, every, limit = self.nbatch + 1, self._options.eval_every_n_batches, self._options.max_batches
        is_last = limit is not None and self.num_batches + 1 >= limit
        self._lockstep.send_request(interrupt)
        self._lockstep.set_flags(
            due=self._saving.wants_batch(count) or self._saving.wants_end(is_last),
            evaluate=every is not None and count % every == 0,
        )

    def _save_before_bad_batch(self, batch: Any, batches: Iterator[Any]) -> None:
        """Save the state before a batch that is not finite, as that of a run that skipped it."""
        options, saving, lockstep = self._options, self._saving, self._lockstep
        if options.training_step is not None or not saving.wants_end(True):
            return
        if lockstep.is_distributed and options.accumulate > 1:  # the other processes do not know of the error
            return
        arg_params, aux_params = self.module.get_params()
        if lockstep.any(bool(nonfinite_names({**arg_params, **aux_params}))):
            return
        self.nbatch += 1
        self.num_batches += 1
        saving.note_position(self.nbatch, batch)
        following = self._next(batches)
        if following is None and not lockstep.is_distributed:
            self._finish_epoch_metrics()
        saving.within_epoch(self, following is None, following)

    def _wait_for_others(self, interrupt: DeferredInterrupt) -> None:
        """Take part in the updates of processes that have batches left, with zero gradients."""
        lockstep, is_active = self._lockstep, True
        while is_active:
            lockstep.send_request(interrupt)
            lockstep.set_flags(stop=self._stopped)
            is_active = self._steps.idle(self)
            self._stop_with_others()
            if lockstep.pop_flag("evaluate"):
                self._add_to_history(self._evaluate(self._metric_within_epoch, self.nbatch))
            requested = lockstep.stop_requested(interrupt)
            if lockstep.pop_flag("due") or self._saving.wants_end(requested):
                self._saving.note_position(self.nbatch)
                self._saving.within_epoch(self, True)
            if requested:
                interrupt.raise_now()

    def _stop_with_others(self) -> None:
        if self._lockstep.pop_flag("stop"):
            self.stop(_ENDED_BY_OTHERS)

    def _next(self, batches: Iterator[Any]) -> Any:
        """Return the next batch, prepared; None at the end."""
        with self._timer.data:
            batch = next(batches, None)
            if batch is not None:
                self.module.prepare(batch, sparse_row_id_fn=self._options.sparse_row_id_fn)
        return batch

    def _after(self, batch: BatchLike, is_last: bool) -> None:
        """Count a batch, call callbacks, and check whether to stop."""
        options = self._options
        self.nbatch += 1
        self.num_batches += 1
        if self._batch_callbacks:
            self._call_batch_callbacks(batch, is_last)
        for callback in self._callbacks:
            if callback.on_batch_end(self) is True:
                self.stop(f"{type(callback).__name__} after batch {self.nbatch - 1} of epoch {self.epoch}")
        if self._has_scheduled_work:
            if self._lockstep.pop_flag("evaluate") and (self._lockstep.is_distributed or not is_last):
                self._add_to_history(self._evaluate(self._metric_within_epoch, self.nbatch))
            self._stop_with_others()
        if options.dry_run:
            self.stop("dry_run")
        elif (
            options.max_batches is not None
            and self.num_batches >= options.max_batches
            and not (
                self._lockstep.is_distributed and self._steps.are_gradients_pending
            )  # they save with an update
        ):
            self.stop(f"max_batches={options.max_batches}")
        elif self._is_out_of_time:
            self.stop(f"max_time_s={options.max_time_s}")

    def _call_batch_callbacks(self, batch: BatchLike, is_last: bool) -> None:
        variables = {
            **vars(self._options),
            "self": self.module,
            "module": self.module,
            "train_data": self._data,
            "eval_metric": self.metric,
            "epoch": self.epoch,
            "nbatch": self.nbatch - 1,
            "data_batch": batch,
            "end_of_batch": is_last,
            "run": self,
        }
        param = BatchEndParam(self.epoch, self.nbatch - 1, self.metric, variables)
        for callback in self._batch_callbacks:
            self._call_batch_callback(callback, param)

    def _call_batch_callback(self, callback: Callable[..., Any], param: BatchEndParam) -> None:
        if callback(param) is True:
            self.stop(f"a callback after batch {param.nbatch} of epoch {param.epoch}")


class _TrainingSteps:
    """The training step of each batch: forward, backward and, once enough gradients are summed, an update."""

    def __init__(self, module: Any, options: FitOptions, lockstep: Lockstep, timer: StepTimer) -> None:
        self._lockstep = lockstep
        self._module = module
        self._timer = timer
        self._options = options
        self._accumulates = options.accumulate > 1
        self._announces_updates = (
            lockstep.is_distributed and not self._accumulates and hasattr(module, "announce_update")
        )
        self._has_pending_gradients = False  # True until the last gradients are added to the sum
        self._pending_samples = self._pending_batches = 0
        self._samples_per_batch = module.all_updates()[0].group.num_samples if self._accumulates else 1
        self._sums: dict[str, tuple[float, int]] = {}
        self._finite = NonFiniteCheck(module, options.on_nonfinite)
        self.updates = 0

    def train(self, batch: Any, run: TrainingRun) -> None:
        """Train on a batch, and update the metric with its outputs."""
        if self._options.training_step is not None:
            with self._timer.compute:
                self._run_training_step(batch, self._options.training_step, run)
            return
        module, options = self._module, self._options
        with self._timer.compute:
            if self._has_pending_gradients:
                module.keep_gradients()
                self._has_pending_gradients = False
            if self._announces_updates:
                module.announce_update()
            module.forward_backward(batch)
        if self._lockstep.is_distributed:
            if not self._train_together(batch, run):
                return
        else:
            if module.handle_overflow():
                return
            nonfinite = self._finite.find_problem(batch, run)
            if nonfinite is not None:
                self._finite.skip_or_raise(nonfinite)
                return
            if self._accumulates:
                self._accumulate(run)
            else:
                self._update()
        update_metric(module, run.metric, batch, options.count_padding)

    def _train_together(self, batch: Any, run: TrainingRun) -> bool:
        """Apply the gradients of a batch together with all processes; return True if the batch counts."""
        module, lockstep, options = self._module, self._lockstep, self._options
        if not lockstep.adds_up and module.handle_overflow():  # "dist_async": each process updates alone
            return False
        has_overflow = module.has_overflow()
        bad = None if has_overflow else self._finite.find_problem(batch, run)
        if bad is not None and self._accumulates and options.on_nonfinite == "skip":
            self._finite.skip_or_raise(bad)  # the other processes keep their batches
            return False
        lockstep.set_flags(bad=bad is not None, overflow=has_overflow)
        is_used = not has_overflow and bad is None
        if not is_used:
            self._clear()
        if not self._accumulates:
            return self._update_together(run, bad)
        if has_overflow:
            module.restore_aux_states()
        return self._accumulate(run, is_used, bad) and is_used

    def _update_together(self, run: TrainingRun, bad: str | None = None) -> bool:
        """Update with the gradients of all processes; return False if the update was dropped."""
        self._update()
        if self._lockstep.pop_flag("bad"):
            self._finite.skip_or_raise(bad or f"a value in another process is not finite at {run.position}")
            return False
        return not self._lockstep.pop_flag("overflow")

    def _clear(self) -> None:
        for updates in self._module.all_updates():
            updates.clear()

    def idle(self, run: TrainingRun) -> bool:
        """Take part in an update of other processes with zero gradients; return True if there was one."""
        self._lockstep.set_idle()
        if self._accumulates:
            self._lockstep.set_num_samples(0)
        self._clear()
        self._update_together(run)
        return self._lockstep.pop_flag("active")

    def _accumulate(self, run: TrainingRun, is_used: bool = True, bad: str | None = None) -> bool:
        """Add the gradients to the sum, and update once there are enough batches."""
        self._pending_batches += 1
        if is_used:
            self._has_pending_gradients = True
            self._pending_samples += self._module.all_updates()[0].group.num_samples
        if bad is None and self._pending_batches < self._options.accumulate:
            return True
        return self.finish(run, bad)

    @property
    def are_gradients_pending(self) -> bool:
        """True if summed gradients have not been applied yet."""
        return self._pending_batches > 0

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the step, after adding pending gradients to the module's sum."""
        if self._has_pending_gradients:
            self._module.keep_gradients()
            self._has_pending_gradients = False
        return {
            "batches": self._pending_batches,
            "rows": self._pending_samples,
            "sums": {k: list(v) for k, v in self._sums.items()},
            "updates": self.updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `state_dict`."""
        self._pending_batches, self._pending_samples, self.updates = (
            state["batches"],
            state["rows"],
            state["updates"],
        )
        self._sums = {name: (total, count) for name, (total, count) in state["sums"].items()}

    def finish(self, run: TrainingRun, bad: str | None = None) -> bool:
        """Apply the summed gradients; return False if the update was dropped."""
        if not self._pending_batches:
            return True
        if not self._has_pending_gradients:  # the gradients of the last batch were dropped
            self._clear()
        if self._lockstep.adds_up:
            self._lockstep.set_num_samples(self._pending_samples)
        else:
            self._module.scale_gradients(self._samples_per_batch / max(self._pending_samples, 1))
        self._has_pending_gradients = False
        self._pending_batches = self._pending_samples = 0
        if self._lockstep.is_distributed:
            return self._update_together(run, bad)
        self._update()
        return True

    def _update(self) -> None:
        with self._timer.update:
            if self._options.clip_global_norm is not None:
                self._module.clip_by_global_norm(self._options.clip_global_norm)
            self._module.update()
        self.updates += 1
        if self._lockstep.is_distributed:
            self._lockstep.reset_flags()

    def _run_training_step(self, batch: Any, step: Callable[[Any, Any], Any], run: TrainingRun) -> None:
        values = step(self._module, batch)
        self.updates += 1
        if values is None:
            update_metric(self._module, run.metric, batch, self._options.count_padding)
            return
        if not isinstance(values, Mapping):
            raise ArgumentError(
                f"fit: training_step returned {type(values).__name__}, expected a dict of numbers by name, or None"
            )
        for name, value in values.items():
            total, count = self._sums.get(name, (0.0, 0))
            self._sums[name] = total + float(value), count + 1

    def values(self, metric: EvalMetric) -> list[tuple[str, float]]:
        """Return the metrics of the epoch and reset them, after reporting pending checks."""
        self._finite.report_pending()
        if not self._sums:
            self._lockstep.merge(metric)
            values: list[tuple[str, float]] = metric.get_global_name_value()
            return values
        means = [(name, total / count) for name, (total, count) in self._sums.items()]
        self._sums = {}
        return means


def pad_of(batch: BatchLike) -> int:
    """Return the number of padding rows at the end of a batch."""
    padding = getattr(batch, "num_padding", None)
    return int((getattr(batch, "pad", None) or 0) if padding is None else padding)


def update_metric(
    module: Trainable, eval_metric: EvalMetric, batch: DataBatch | list[DataBatch], count_padding: bool
) -> None:
    """Update a metric with the outputs for a batch, or for its parts on several devices."""
    if isinstance(batch, list):
        module.update_metric(eval_metric, [b.label for b in batch], pre_sliced=True)
    elif count_padding or not (pad := pad_of(batch)):
        module.update_metric(eval_metric, batch.label)
    else:
        show_metric(module, eval_metric, batch.label, pad)


def show_metric(module: Trainable, eval_metric: EvalMetric, labels: Labels | None, pad: int) -> None:
    """Update a metric with a module's outputs; modules written for MXNet lack `pad` and count padding.

    Shape:
        labels[i]: (N, ...), as bound.
    """
    if pad and "pad" in inspect.signature(module.update_metric).parameters:
        module.update_metric(eval_metric, labels, pad=pad)
    else:
        module.update_metric(eval_metric, labels)


def _schedulers(module: Any) -> list[Any]:
    """Return the learning-rate schedules with an `on_epoch_end`."""
    try:
        schedulers = [getattr(updates.optimizer, "lr_scheduler", None) for updates in module.all_updates()]
    except (AttributeError, NotImplementedError):  # a user-defined module
        return []
    return [scheduler for scheduler in dict.fromkeys(schedulers) if hasattr(scheduler, "on_epoch_end")]


def _callbacks(options: FitOptions) -> list[Callback]:
    """Return the `Callback` objects among all callbacks; a `Checkpoint` among them is stored in the options."""
    callbacks: list[Callback] = []
    callback: Any
    for callback in as_list(options.callbacks):
        if not isinstance(callback, Callback):
            raise ArgumentError(
                f"fit: callbacks has {callback!r}, which is not a callback.Callback; pass functions, and MXNet's "
                "callbacks such as Speedometer, as batch_end_callback or epoch_end_callback"
            )
    for argument in (options.callbacks, options.batch_end_callback, options.epoch_end_callback):
        for callback in as_list(argument):
            if not isinstance(callback, Callback):
                continue
            if not callback.saves_runs:
                callbacks.append(callback)
            elif options.checkpoint is None:
                options.checkpoint = callback
            elif options.checkpoint is not callback:
                raise ArgumentError("fit: there are two checkpoints; a run is saved under one prefix")
    return callbacks


def _plain_functions(callbacks: CallbackLike) -> list[Callable[..., Any]]:
    """Return the callbacks that are plain functions."""
    return [callback for callback in as_list(callbacks) if not isinstance(callback, Callback)]


def _default_bar(options: FitOptions, callbacks: Sequence[object], data: DataIter) -> TqdmBar | None:
    """Return the default progress bar; None if a callback reports progress or the bar would not be visible."""
    if not options.progress or options.dry_run or os.environ.get("DPMODULE_PROGRESS") == "0":
        return None
    if any(isinstance(callback, (Speedometer, ProgressBar, TqdmBar)) for callback in callbacks):
        return None
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    is_visible = hasattr(shell, "kernel") or getattr(sys.stderr, "isatty", bool)()
    outer = getattr(getattr(sys.modules.get("tqdm"), "tqdm", None), "_instances", ())
    if not is_visible or len(outer):
        return None
    num_data = getattr(data, "num_data", None)
    return TqdmBar(math.ceil(num_data / data.batch_size) if num_data else None, every=50)


def _evaluations(module: Trainable, data: EvalDataLike) -> dict[str, Any]:
    """Return evaluation data by name."""
    if data is None:
        return {}
    named = data if isinstance(data, Mapping) else {"validation": data}
    return {name: labelled_iter(module, source, "fit") for name, source in named.items()}


def _check_options(options: FitOptions) -> None:
    if options.num_epoch is None:
        raise ArgumentError("fit: num_epoch is missing; pass the number of epochs")
    for name in ("begin_epoch", "num_epoch"):
        if not isinstance(getattr(options, name), Integral):
            raise ArgumentError(f"fit: {name} is {getattr(options, name)!r}, expected a whole number")
    for name in ("accumulate", "eval_every_n_batches", "max_batches"):
        value = getattr(options, name)
        if value is not None and (not isinstance(value, Integral) or value < 1):
            raise ArgumentError(f"fit: {name} is {value!r}, expected a whole number of batches, at least 1")
    for name in ("clip_global_norm", "max_time_s"):
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise ArgumentError(f"fit: {name} is {value!r}, expected a number above 0")
    if options.training_step is not None and (options.accumulate > 1 or options.clip_global_norm is not None):
        raise ArgumentError(
            "fit: a training_step updates parameters itself; omit accumulate and clip_global_norm"
        )
    check_choice("fit", options.on_nonfinite, "skip")
    check_label_choice("fit", options.check_labels)
