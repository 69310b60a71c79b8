"""MXNet's callbacks, which `fit` calls after each batch, each epoch or each evaluation.

Batch callbacks take a `BatchEndParam`; epoch callbacks take ``(epoch, symbol, arg_params, aux_params)``.
Lines are written to Python's root logger at level INFO, as MXNet does.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from .._core.closing import Closing
from ..base import ArgumentError
from .base import BatchEndParam

if TYPE_CHECKING:
    from ..ndarray import NDArray
    from ..symbol import Symbol
    from .base import RunLike

EpochCallback = Callable[..., None]
BatchCallback = Callable[[BatchEndParam], None]


class Savable(Protocol):
    """A module that writes checkpoints."""

    @property
    def save_checkpoint(self) -> Callable[..., Any]:
        """Function of a prefix, the number of an epoch, and whether to write the optimizer's states."""


def _is_due(epoch: int, period: int) -> bool:
    return (epoch + 1) % period == 0


def module_checkpoint(
    mod: Savable,
    prefix: str,
    period: int = 1,
    save_optimizer_states: bool = False,
    format: str = "params",
    *,
    keep_last: int | None = None,
    keep_best: int | None = None,
    metric: str | None = None,
    mode: str = "auto",
) -> EpochCallback:
    """Return an epoch callback that saves a module every `period` epochs.

    Args:
        prefix: start of the file names, such as "run/net".
        period: number of epochs between two checkpoints; less than 1 counts as 1.
        save_optimizer_states: whether to save the optimizer's states to continue training.
        format: "params", or "safetensors" for modules whose `save_checkpoint` supports it.
        keep_last: as for `do_checkpoint`.
        keep_best: as for `do_checkpoint`.
        metric: as for `do_checkpoint`.
        mode: as for `do_checkpoint`.

    Raises:
        ArgumentError: as from `do_checkpoint`.

    Source: MXNet 1.9.1 `callback.module_checkpoint`, which keeps all files.
    """
    period = max(1, int(period))
    more = {} if format == "params" else {"format": format}

    def save(epoch: int, sym: object = None, arg: object = None, aux: object = None) -> None:
        if _is_due(epoch, period):
            mod.save_checkpoint(prefix, epoch + 1, save_optimizer_states, **more)

    return _with_retention("module_checkpoint", save, prefix, period, (keep_last, keep_best, metric, mode))


def do_checkpoint(
    prefix: str,
    period: int = 1,
    format: str = "params",
    *,
    keep_last: int | None = None,
    keep_best: int | None = None,
    metric: str | None = None,
    mode: str = "auto",
) -> EpochCallback:
    """Return an epoch callback that saves symbol and parameters every `period` epochs.

    Args:
        prefix: start of the file names: ``<prefix>-symbol.json`` and ``<prefix>-0001.params``.
        period: number of epochs between two checkpoints; less than 1 counts as 1.
        format: "params", or "safetensors": ``<prefix>-0001.safetensors`` holds both.
        keep_last: number of last epochs whose files are kept; None keeps all.
        keep_best: number of epochs with the best values of `metric` to keep in addition; this needs `fit`, which calls
            the callback after the evaluation of the epoch.
        metric: name of a metric in the history of `fit`, such as "validation-accuracy".
        mode: "max" if larger is better, "min" if smaller is better, "auto" decides by the name.

    Raises:
        ArgumentError: a number to keep is below 1, the mode is unknown, or `keep_best` is given without `metric`; in
            `fit`: the metric is not measured.

    Source: MXNet 1.9.1 `callback.do_checkpoint`, which keeps all files.
    """
    period = max(1, int(period))

    def save(epoch: int, sym: Symbol | None, arg: Mapping[str, NDArray], aux: Mapping[str, NDArray]) -> None:
        if _is_due(epoch, period):
            from ..checkpoint import save_checkpoint

            save_checkpoint(prefix, epoch + 1, sym, arg, aux, format=format)

    return _with_retention("do_checkpoint", save, prefix, period, (keep_last, keep_best, metric, mode))


