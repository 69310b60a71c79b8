"""Training, scoring and prediction: loops over batches, for whatever is `Trainable`."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch

from .. import metric as metrics
from ..base import ArgumentError, NonFiniteError, StateError
from ..callback import BatchEndParam
from ..context import Context
from ..initializer import Uniform
from ..io import DataBatch
from ..ndarray import NDArray, array, concatenate
from ..ndarray.ragged import RaggedNDArray
from .boundary import BatchBoundary
from .finite import RowWatch, check_choice, first_nonfinite, names_of_nonfinite
from .protocol import Trainable
from .training_data import as_iter, bindable, labelled_iter

__all__ = [
    "FitOptions",
    "as_list",
    "batches_of",
    "fit",
    "iter_predict",
    "pad_of",
    "predict",
    "score",
    "show_metric",
]


@dataclass(slots=True, eq=False, repr=False)
class FitOptions:
    """The arguments of `fit`; see there."""

    train_data: Any
    eval_data: Any
    eval_metric: Any
    epoch_end_callback: Any
    batch_end_callback: Any
    kvstore: Any
    optimizer: Any
    optimizer_params: Any
    eval_end_callback: Any
    eval_batch_end_callback: Any
    initializer: Any
    arg_params: Mapping[str, NDArray] | None
    aux_params: Mapping[str, NDArray] | None
    allow_missing: bool
    force_rebind: bool
    force_init: bool
    begin_epoch: int
    num_epoch: int | None
    validation_metric: Any
    monitor: Any
    sparse_row_id_fn: Any
    contexts: Sequence[Any] | None
    workload: Sequence[float] | None
    count_padding: bool
    on_nonfinite: str


def as_list(callbacks: Any) -> list[Callable[..., Any]]:
    """Return callbacks as a list: none, one, or several."""
    if callbacks is None:
        return []
    return list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]


def _check_finite(module: Trainable, options: FitOptions, epoch: int, nbatch: int) -> None:
    """Look for NaN and infinity in outputs and gradients, before the gradients are applied.

    Raises:
        NonFiniteError: one was found, and `on_nonfinite` is "raise"; auxiliary states are those before the batch then.
    """
    what = first_nonfinite(module)
    if what is None:
        return
    text = f"{what} is not finite in batch {nbatch} of epoch {epoch}"
    if options.on_nonfinite == "raise":
        module.take_back()
        raise NonFiniteError(
            f"{text}; {_state_of(module)}. A smaller learning rate, clip_gradient or a look at the data may help; "
            'on_nonfinite="warn" or "ignore" goes on'
        )
    module.logger.warning("%s; training goes on, and may spoil the parameters", text)


def _state_of(module: Trainable) -> str:
    """Say what can be said of the parameters of a module that is not updated."""
    arg_params, aux_params = module.get_params()
    spoilt = names_of_nonfinite({**arg_params, **aux_params})
    if not spoilt:
        return "the parameters are those before this batch"
    names = ", ".join(spoilt[:3]) + (f" and {len(spoilt) - 3} more" if len(spoilt) > 3 else "")
    return f"before this batch, too, there were numbers that are not finite in {names}"


def _prepare_module(module: Trainable, options: FitOptions, data: Any) -> None:
    """Bind, initialize parameters and install the optimizer, as far as that is still to do."""
    rebind: Any = getattr(module, "rebind", None)
    shapes = bindable(module, data.provide_data)
    if (options.contexts is not None or options.workload is not None) and rebind is None:
        raise ArgumentError(f"fit: {type(module).__name__} takes no contexts; give them to its constructor")
    if options.contexts is not None or options.workload is not None:
        rebind(options.contexts, options.workload, shapes, data.provide_label)
    elif module.binded and not module.for_training and rebind is not None:
        rebind(None, None, shapes, data.provide_label)
    else:
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
    train_data: Any,
    eval_data: Any = None,
    eval_metric: Any = "acc",
    epoch_end_callback: Any = None,
    batch_end_callback: Any = None,
    kvstore: Any = "local",
    optimizer: Any = "sgd",
    optimizer_params: Any = (("learning_rate", 0.01),),
    eval_end_callback: Any = None,
    eval_batch_end_callback: Any = None,
    initializer: Any = Uniform(0.01),
    arg_params: Mapping[str, NDArray] | None = None,
    aux_params: Mapping[str, NDArray] | None = None,
    allow_missing: bool = False,
    force_rebind: bool = False,
    force_init: bool = False,
    begin_epoch: int = 0,
    num_epoch: int | None = None,
    validation_metric: Any = None,
    monitor: Any = None,
    sparse_row_id_fn: Any = None,
    *,
    contexts: Sequence[Context] | None = None,
    workload: Sequence[float] | None = None,
    count_padding: bool = False,
    on_nonfinite: str = "raise",
) -> None:
    """Train.

    Args:
        module: the module.
        train_data: a DataIter, a torch DataLoader, or anything that yields (x, y), dicts or DataBatches and
            can be iterated once per epoch.
        eval_data: the same, for validation after every epoch; None = no validation.
        eval_metric: name, list of names, function or `EvalMetric`.
        epoch_end_callback: ``(epoch, symbol, arg_params, aux_params)``, or a list of such.
        batch_end_callback: ``(BatchEndParam)``, or a list of such.
        kvstore: "local", "device", None, or a store.
        optimizer: name or `Optimizer`.
        optimizer_params: its arguments, a dict or pairs; rescale_grad is 1 / batch size unless given.
        eval_end_callback: called after validation.
        eval_batch_end_callback: called after every batch of validation.
        initializer: gives parameters their first values; an `Initializer`, or its name.
        arg_params: values to start from.
        aux_params: auxiliary states to start from.
        allow_missing: let the initializer fill in what `arg_params` lacks.
        force_rebind: bind again although the module is bound.
        force_init: initialize again although values exist.
        begin_epoch: number of the first epoch.
        num_epoch: number of the epoch after the last.
        validation_metric: metric for validation; None = `eval_metric`.
        monitor: a `Monitor` to install.
        sparse_row_id_fn: handed to `prepare`.
        contexts: devices to train on; binds again over them, keeping parameters.
        workload: share of each device; None = equal.
        count_padding: count rows that only fill up the last batch in metrics, as MXNet does.
        on_nonfinite: what to do about NaN or infinity in an output or a gradient: "raise", before the
            parameters are changed; "warn", or "ignore".

    Raises:
        ArgumentError: an argument does not fit.
        NonFiniteError: an output or a gradient is not finite; parameters and auxiliary states are those before the
            batch.
        KeyboardInterrupt: Ctrl-C, raised after the batch that was running; the module stays usable.

    Source: MXNet 1.9.1 `BaseModule.fit`, including the order of its steps.
    """
    options = FitOptions(**{name: value for name, value in locals().items() if name != "module"})
    _train(module, options)


def _train(module: Trainable, options: FitOptions) -> None:
    if options.num_epoch is None:
        raise ArgumentError("fit: num_epoch is missing; give the number of epochs")
    for name in ("begin_epoch", "num_epoch"):
        if not isinstance(getattr(options, name), Integral):
            raise ArgumentError(f"fit: {name} is {getattr(options, name)!r}, expected a whole number")
    check_choice("fit", options.on_nonfinite)
    data = labelled_iter(module, options.train_data, "fit")
    eval_data = None if options.eval_data is None else labelled_iter(module, options.eval_data, "fit")
    _prepare_module(module, options, data)
    eval_metric = metrics.create(options.eval_metric)
    validation = eval_metric if options.validation_metric is None else options.validation_metric
    for epoch in range(options.begin_epoch, options.num_epoch):
        start = time.monotonic()
        eval_metric.reset()
        module.start_epoch(epoch, data)
        try:
            found = _run_epoch(module, options, data, eval_metric, epoch)
        finally:
            module.end_epoch()
        for name, value in found:
            module.logger.info("Epoch[%d] Train-%s=%f", epoch, name, value)
        module.logger.info("Epoch[%d] Time cost=%.3f", epoch, time.monotonic() - start)
        module.sync_contexts()
        callbacks = as_list(options.epoch_end_callback)
        if callbacks:
            arg_params, aux_params = module.get_params()
            for callback in callbacks:
                callback(epoch, module.symbol, arg_params, aux_params)
        if eval_data is not None:
            found = module.score(
                eval_data,
                validation,
                score_end_callback=options.eval_end_callback,
                batch_end_callback=options.eval_batch_end_callback,
                epoch=epoch,
                count_padding=options.count_padding,
            )
            for name, value in found:
                module.logger.info("Epoch[%d] Validation-%s=%f", epoch, name, value)
        data.reset()


def _first_batch(data: Any, epoch: int) -> tuple[Any, Iterator[Any]]:
    """Return the first batch and what gives the others; an iterator that is at its end begins anew.

    Raises:
        StateError: there is no batch.
    """
    batches = iter(data)
    batch = next(batches, None)
    if batch is None:  # somebody has read it to its end, as `score` does
        data.reset()
        batches = iter(data)
        batch = next(batches, None)
    if batch is None:
        raise StateError(
            f"fit: train_data gave no batch in epoch {epoch}, also after reset(); is it empty, or smaller than a batch "
            "whose rest is discarded?"
        )
    return batch, batches


def _run_epoch(
    module: Trainable, options: FitOptions, train_data: Any, eval_metric: Any, epoch: int
) -> list[tuple[str, float]]:
    """Train on every batch once and return the epoch's metrics."""
    callbacks = as_list(options.batch_end_callback)
    monitor = options.monitor
    batch, batches = _first_batch(train_data, epoch)
    nbatch = 0
    values: list[tuple[str, float]] = []
    with BatchBoundary() as boundary:
        while batch is not None:
            if monitor is not None:
                monitor.tic()
            module.forward_backward(batch)
            if options.on_nonfinite != "ignore":
                _check_finite(module, options, epoch, nbatch)
            module.update()
            _update_metric(module, eval_metric, batch, options.count_padding)
            following = next(batches, None)
            if following is not None:
                module.prepare(following, sparse_row_id_fn=options.sparse_row_id_fn)
            if monitor is not None:
                monitor.toc_print()
            if following is None:
                values = eval_metric.get_global_name_value()
            if callbacks:
                _call_back(
                    callbacks, epoch, nbatch, eval_metric, {**locals(), "end_of_batch": following is None}
                )
            if boundary.asked:
                raise KeyboardInterrupt
            batch = following
            nbatch += 1
    return values


