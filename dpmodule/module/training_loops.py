"""`fit`, `score` and `predict` as methods of every module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ..context import Context
from ..initializer import Uniform
from ..ndarray import NDArray
from . import fit as loops

if TYPE_CHECKING:
    from .base_module import BaseModule

__all__ = ["TrainingLoops"]


class TrainingLoops:
    """The loops of a module; they work on the interface of `BaseModule` alone."""

    def _as_module(self) -> BaseModule:
        return cast("BaseModule", self)

    def fit(
        self,
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
        options = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        loops.fit(self._as_module(), loops.FitOptions(**options))

    def score(
        self,
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
        return loops.score(
            self._as_module(),
            eval_data,
            eval_metric,
            num_batch,
            batch_end_callback,
            score_end_callback,
            reset,
            epoch,
            sparse_row_id_fn,
            count_padding,
            on_nonfinite,
        )

    def predict(
        self,
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
        return loops.predict(
            self._as_module(),
            eval_data,
            num_batch,
            merge_batches,
            reset,
            always_output_list,
            sparse_row_id_fn,
            on_nonfinite,
        )

    def iter_predict(
        self,
        eval_data: Any,
        num_batch: int | None = None,
        reset: bool = True,
        sparse_row_id_fn: Any = None,
        *,
        on_nonfinite: str = "warn",
    ) -> Iterator[tuple[list[NDArray], int, Any]]:
        """Yield (outputs, number of the batch, batch) for data, padding rows cut off; see `predict`."""
        return loops.iter_predict(
            self._as_module(), eval_data, num_batch, reset, sparse_row_id_fn, on_nonfinite
        )