def _with_retention(
    what: str,
    save: EpochCallback,
    prefix: str,
    period: int,
    keep: tuple[int | None, int | None, str | None, str],
) -> EpochCallback:
    """Return an epoch callback that saves, and removes old epochs if the arguments ask for it."""
    if keep == (None, None, None, "auto"):
        return save
    from .checkpoint import RetainingSaver

    return RetainingSaver(what, save, prefix, period, keep)


def log_train_metric(period: int, auto_reset: bool = False) -> BatchCallback:
    """Return a batch callback that logs the metric every `period` batches.

    Args:
        period: number of batches between two lines.
        auto_reset: whether to reset the metric's local sums after each line.

    Raises:
        ArgumentError: `period` is below 1.

    Source: MXNet 1.9.1 `callback.log_train_metric`.
    """
    _check_period("log_train_metric", "period", period)

    def log(param: BatchEndParam) -> None:
        if param.nbatch % period == 0 and param.eval_metric is not None:
            for name, value in param.eval_metric.get_name_value():
                logging.info("Iter[%d] Batch[%d] Train-%s=%f", param.epoch, param.nbatch, name, value)
            if auto_reset:
                param.eval_metric.reset_local()

    return log


class Speedometer:
    """Log speed and metric every `frequent` batches.

    Args:
        batch_size: number of examples in a batch.
        frequent: number of batches between two lines.
        auto_reset: whether each line shows the metric of its own batches, rather than of the epoch so far.

    Raises:
        ArgumentError: `frequent` is below 1.

    Example:
        >>> report = mx.callback.Speedometer(batch_size=32, frequent=50)
        >>> report.frequent
        50

    Source: MXNet 1.9.1 `callback.Speedometer`.
    """

    def __init__(self, batch_size: int, frequent: int = 50, auto_reset: bool = True) -> None:
        _check_period("Speedometer", "frequent", frequent)
        self.batch_size = batch_size
        self.frequent = frequent
        self.auto_reset = auto_reset
        self.init = False
        self.tic = 0.0
        self.last_count = 0

    def __call__(self, param: BatchEndParam) -> None:
        """Count a batch, and log a line every `frequent` batches."""
        count = param.nbatch
        if count < self.last_count:
            self.init = False
        self.last_count = count
        if not self.init:
            self.init = True
            self.tic = time.time()
        elif count % self.frequent == 0:
            self._report(param)
            self.tic = time.time()

    def _report(self, param: BatchEndParam) -> None:
        passed = time.time() - self.tic
        speed = self.frequent * self.batch_size / passed if passed > 0 else float("inf")
        if param.eval_metric is None:
            logging.info("Iter[%d] Batch [%d]\tSpeed: %.2f samples/sec", param.epoch, param.nbatch, speed)
            return
        pairs = param.eval_metric.get_name_value()
        first = 0
        if self.auto_reset:
            first = param.nbatch - self.frequent
            param.eval_metric.reset_local()
        line = "Epoch[%d] Batch [%d-%d]\tSpeed: %.2f samples/sec" + "\t%s=%f" * len(pairs)
        values = [part for pair in pairs for part in pair]
        logging.info(line, param.epoch, first, param.nbatch, speed, *values)


