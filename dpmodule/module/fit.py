"""Training: the loop over batches and epochs, for whatever is `Trainable`."""

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
from ..base import ArgumentError, BoundsError, NonFiniteError, StateError
from ..callback import BatchEndParam, Callback, ProgressBar, Speedometer, TqdmBar, as_list
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
    """Return the first batch and what gives the others; an iterator that is at its end begins anew."""
    batches = named_batches(module, data)
    batch = next(batches, None)
    if batch is None:  # the iterator is exhausted, as after `score`
        data.reset()
        batches = named_batches(module, data)
        batch = next(batches, None)
    if batch is None:
        raise StateError(
            f"fit: train_data gave no batch in epoch {epoch}, also after reset(); is it empty, or smaller than a batch "
            "whose rest is discarded?"
        )
    return batch, batches


def _prepare_module(module: Trainable, options: FitOptions, data: DataIter) -> None:
    """Bind, initialize parameters and install the optimizer, as far as that is still to do."""
    rebind: Any = getattr(module, "rebind", None)
    shapes = bindable(module, data.provide_data)
    if (options.contexts is not None or options.workload is not None) and rebind is None:
        raise ArgumentError(f"fit: {type(module).__name__} takes no contexts; give them to its constructor")
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
    _install_optimizer(module, options, False)


