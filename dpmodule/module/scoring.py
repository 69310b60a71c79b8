"""Scoring and prediction: loops over batches that change no parameters, for any `Trainable`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .. import metric as metrics
from ..base import ArgumentError, NonFiniteError
from ..callback import BatchEndParam
from ..callback.base import as_list
from ..io import DataBatch
from ..ndarray import NDArray, array, concatenate
from ..ndarray.ragged import RaggedNDArray
from .fit import pad_of, update_metric
from .lifecycle import Stage, missing_call
from .lockstep import Lockstep
from .nonfinite import AsyncCheck, CheckedTensor, are_finite, check_choice
from .protocol import Trainable
from .training_data import as_iter, labelled_iter, named_batches

if TYPE_CHECKING:
    from ..callback.base import CallbackLike
    from ..metric import EvalMetric
    from ..metric.composite import MetricLike
    from .types import BatchLike, DataLike, RowIdFunction


def score(
    module: Trainable,
    eval_data: DataLike,
    eval_metric: MetricLike,
    num_batch: int | None = None,
    batch_end_callback: CallbackLike = None,
    score_end_callback: CallbackLike = None,
    reset: bool = True,
    epoch: int = 0,
    sparse_row_id_fn: RowIdFunction = None,
    *,
    count_padding: bool = False,
    on_nonfinite: str = "warn",
) -> list[tuple[str, float]]:
    """Measure metrics on data; data-parallel processes measure on the data of all processes.

    Args:
        module: the module, bound and initialized.
        eval_data: as `train_data` of `fit`.
        eval_metric: name, list of names, function or `EvalMetric`.
        num_batch: number of batches; None = all.
        batch_end_callback: called after every batch.
        score_end_callback: called at the end.
        reset: start `eval_data` from its beginning.
        sparse_row_id_fn: passed to `prepare`.
        count_padding: count the padding rows of the last batch, as MXNet does.
        on_nonfinite: reaction to rows with NaN outputs: "warn" once at the end, "raise" at the first, or "ignore".

    Returns:
        (name, value) pairs.

    Raises:
        NonFiniteError: a row is NaN, and `on_nonfinite` is "raise".

    Source: MXNet 1.9.1 `BaseModule.score`, which counts rows of padding.
    """
    _check_initialized(module, "score")
    counter = NaNRowCounter(module, "score", on_nonfinite)
    eval_metric = metrics.create(eval_metric)
    eval_metric.reset()
    eval_data = labelled_iter(module, eval_data, "score")
    callbacks = as_list(batch_end_callback)
    # programs for MXNet read the names actual_num_batch, eval_batch and self in `locals` of their callbacks
    actual_num_batch = 0
    batches = batches_of(module, eval_data, num_batch, reset, sparse_row_id_fn)
    for nbatch, eval_batch in enumerate(batches):
        module.evaluate(eval_batch)
        counter.update(nbatch, _padding_of(eval_batch))
        update_metric(module, eval_metric, eval_batch, count_padding)
        run_callbacks(callbacks, epoch, nbatch, eval_metric, {**locals(), "self": module})
        actual_num_batch += 1
    counter.warn()
    if getattr(eval_data, "num_parts", 1) > 1:
        Lockstep(module).merge(eval_metric)
    end_callbacks = as_list(score_end_callback)
    run_callbacks(end_callbacks, epoch, actual_num_batch, eval_metric, {**locals(), "self": module})
    values: list[tuple[str, float]] = eval_metric.get_global_name_value()
    return values


def _check_initialized(module: Trainable, method: str) -> None:
    """Check that a module is bound and has parameters."""
    if module.stage < Stage.INITIALIZED:
        raise missing_call(module, method)


def run_callbacks(
    callbacks: Sequence[Callable[..., Any]],
    epoch: int,
    nbatch: int,
    eval_metric: EvalMetric,
    local: dict[str, Any],
) -> None:
    """Call callbacks with a `BatchEndParam`."""
    for callback in callbacks:
        callback(BatchEndParam(epoch=epoch, nbatch=nbatch, eval_metric=eval_metric, locals=local))


def batches_of(
    module: Trainable, data: DataLike, num_batch: int | None, reset: bool, sparse_row_id_fn: RowIdFunction
) -> Iterator[Any]:
    """Yield the batches of data, after `prepare`; see `predict` for the arguments."""
    batches = as_iter(module, data)
    if reset:
        batches.reset()
    for number, batch in enumerate(named_batches(module, batches)):
        if number == num_batch:
            return
        module.prepare(batch, sparse_row_id_fn=sparse_row_id_fn)
        yield batch


def _padding_of(batch: BatchLike) -> int:
    return 0 if isinstance(batch, list) else pad_of(batch)


def _without_padding(output: NDArray, batch: BatchLike, axis: int = 0) -> NDArray:
    """Return a copy of an output without padding rows."""
    rows = max(0, output.shape[axis] - _padding_of(batch))
    if isinstance(output, RaggedNDArray):
        return output[:rows].copy()
    return NDArray(output.raw.narrow(axis, 0, rows).clone(), output.context)


def iter_predict(
    module: Trainable,
    eval_data: DataLike,
    num_batch: int | None = None,
    reset: bool = True,
    sparse_row_id_fn: RowIdFunction = None,
    *,
    on_nonfinite: str = "warn",
) -> Iterator[tuple[list[NDArray], int, Any]]:
    """Yield (outputs, number of the batch, batch) for data, without padding rows; see `predict`.

    Args:
        eval_data: as `train_data` of `fit`, or one array.
        num_batch: number of batches; None = all.
        reset: start `eval_data` from its beginning.
        sparse_row_id_fn: passed to `prepare`.
        on_nonfinite: reaction to rows with NaN outputs: "warn" once at the end, "raise" at the first, or "ignore".

    Shape:
        returns[0][i]: (n, ...), the shape of the output without padding rows.

    Source: MXNet 1.9.1 `BaseModule.iter_predict`.
    """
    _check_initialized(module, "iter_predict")
    counter = NaNRowCounter(module, "predict", on_nonfinite)
    for nbatch, batch in enumerate(batches_of(module, eval_data, num_batch, reset, sparse_row_id_fn)):
        module.evaluate(batch)
        counter.update(nbatch, _padding_of(batch))
        yield [_without_padding(out, batch) for out in module.get_outputs()], nbatch, batch
    counter.warn()


def predict(
    module: Trainable,
    eval_data: DataLike | NDArray | np.ndarray[Any, Any] | torch.Tensor,
    num_batch: int | None = None,
    merge_batches: bool = True,
    reset: bool = True,
    always_output_list: bool = False,
    sparse_row_id_fn: RowIdFunction = None,
    *,
    on_nonfinite: str = "warn",
) -> Any:
    """Return the outputs for data, without padding rows.

    Data-parallel processes return the outputs for the data of all processes, in the order of the examples; without
    `merge_batches`, those for their own data.

    Args:
        module: the module, bound and initialized.
        eval_data: as `train_data` of `fit`, or one array.
        num_batch: number of batches; None = all.
        merge_batches: concatenate the outputs of the batches; otherwise return a list of lists.
        reset: start `eval_data` from its beginning.
        always_output_list: return a list for a single output, too.
        sparse_row_id_fn: passed to `prepare`.
        on_nonfinite: reaction to rows with NaN outputs: "warn" once at the end, "raise" at the first, or "ignore".

    Shape:
        eval_data: (N, ...), for an array: the bound shape of the only input, with any N.
        returns[i]: (M, ...), the outputs for the M samples of all batches; returns[b][i]: (n, ...), if they are not
            merged.

    Raises:
        NonFiniteError: a row is NaN, and `on_nonfinite` is "raise".
        ArgumentError: `merge_batches` is set and batches have different numbers of outputs.

    Source: MXNet 1.9.1 `BaseModule.predict`.
    """
    _check_initialized(module, "predict")
    if isinstance(eval_data, (NDArray, np.ndarray, torch.Tensor)):
        single = eval_data if isinstance(eval_data, NDArray) else array(eval_data)
        module.forward(DataBatch([single]), is_train=False)
        counter = NaNRowCounter(module, "predict", on_nonfinite)
        counter.update(0, 0)
        counter.warn()
        outputs = [out.copy() for out in module.get_outputs()]
        return outputs if always_output_list or len(outputs) > 1 else outputs[0]
    data = as_iter(module, eval_data)
    results = iter_predict(module, data, num_batch, reset, sparse_row_id_fn, on_nonfinite=on_nonfinite)
    rows = [outputs for outputs, _, _ in results]
    if not rows or not merge_batches:
        return rows
    counts = {len(outputs) for outputs in rows}
    if len(counts) != 1:
        raise ArgumentError(
            f"predict: batches have {sorted(counts)} outputs (bucketing?); call with merge_batches=False"
        )
    merged = [concatenate([outputs[k] for outputs in rows]) for k in range(counts.pop())]
    if getattr(data, "num_parts", 1) > 1:
        merged = Lockstep(module).join_rows(merged, data.num_data)
    return merged[0] if len(merged) == 1 and not always_output_list else merged


class NaNRowCounter:
    """Counts the output rows that are NaN during prediction or scoring, and warns once at the end."""

    def __init__(self, module: Trainable, what: str, on_nonfinite: str) -> None:
        check_choice(what, on_nonfinite)
        self._module, self._what, self._on_nonfinite = module, what, on_nonfinite
        self._count, self._first = 0, -1

    def update(self, number: int, pad: int) -> None:
        """Count the NaN rows in the outputs of the last forward.

        Args:
            number: index of the batch.
            pad: number of padding rows.
        """
        if self._on_nonfinite == "ignore" or not _may_be_nan(self._module.output_probes()):
            return
        nan_rows, rows = self._module.nan_rows()
        nan_rows = [row for row in nan_rows if row < rows - pad]
        if nan_rows and self._first < 0:
            self._first = number * rows + nan_rows[0]
        self._count += len(nan_rows)
        if nan_rows and self._on_nonfinite == "raise":
            raise NonFiniteError(f"{self._message()}; it is in batch {number}")

    def warn(self) -> None:
        """Warn if a row was NaN."""
        if self._count:
            self._module.logger.warning("%s", self._message())

    def _message(self) -> str:
        rows = "1 row of the outputs is" if self._count == 1 else f"{self._count} rows of the outputs are"
        return f"{self._what}: {rows} NaN, the first at index {self._first}"


def _may_be_nan(probes: Sequence[Sequence[torch.Tensor]]) -> bool:
    """Return True if an element may be NaN; a sum of infinities of both signs is NaN, too."""
    for parts in probes:
        for tensor in parts:
            if not tensor.is_cpu:
                checked = [
                    CheckedTensor("", probe, may_be_infinite=True) for parts in probes for probe in parts
                ]
                return AsyncCheck(checked).first() is not None
            if not are_finite(tensor) and math.isnan(tensor.sum()):
                return True
    return False