class ProgressBar:
    """Log a bar of text that grows with the batches of an epoch.

    Args:
        total: number of batches in an epoch.
        length: width of the full bar in characters.

    Raises:
        ArgumentError: `total` is below 1.

    Source: MXNet 1.9.1 `callback.ProgressBar`.
    """

    def __init__(self, total: int, length: int = 80) -> None:
        _check_period("ProgressBar", "total", total)
        self.bar_len = length
        self.total = total

    def __call__(self, param: BatchEndParam) -> None:
        """Log the bar.

        Args:
            param: state of training; its `nbatch` is the number of batches done.
        """
        done = param.nbatch / float(self.total)
        filled = round(self.bar_len * done)
        bar = "=" * filled + "-" * (self.bar_len - filled)
        logging.info("[%s] %d%s\r", bar, -(-100 * param.nbatch // self.total), "%")


class LogValidationMetricsCallback:
    """Log every metric at the end of an evaluation.

    Source: MXNet 1.9.1 `callback.LogValidationMetricsCallback`.
    """

    def __call__(self, param: BatchEndParam) -> None:
        """Log one line per metric."""
        if param.eval_metric is None:
            return
        for name, value in param.eval_metric.get_name_value():
            logging.info("Epoch[%d] Validation-%s=%f", param.epoch, name, value)


class TqdmBar(Closing):
    """Show a tqdm progress bar per epoch, with the metric and the speed; in notebooks a graphical one.

    Use it as a batch callback. `fit` opens a bar at the beginning of an epoch; in other loops the first batch opens it
    and is not included in the speed. A bar closes after the last batch of its epoch, known from `total` or from
    ``locals["end_of_batch"]`` (set by `fit`), when the next epoch begins, or by `close`, which can also be an epoch
    callback; the object is also a context manager.

    Args:
        total: number of batches in an epoch; None shows a count only.
        batch_size: number of examples in a batch, for the speed in samples per second; None: that of
            ``locals["train_data"]``; if it has none, the bar shows batches per second only.
        desc: text before the bar; ``{epoch}`` is replaced by the number of the epoch.
        every: number of batches between two readings of the metric, which may wait for a device.
        options: further arguments for ``tqdm``, such as ``file``, ``leave``, ``disable`` or ``mininterval``.

    Raises:
        ArgumentError: `every` is below 1.

    Example:
        >>> with mx.callback.TqdmBar(total=2, batch_size=32, disable=True) as bar:
        ...     bar(mx.callback.BatchEndParam(epoch=0, nbatch=0, eval_metric=None, locals=None))
    """

    def __init__(
        self,
        total: int | None = None,
        batch_size: int | None = None,
        desc: str = "Epoch {epoch}",
        every: int = 10,
        **options: Any,
    ) -> None:
        _check_period("TqdmBar", "every", every)
        self.total = total
        self.batch_size = batch_size
        self.desc = desc
        self.every = every
        self._options = options
        self._bar: Any = None
        self._epoch: int | None = None
        self._before = 0

    def __call__(self, param: BatchEndParam) -> None:
        """Move the bar to a batch."""
        done = param.nbatch + 1
        if self._bar is None or param.epoch != self._epoch or param.nbatch < self._bar.n:
            self._open(param.epoch, done)
        is_last = _local(param, "end_of_batch")  # set by `fit`, while `total` may be an estimate
        last = done == self.total if is_last is None else is_last
        if last or param.nbatch % self.every == 0:
            self._bar.set_postfix(self._postfix(param), refresh=False)
        self._bar.update(done - self._bar.n)
        if last:
            self.close()

    def on_epoch_begin(self, run: RunLike) -> None:
        """Open the bar of an epoch; `fit` calls it."""
        self._open(run.epoch, run.nbatch)

    def close(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _open(self, epoch: int, done: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without ipywidgets, notebooks show the bar as text
            from tqdm.auto import tqdm  # slow to import; detects notebooks

        self.close()
        self._epoch = epoch
        text = self.desc.format(epoch=epoch)
        self._bar = tqdm(total=self.total, desc=text, unit="batch", initial=done, **self._options)
        self._before = done

    def _postfix(self, param: BatchEndParam) -> dict[str, str]:
        shown = {}
        if param.eval_metric is not None:
            shown = {name: f"{value:.4f}" for name, value in param.eval_metric.get_name_value()}
        batch_size = self.batch_size or getattr(_local(param, "train_data"), "batch_size", None)
        elapsed, count = self._bar.format_dict["elapsed"], param.nbatch + 1 - self._before
        if batch_size and elapsed > 0 and count:
            shown["samples/s"] = f"{count * batch_size / elapsed:.0f}"
        return shown


def _local(param: BatchEndParam, name: str) -> Any:
    """Return a local variable of the calling loop, None if there is none."""
    return param.locals.get(name) if isinstance(param.locals, dict) else None


def _check_period(kind: str, name: str, value: int) -> None:
    if value < 1:
        raise ArgumentError(f"{kind}: {name} is {value}, expected at least 1")