def pad_of(batch: Any) -> int:
    """Return how many rows at the end of a batch only fill it up."""
    padding = getattr(batch, "num_padding", None)
    return int((getattr(batch, "pad", None) or 0) if padding is None else padding)


def _update_metric(module: Trainable, eval_metric: Any, batch: Any, count_padding: bool) -> None:
    if isinstance(batch, list):
        module.update_metric(eval_metric, [b.label for b in batch], pre_sliced=True)
    elif count_padding or not (pad := pad_of(batch)):
        module.update_metric(eval_metric, batch.label)
    else:
        show_metric(module, eval_metric, batch.label, pad)


def show_metric(module: Trainable, eval_metric: Any, labels: Any, pad: int) -> None:
    """Show a metric a module's outputs; modules written for MXNet do not know `pad` and count padding.

    Args:
        module: the module.
        eval_metric: the metric.
        labels: the batch's labels.
        pad: how many samples at the end are padding.
    """
    if pad and "pad" in inspect.signature(module.update_metric).parameters:
        module.update_metric(eval_metric, labels, pad=pad)
    else:
        module.update_metric(eval_metric, labels)


def score(
    module: Trainable,
    eval_data: Any,
    eval_metric: Any,
    num_batch: int | None = None,
    batch_end_callback: Any = None,
    score_end_callback: Any = None,
    reset: bool = True,
    epoch: int = 0,
    sparse_row_id_fn: Any = None,
    *,
    count_padding: bool = False,
    on_nonfinite: str = "warn",
) -> list[tuple[str, float]]:
    """Measure metrics on data.

    Args:
        module: the module.
        eval_data: as `train_data` of `fit`.
        eval_metric: name, list of names, function or `EvalMetric`.
        num_batch: how many batches; None = all.
        batch_end_callback: called after every batch.
        score_end_callback: called at the end.
        reset: start `eval_data` from its beginning.
        epoch: number handed to callbacks.
        sparse_row_id_fn: handed to `prepare`.
        count_padding: count rows that only fill up the last batch, as MXNet does.
        on_nonfinite: what to do about rows whose outputs are NaN: "warn" of all of them at the end, "raise" at the
            first, or "ignore".

    Returns:
        (name, value) pairs.

    Raises:
        NonFiniteError: a row is NaN, and `on_nonfinite` is "raise".
    """
    watch = RowWatch(module, "score", on_nonfinite)
    eval_metric = metrics.create(eval_metric)
    eval_metric.reset()
    eval_data = labelled_iter(module, eval_data, "score")
    callbacks, nbatch = as_list(batch_end_callback), 0
    for nbatch, batch in enumerate(batches_of(module, eval_data, num_batch, reset, sparse_row_id_fn), 1):
        module.evaluate(batch)
        watch.look(nbatch - 1, _pad(batch))
        _update_metric(module, eval_metric, batch, count_padding)
        _call_back(callbacks, epoch, nbatch - 1, eval_metric, locals())
    watch.tell()
    _call_back(as_list(score_end_callback), epoch, nbatch, eval_metric, locals())
    found: list[tuple[str, float]] = eval_metric.get_global_name_value()
    return found