def _install_optimizer(module: Any, options: FitOptions, anew: bool) -> None:
    if anew and not isinstance(options.kvstore, str) and hasattr(options.kvstore, "replace"):
        # the store has these keys already
        for each in module.all_updates():
            each.replace_stored(options.kvstore)
        return
    # modules that were written for MXNet may lack this argument
    given: dict[str, Any] = {"force_init": True} if anew else {}
    module.init_optimizer(
        kvstore=options.kvstore,
        optimizer=options.optimizer,
        optimizer_params=options.optimizer_params,
        **given,
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
    """Train, and return what was measured.

    Args:
        module: what is trained; bound, initialized or neither.
        train_data: a DataIter, a torch DataLoader, or anything that yields (x, y), dicts or DataBatches and
            can be iterated once per epoch.
        eval_data: the same, for validation after every epoch, or several by name; None = no validation.
        eval_metric: name, list of names, function or `EvalMetric`.
        epoch_end_callback: ``(epoch, symbol, arg_params, aux_params)``, or a list of such. One that returns True ends
            training after the epoch.
        batch_end_callback: ``(BatchEndParam)``, or a list of such. One that returns True ends training at once.
        kvstore: "local", "device", None, "dist_sync" or another for several processes, or a store.
        optimizer: name or `Optimizer`.
        optimizer_params: its arguments, a dict or pairs; rescale_grad is 1 / batch size unless given.
        eval_end_callback: called after validation.
        eval_batch_end_callback: called after every batch of validation.
        initializer: gives parameters their first values; an `Initializer`, or its name.
        allow_missing: let the initializer fill in what `arg_params` lacks.
        force_rebind: bind again although the module is bound.
        num_epoch: number of the epoch after the last.
        validation_metric: metric for validation; None = `eval_metric`.
        monitor: a `Monitor` to install.
        sparse_row_id_fn: handed to `prepare`.
        contexts: devices to train on; binds again over them, keeping parameters.
        workload: share of each device; None = equal.
        count_padding: count rows that only fill up the last batch in metrics, as MXNet does.
        on_nonfinite: what to do about NaN or infinity in an output or a gradient: "raise", before the
            parameters are changed; "skip" the batch; "warn", or "ignore".
        check_labels: what to do about labels in the first batch of an epoch that are not classes of the network, such
            as 10 beside ten scores: "warn" once an epoch, "raise" before training on them, or "ignore".
        callbacks: `callback.Callback` objects, such as `callback.EarlyStopping`; they may be given as any other
            callback, too.
        training_step: ``(module, batch)``, what is done with a batch in place of forward, backward and update; what it
            returns, a dict of numbers or None, is averaged over the epoch in place of `eval_metric`.
        accumulate: how many batches are added up for one update, which is that of one batch of all their samples; at
            the end of an epoch there may be fewer.
        clip_global_norm: greatest length of all gradients together; see `BaseModule.clip_by_global_norm`.
        eval_every_n_batches: evaluate within epochs, too, after so many batches each time.
        max_batches: end after so many batches in all, those before a `resume` counted in; several processes that
            `accumulate` end after the update that follows.
        max_time_s: end after the batch in which so many seconds are over. Where either ends an epoch early, the state
            of the run is saved, if there is a `checkpoint` with `save_on_interrupt`.
        dry_run: train on one batch and evaluate on one, to see whether everything fits: callbacks at the end of epochs
            are not called, nothing is saved, and no saved run is gone on with. The parameters do change.
        checkpoint: a `callback.Checkpoint`, or its prefix.
        resume: "auto" goes on from the newest state that `checkpoint` has saved, or begins if there is none; another
            text is the prefix of one that has to be there. The rest of the training is, bit for bit, that of one that
            was never broken off; `num_epoch` may be larger.
        shard: let each process of a kvstore "dist_sync" read its own part of `train_data` and `eval_data`; metrics of
            these are then those of all parts.
        profile: log after every epoch how long it waited for data, computed, and updated. Devices are waited for after
            each of these, which takes time itself.
        deterministic: use only algorithms that give the same bits every time, as GPUs do not by themselves; some are
            slower, and torch complains of operators that have none. It holds until `fit` returns. For equal runs also
            call `mx.random.seed_all` before the module is made.
        progress: show a bar in a terminal or a notebook, on rank 0, unless a callback reports progress (`Speedometer`,
            `ProgressBar`, `TqdmBar`) or `fit` runs within another bar. ``DPMODULE_PROGRESS=0`` turns it off, too.

    Shape:
        arg_params[name], aux_params[name]: that of the parameter or state.
        batch.data[i], batch.label[i] of `train_data`: (N, ...), N samples on the axis that the layout calls "N".

    Returns:
        The metrics of every epoch.

    Raises:
        ArgumentError: an argument does not fit.
        BoundsError: a label is not a class, and `check_labels` is "raise".
        NonFiniteError: an output or a gradient is not finite; parameters and auxiliary states are those before the
            batch. With a `checkpoint` this state is saved as that of a run that has left the batch out.
        LostWorkerError: a process that trains with this one is gone or stopped.
        KeyboardInterrupt: Ctrl-C, raised after the batch that was running; the module stays usable.
        SystemExit: SIGTERM, likewise; its status is 143.
        StateError: an epoch has no batch, or another run is being saved under the prefix.

    Source: MXNet 1.9.1 `BaseModule.fit`, including the order of its steps.
    """
    options = FitOptions(**{name: value for name, value in locals().items() if name != "module"})
    with deterministic_algorithms(deterministic):
        return TrainingRun(module, options).train()


_ENDED_BY_OTHERS = "another process ended training"


def _lockstep(module: Trainable, options: FitOptions, data: Sequence[Any]) -> Lockstep:
    """Begin to keep step with the processes that train the same module, from the same parameters."""
    found = Lockstep(module)
    if found.is_distributed and options.training_step is not None:
        raise ArgumentError(
            "fit: a training_step updates by itself, so that several processes cannot keep step; leave it out, or "
            "train in one process"
        )
    found.align(module)
    if options.shard:
        for each in data:
            shard(each, found)
    return found


_SAME_OPTIONS = (
    "begin_epoch num_epoch eval_every_n_batches accumulate clip_global_norm on_nonfinite shard dry_run resume"
)
"""Arguments of `fit` by which processes would wait for each other, or make other updates, if they differed."""


def _check_same_options(
    lockstep: Lockstep, options: FitOptions, evaluations: Mapping[str, Any], metric: EvalMetric
) -> None:
    """Refuse arguments that differ between the processes that train together."""
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
    """What stands in for `RunSaver` in a run that is neither saved nor resumed."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass

    def wants_batch(self, nbatch: int) -> bool:
        return False

    def wants_end(self, asked: bool) -> bool:
        return False

    def found(self, resume: None, here: object) -> None:
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
    """Return what saves a run; most are not saved, and need not import what does that."""
    if options.dry_run or (options.checkpoint is None and options.resume is None):
        return _NoSaver()
    from .saving import RunSaver

    return RunSaver(options.checkpoint, data, lockstep, {**others, "callbacks": _who_draws(options)})


def _who_draws(options: FitOptions) -> list[Any]:
    """Return the functions and objects of a program that `fit` calls, which may draw random numbers of their own."""
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
    """One call of `fit`: what it reads, where it stands, and when it ends.

    Attributes:
        epoch: number of the epoch.
        num_batches: how many batches have been trained on in all epochs.
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
        # evaluations within an epoch reset their metric, which must not be that of the whole epoch
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
        # after the last batch of an epoch: its metrics, and whether parameters have been averaged over contexts
        self._epoch_metrics: list[tuple[str, float]] | None = None
        self._contexts_averaged = False

    def _facts(self) -> dict[str, Any]:
        from .run_state import facts

        options, several = self._options, self._lockstep.is_distributed
        how = {
            "accumulate": options.accumulate,
            "clip_global_norm": options.clip_global_norm,
            "a training_step": options.training_step is not None,
            "shard": options.shard and several,
        }
        return {**facts(self.module, self._data, self._lockstep.size, how), "metric": self.metric.settings()}

    def state_dict(self, over: bool = False) -> dict[str, Any]:
        """Return what a run needs to go on beyond the files of MXNet, as plain data and arrays."""
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
            "optimizers": [optimizer_state(each) for each in chain] if len(chain) > 1 else [],
            "history": self.history.rows,
            "callbacks": [
                [type(each).__name__, each.state_dict()]
                for each in self._callbacks
                if hasattr(each, "state_dict")
            ],
            "threads": torch.get_num_threads(),
            "kernels": kernels(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned; parameters and an optimizer's states come from their files."""
        from .run_state import load_module, load_optimizer_state, rounding_differences

        self.epoch, self.nbatch, self.num_batches = state["epoch"], state["nbatch"], state["num_batches"]
        install = partial(_install_optimizer, self.module, self._options, True)
        self._log_change(self._saving.load_parameters(self.module, install, state["facts"]["rates"]))
        load_module(self.module, state["module"])
        self._lockstep.load_own_state(self.module, state.get("own", ()))
        rates = state["facts"]["rates"]
        for each, data, rate in zip(self.module.all_updates(), state["optimizers"], rates):
            self._log_change(load_optimizer_state(each, data, rate))
        self.metric.reset()  # as it was before the first batch
        if self.nbatch:  # at the start of an epoch another metric may be given
            self.metric.load_state_dict(state["metric"])
        found = state.get("found")
        self._epoch_metrics = found and [(name, value) for name, value in found]
        self._contexts_averaged = state.get("averaged", False)
        self._steps.load_state_dict(state["steps"])
        self.history.rows = list(state["history"])
        self._load_callbacks(state["callbacks"])
        if different := rounding_differences(state):
            self.module.logger.warning(
                "the run was saved %s: the rest may differ in the last digits", "; ".join(different)
            )
        self._saving.load_position(state)

    def _log_change(self, change: str | None) -> None:
        if change is not None:
            self._log("fit: %s", change)

    def _load_callbacks(self, states: Iterable[Any]) -> None:
        """Give callbacks the states that were saved of those of the same class, in their order."""
        saved = defaultdict(list)
        for name, state in states:
            saved[name].append(state)
        for each in self._callbacks:
            if hasattr(each, "load_state_dict"):
                name = type(each).__name__
                if saved[name]:
                    each.load_state_dict(saved[name].pop(0))
                else:
                    self._log("the run was saved without %s, which begins anew", name)

    @property
    def num_updates(self) -> int:
        """How often the parameters have been updated."""
        return self._steps.updates

    def check_measured(self, name: str) -> None:
        """Refuse a metric that no epoch will measure, as far as that can be known before the first one."""
        if self._options.training_step is None:
            shown = dict.fromkeys(self._evaluations, metrics.create(self._validation))
            check_measured(name, {"train": self.metric, **shown})

    def stop(self, why: str) -> None:
        """End training when the batch, or what follows the epoch, is over."""
        self._stopped = True
        self.history.ended = self.history.ended or why

    @property
    def place(self) -> str:
        """The batch and its epoch, for messages."""
        return f"batch {self.nbatch} of epoch {self.epoch}"

    def samples_in(self, batch: BatchLike) -> str:
        """Return words about the samples of the batch that has just been read; "" if nobody gives them numbers."""
        return samples_in(self.module, batch, self._data)

    def train(self) -> History:
        """Run all epochs that are left."""
        with self._saving, DeferredInterrupt() as interrupt:
            self._resumed = self._saving.found(self._options.resume, self._facts)
            self._begin()
            with nullcontext() if self._bar is None else self._bar:
                for epoch in range(self.epoch, self._options.num_epoch or 0):
                    if self._stopped:
                        break
                    self.epoch = epoch
                    self._run_epoch(interrupt)
            for each in self._callbacks:
                each.on_fit_end(self)
            if interrupt.requested:
                interrupt.raise_now()
        return self.history

    def _begin(self) -> None:
        """Tell callbacks that training begins, and go on from where a run has been broken off, if that is wanted."""
        self._saving.begin(self)
        for each in self._callbacks:
            each.on_fit_begin(self)
        for scheduler in _schedulers(self.module):
            if hasattr(scheduler, "on_fit_begin"):
                scheduler.on_fit_begin(self)
        if self._resumed is None:
            return
        self.load_state_dict(self._resumed)
        self._log("fit: goes on in epoch %d after %d batches", self.epoch, self.nbatch)
        for each in self._callbacks:
            if each.has_ended():
                self.stop(f"{type(each).__name__} before it was resumed")
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
            found = self._train_epoch(interrupt)
        finally:
            module.end_epoch()
        self._log_epoch(found)
        if not self._contexts_averaged:
            module.sync_contexts()
            self._lockstep.average_states(module)
        self._contexts_averaged = True
        row = {f"train-{name}": value for name, value in found}
        if self._stopped and not self._options.dry_run:  # before the end of the epoch
            self._add_to_history(row)
            return
        if not self._lockstep.is_distributed:  # an interrupted evaluation is repeated on resume, and these callbacks
            self._saving.note_position(self.nbatch)
        if not self._options.dry_run:
            self._call_epoch_callbacks()
        row.update(self._evaluate_epoch(interrupt))
        self._add_to_history(row)
        if not self._options.dry_run:
            self._call_on_epoch_end()
        self._saving.begin_epoch()
        self._data.reset()
        asked = interrupt.requested
        if not self._options.dry_run:
            with interrupt.uninterrupted():
                self._saving.after_epoch(self, asked)
        if asked and not self._lockstep.is_distributed:  # else all processes end after the next batch
            interrupt.raise_now()

    def _evaluate_epoch(self, interrupt: DeferredInterrupt) -> dict[str, float]:
        """Evaluate after an epoch; what asks to end training ends this at once, and it is done again on resuming.

        Several processes evaluate together to the end, and hear with the next batch that one of them was asked to end.
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
        """Call whoever wants to hear of the end of an epoch."""
        for each in self._callbacks:
            if each.on_epoch_end(self) is True:
                self.stop(f"{type(each).__name__} after epoch {self.epoch}")
        for scheduler in _schedulers(self.module):
            scheduler.on_epoch_end(self)
        if self._lockstep.any(self._stopped):
            self.stop(_ENDED_BY_OTHERS)

    def _log(self, text: str, *values: object) -> None:
        if not self._lockstep.rank:
            self.module.logger.info(text, *values)

    def _log_epoch(self, found: list[tuple[str, float]]) -> None:
        """Log the metrics of an epoch, and how long it took."""
        epoch, time_s = self.epoch, time.monotonic() - self._epoch_begun
        for name, value in found:
            self._log("Epoch[%d] Train-%s=%f", epoch, name, value)
        self._log("Epoch[%d] Time cost=%.3f", epoch, time_s)
        for line in self._timer.lines(time_s):
            self._log("Epoch[%d] %s", epoch, line)

    def _add_to_history(self, row: dict[str, float]) -> None:
        self.history.add(self.epoch, self.nbatch, time.monotonic() - self._epoch_begun, row)

    def _call_epoch_callbacks(self) -> None:
        if not self._epoch_callbacks:
            return
        arg_params, aux_params = self.module.get_params()
        for callback in self._epoch_callbacks:
            if callback(self.epoch, self.module.symbol, arg_params, aux_params) is True:
                self.stop(f"epoch_end_callback after epoch {self.epoch}")

    def _evaluate(self, metric: MetricLike, batch: int | None = None) -> dict[str, float]:
        """Measure a metric on all evaluation data, and return the values by name."""
        options, found = self._options, {}
        where = f"Epoch[{self.epoch}]" + ("" if batch is None else f" Batch[{batch}]")
        for title, data in self._evaluations.items():
            values = self.module.score(
                data,
                metric,
                num_batch=1 if options.dry_run else None,
                score_end_callback=[
                    partial(self._call_batch_callback, each) for each in as_list(options.eval_end_callback)
                ],
                batch_end_callback=options.eval_batch_end_callback,
                epoch=self.epoch,
                count_padding=options.count_padding,
            )
            for name, value in values:
                self._log("%s %s-%s=%f", where, title.capitalize(), name, value)
                found[f"{title}-{name}"] = value
        return found

    def _train_epoch(self, interrupt: DeferredInterrupt) -> list[tuple[str, float]]:
        """Train on every batch once, unless it ends before, and return the epoch's metrics."""
        is_resumed, is_over = self._resumed is not None, self._resumed is not None and self._resumed["over"]
        self._resumed = None
        metric = self.metric
        if is_over:
            # saved between the last batch and the end of the epoch, at which an iterator keeps what rolls over
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
        """Train on the epoch's batches; return what measures them as long as others may still train."""
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
            asked = lockstep.stop_requested(interrupt) if lockstep.is_distributed else interrupt.requested
            self._is_out_of_time = limit is not None and time.monotonic() - self._begun >= limit
            ends = asked or (self._is_out_of_time and not lockstep.is_distributed)
            saves = self._has_scheduled_work and (lockstep.pop_flag("due") or saving.wants_end(ends))
            if saves:  # the batch read next is not part of the saved state
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
            # a signal that comes in a callback waits for the next batch only if other processes or a save need it
            if asked or (interrupt.requested and not lockstep.is_distributed and not saving.wants_end(True)):
                interrupt.raise_now()
            batch = None if self._stopped else following
        return metric

    def _check_labels(self, batch: BatchLike) -> None:
        """CheckedTensor for labels that are not classes of the network."""
        choice, networks_of = self._options.check_labels, getattr(self.module, "network_inputs", None)
        if choice == "ignore" or networks_of is None:  # a module that was written for MXNet
            return
        for part in batch if isinstance(batch, list) else [batch]:
            found = (find_invalid_label(network, pad_of(part)) for network in networks_of(part))
            wrong = next(filter(None, found), None)
            if wrong is None:
                continue
            numbers = sample_numbers(part, self._data)
            sample = wrong.row if numbers is None or wrong.row >= len(numbers) else numbers[wrong.row]
            text = f"fit: {wrong.describe(f'sample {sample} in {self.place}')}"
            if choice == "raise":
                raise BoundsError(
                    f'{text} Correct the labels; check_labels="warn" trains on them, as MXNet does'
                )
            self.module.logger.warning(
                '%s Training goes on, as in MXNet; check_labels="raise" stops it, "ignore" says nothing', text
            )
            return

    def _first_batch(self, is_resumed: bool) -> tuple[Any, Iterator[Any]]:
        with self._timer.data:
            batch, batches = _first_batch(self.module, self._data, self.epoch)
        if is_resumed:
            self._saving.continue_after(batch)
        return batch, batches

    def _finish_epoch_metrics(self) -> Any:
        """Finish the last update of an epoch, and note its metrics if they are known; return what measures them."""
        self._steps.finish(self)
        if self._lockstep.is_distributed:  # other processes may have batches left, and callbacks reset the metric
            return deepcopy(self.metric)
        self._epoch_metrics = self._steps.values(self.metric)
        return self.metric

    def _announce_scheduled_work(self, interrupt: DeferredInterrupt) -> None:
        """Tell the processes that train together what is to be done after the batch that comes."""
        count, every, limit = self.nbatch + 1, self._options.eval_every_n_batches, self._options.max_batches
        is_last = limit is not None and self.num_batches + 1 >= limit
        self._lockstep.send_request(interrupt)
        self._lockstep.set_flags(
            due=self._saving.wants_batch(count) or self._saving.wants_end(is_last),
            evaluate=every is not None and count % every == 0,
        )

    def _save_before_bad_batch(self, batch: Any, batches: Iterator[Any]) -> None:
        """Save the state before a batch in which something is not finite, as that of a run that has left it out."""
        options, saving, lockstep = self._options, self._saving, self._lockstep
        if options.training_step is not None or not saving.wants_end(True):
            return
        if lockstep.is_distributed and options.accumulate > 1:  # the other processes do not learn of the error
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
        """Take part in the updates of processes that have batches left, adding nothing."""
        lockstep, goes_on = self._lockstep, True
        while goes_on:
            lockstep.send_request(interrupt)
            lockstep.set_flags(stop=self._stopped)
            goes_on = self._steps.idle(self)
            self._stop_with_others()
            if lockstep.pop_flag("evaluate"):
                self._add_to_history(self._evaluate(self._metric_within_epoch, self.nbatch))
            asked = lockstep.stop_requested(interrupt)
            if lockstep.pop_flag("due") or self._saving.wants_end(asked):
                self._saving.note_position(self.nbatch)
                self._saving.within_epoch(self, True)
            if asked:
                interrupt.raise_now()

    def _stop_with_others(self) -> None:
        if self._lockstep.pop_flag("stop"):
            self.stop(_ENDED_BY_OTHERS)

    def _next(self, batches: Iterator[Any]) -> Any:
        """Return the next batch, prepared; None if there is none."""
        with self._timer.data:
            found = next(batches, None)
            if found is not None:
                self.module.prepare(found, sparse_row_id_fn=self._options.sparse_row_id_fn)
        return found

    def _after(self, batch: BatchLike, is_last: bool) -> None:
        """Count a batch, call whoever wants to hear of it, and see whether to go on."""
        options = self._options
        self.nbatch += 1
        self.num_batches += 1
        if self._batch_callbacks:
            self._call_batch_callbacks(batch, is_last)
        for each in self._callbacks:
            if each.on_batch_end(self) is True:
                self.stop(f"{type(each).__name__} after batch {self.nbatch - 1} of epoch {self.epoch}")
        if self._has_scheduled_work:
            if self._lockstep.pop_flag("evaluate") and (self._lockstep.is_distributed or not is_last):
                self._add_to_history(self._evaluate(self._metric_within_epoch, self.nbatch))
            self._stop_with_others()
        if options.dry_run:
            self.stop("dry_run")
        elif (
            options.max_batches is not None
            and self.num_batches >= options.max_batches
            and not (self._lockstep.is_distributed and self._steps.are_gradients_pending)  # they save with an update
        ):
            self.stop(f"max_batches={options.max_batches}")
        elif self._is_out_of_time:
            self.stop(f"max_time_s={options.max_time_s}")

    def _call_batch_callbacks(self, batch: BatchLike, is_last: bool) -> None:
        seen = {
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
        param = BatchEndParam(self.epoch, self.nbatch - 1, self.metric, seen)
        for callback in self._batch_callbacks:
            self._call_batch_callback(callback, param)

    def _call_batch_callback(self, callback: Callable[..., Any], param: BatchEndParam) -> None:
        if callback(param) is True:
            self.stop(f"a callback after batch {param.nbatch} of epoch {param.epoch}")


class _TrainingSteps:
    """What is done with each batch: forward, backward and, if enough gradients have been added up, an update."""

    def __init__(self, module: Any, options: FitOptions, lockstep: Lockstep, timer: StepTimer) -> None:
        self._lockstep = lockstep
        self._module = module
        self._timer = timer
        self._options = options
        self._accumulates = options.accumulate > 1
        self._announces_updates = (
            lockstep.is_distributed and not self._accumulates and hasattr(module, "announce_update")
        )
        self._has_pending_gradients = False  # the last gradients are not added to the sum yet
        self._pending_samples = self._pending_batches = 0
        self._samples_per_batch = module.all_updates()[0].group.num_samples if self._accumulates else 1
        self._sums: dict[str, tuple[float, int]] = {}
        self._finite = NonFiniteCheck(module, options.on_nonfinite)
        self.updates = 0

    def train(self, batch: Any, run: TrainingRun) -> None:
        """Train on a batch, and show the metric what came out."""
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
        """Do with the gradients of a batch what all processes do; return whether it counts."""
        module, lockstep, options = self._module, self._lockstep, self._options
        if not lockstep.adds_up and module.handle_overflow():  # "dist_async": processes update on their own
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
        """Update with the gradients of all processes; return whether that has not been dropped."""
        self._update()
        if self._lockstep.pop_flag("bad"):
            self._finite.skip_or_raise(bad or f"something in another process is not finite at {run.place}")
            return False
        return not self._lockstep.pop_flag("overflow")

    def _clear(self) -> None:
        for each in self._module.all_updates():
            each.clear()

    def idle(self, run: TrainingRun) -> bool:
        """Take part in the update of other processes, adding nothing, and say whether there was one."""
        self._lockstep.set_idle()
        if self._accumulates:
            self._lockstep.set_num_samples(0)
        self._clear()
        self._update_together(run)
        return self._lockstep.pop_flag("active")

    def _accumulate(self, run: TrainingRun, is_used: bool = True, bad: str | None = None) -> bool:
        """Let the gradients wait for those of further batches, unless these are enough."""
        self._pending_batches += 1
        if is_used:
            self._has_pending_gradients = True
            self._pending_samples += self._module.all_updates()[0].group.num_samples
        if bad is None and self._pending_batches < self._options.accumulate:
            return True
        return self.finish(run, bad)

    @property
    def are_gradients_pending(self) -> bool:
        """Whether gradients wait for those of further batches."""
        return self._pending_batches > 0

    def state_dict(self) -> dict[str, Any]:
        """Return what waits, after having the module keep gradients that do."""
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
        """Go on from what `state_dict` returned."""
        self._pending_batches, self._pending_samples, self.updates = (
            state["batches"],
            state["rows"],
            state["updates"],
        )
        self._sums = {name: (total, count) for name, (total, count) in state["sums"].items()}

    def finish(self, run: TrainingRun, bad: str | None = None) -> bool:
        """Apply the gradients that still wait; return whether that has not been dropped."""
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
        found = step(self._module, batch)
        self.updates += 1
        if found is None:
            update_metric(self._module, run.metric, batch, self._options.count_padding)
            return
        if not isinstance(found, Mapping):
            raise ArgumentError(
                f"fit: training_step returned {type(found).__name__}, expected a dict of numbers by name, or None"
            )
        for name, value in found.items():
            total, count = self._sums.get(name, (0.0, 0))
            self._sums[name] = total + float(value), count + 1

    def values(self, metric: EvalMetric) -> list[tuple[str, float]]:
        """Return the metrics of the epoch, and begin anew; what is not known yet of its batches is told before."""
        self._finite.report_pending()
        if not self._sums:
            self._lockstep.merge(metric)
            found: list[tuple[str, float]] = metric.get_global_name_value()
            return found
        means = [(name, total / count) for name, (total, count) in self._sums.items()]
        self._sums = {}
        return means


def pad_of(batch: BatchLike) -> int:
    """Return how many rows at the end of a batch only fill it up."""
    padding = getattr(batch, "num_padding", None)
    return int((getattr(batch, "pad", None) or 0) if padding is None else padding)


def update_metric(
    module: Trainable, eval_metric: EvalMetric, batch: DataBatch | list[DataBatch], count_padding: bool
) -> None:
    """Show a metric the outputs for a batch, or for its parts on several devices."""
    if isinstance(batch, list):
        module.update_metric(eval_metric, [b.label for b in batch], pre_sliced=True)
    elif count_padding or not (pad := pad_of(batch)):
        module.update_metric(eval_metric, batch.label)
    else:
        show_metric(module, eval_metric, batch.label, pad)


def show_metric(module: Trainable, eval_metric: EvalMetric, labels: Labels | None, pad: int) -> None:
    """Show a metric a module's outputs; modules written for MXNet do not know `pad` and count padding.

    Shape:
        labels[i]: (N, ...), as bound.
    """
    if pad and "pad" in inspect.signature(module.update_metric).parameters:
        module.update_metric(eval_metric, labels, pad=pad)
    else:
        module.update_metric(eval_metric, labels)


def _schedulers(module: Any) -> list[Any]:
    """Return the schedules of learning rates that want to see metrics."""
    try:
        optimizers = [getattr(each.optimizer, "lr_scheduler", None) for each in module.all_updates()]
    except (AttributeError, NotImplementedError):  # a module of the user's own
        return []
    return [each for each in dict.fromkeys(optimizers) if hasattr(each, "on_epoch_end")]


def _callbacks(options: FitOptions) -> list[Callback]:
    """Return the `Callback` objects among all callbacks; a `Checkpoint` among them becomes the run's."""
    found: list[Callback] = []
    each: Any
    for each in as_list(options.callbacks):
        if not isinstance(each, Callback):
            raise ArgumentError(
                f"fit: callbacks has {each!r}, which is no callback.Callback; give functions, and MXNet's callbacks "
                "such as Speedometer, as batch_end_callback or epoch_end_callback"
            )
    for given in (options.callbacks, options.batch_end_callback, options.epoch_end_callback):
        for each in as_list(given):
            if not isinstance(each, Callback):
                continue
            if not each.saves_runs:
                found.append(each)
            elif options.checkpoint is None:
                options.checkpoint = each
            elif options.checkpoint is not each:
                raise ArgumentError("fit: two checkpoints are given; a run is saved under one prefix")
    return found


def _plain_functions(callbacks: CallbackLike) -> list[Callable[..., Any]]:
    """Return the callbacks that are plain functions of what they are called with."""
    return [each for each in as_list(callbacks) if not isinstance(each, Callback)]


def _default_bar(options: FitOptions, callbacks: Sequence[object], data: DataIter) -> TqdmBar | None:
    """Return the bar that a program gets which does not report progress itself; None where nobody would see it."""
    if not options.progress or options.dry_run or os.environ.get("DPMODULE_PROGRESS") == "0":
        return None
    if any(isinstance(each, (Speedometer, ProgressBar, TqdmBar)) for each in callbacks):
        return None
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    is_seen = hasattr(shell, "kernel") or getattr(sys.stderr, "isatty", bool)()
    outer = getattr(getattr(sys.modules.get("tqdm"), "tqdm", None), "_instances", ())
    if not is_seen or len(outer):
        return None
    num_data = getattr(data, "num_data", None)
    return TqdmBar(math.ceil(num_data / data.batch_size) if num_data else None, every=50)


def _evaluations(module: Trainable, data: EvalDataLike) -> dict[str, Any]:
    """Return evaluation data by name."""
    if data is None:
        return {}
    named = data if isinstance(data, Mapping) else {"validation": data}
    return {name: labelled_iter(module, each, "fit") for name, each in named.items()}


def _check_options(options: FitOptions) -> None:
    if options.num_epoch is None:
        raise ArgumentError("fit: num_epoch is missing; give the number of epochs")
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
            "fit: a training_step updates by itself; leave out accumulate and clip_global_norm"
        )
    check_choice("fit", options.on_nonfinite, "skip")
    check_label_choice("fit", options.check_labels)