def _call_back(
    callbacks: Sequence[Callable[..., Any]], epoch: int, nbatch: int, eval_metric: Any, local: dict[str, Any]
) -> None:
    for callback in callbacks:
        callback(BatchEndParam(epoch=epoch, nbatch=nbatch, eval_metric=eval_metric, locals=local))


def batches_of(
    module: Trainable, data: Any, num_batch: int | None, reset: bool, sparse_row_id_fn: Any
) -> Iterator[Any]:
    """Yield the batches of data, after `prepare`; see `predict` for the arguments."""
    data = as_iter(module, data)
    if reset:
        data.reset()
    for number, batch in enumerate(data):
        if number == num_batch:
            return
        module.prepare(batch, sparse_row_id_fn=sparse_row_id_fn)
        yield batch


def _pad(batch: Any) -> int:
    return 0 if isinstance(batch, list) else pad_of(batch)


def _unpadded(output: NDArray, batch: Any, axis: int = 0) -> NDArray:
    """Return a copy of an output without padding rows."""
    rows = output.shape[axis] - _pad(batch)
    if isinstance(output, RaggedNDArray):
        return output[:rows].copy()
    return NDArray(output.raw.narrow(axis, 0, rows).clone(), output.context)


def iter_predict(
    module: Trainable,
    eval_data: Any,
    num_batch: int | None = None,
    reset: bool = True,
    sparse_row_id_fn: Any = None,
    *,
    on_nonfinite: str = "warn",
) -> Iterator[tuple[list[NDArray], int, Any]]:
    """Yield (outputs, number of the batch, batch) for data, padding rows cut off; see `predict`."""
    watch = RowWatch(module, "predict", on_nonfinite)
    for nbatch, batch in enumerate(batches_of(module, eval_data, num_batch, reset, sparse_row_id_fn)):
        module.evaluate(batch)
        watch.look(nbatch, _pad(batch))
        yield [_unpadded(out, batch) for out in module.get_outputs()], nbatch, batch
    watch.tell()


def predict(
    module: Trainable,
    eval_data: Any,
    num_batch: int | None = None,
    merge_batches: bool = True,
    reset: bool = True,
    always_output_list: bool = False,
    sparse_row_id_fn: Any = None,
    *,
    on_nonfinite: str = "warn",
) -> Any:
    """Return the outputs for data, padding rows cut off.

    Args:
        module: the module.
        eval_data: as `train_data` of `fit`, or one array.
        num_batch: how many batches; None = all.
        merge_batches: join the batches' outputs; else a list of lists.
        reset: start `eval_data` from its beginning.
        always_output_list: return a list also for a single output.
        sparse_row_id_fn: handed to `prepare`.
        on_nonfinite: what to do about rows whose outputs are NaN: "warn" of all of them at the end, "raise" at the
            first, or "ignore".

    Raises:
        NonFiniteError: a row is NaN, and `on_nonfinite` is "raise".
    """
    if isinstance(eval_data, (NDArray, np.ndarray, torch.Tensor)):
        single = eval_data if isinstance(eval_data, NDArray) else array(eval_data)
        module.forward(DataBatch([single]), is_train=False)
        watch = RowWatch(module, "predict", on_nonfinite)
        watch.look(0, 0)
        watch.tell()
        outputs = [out.copy() for out in module.get_outputs()]
        return outputs if always_output_list or len(outputs) > 1 else outputs[0]
    found = iter_predict(module, eval_data, num_batch, reset, sparse_row_id_fn, on_nonfinite=on_nonfinite)
    rows = [outputs for outputs, _, _ in found]
    if not rows or not merge_batches:
        return rows
    counts = {len(outputs) for outputs in rows}
    if len(counts) != 1:
        raise ArgumentError(
            f"predict: batches have {sorted(counts)} outputs (bucketing?); call with merge_batches=False"
        )
    merged = [concatenate([outputs[k] for outputs in rows]) for k in range(counts.pop())]
    return merged[0] if len(merged) == 1 and not always_output_list else merged
