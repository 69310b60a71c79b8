"""Callbacks that record metrics: event files of TensorBoard, a CSV file, a curve in a notebook."""

from __future__ import annotations

import csv
import io
import os
from typing import TYPE_CHECKING, Any

from .._files import write_atomically
from ..base import MissingPackageError
from .base import BatchEndParam, Callback

if TYPE_CHECKING:
    from .base import RunLike


def make_writer(logdir: str | os.PathLike[str]) -> Any:
    """Return a TensorBoard writer."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingPackageError(
            "event files need the package tensorboard, which is not installed; install it with: "
            "pip install 'dpmodule[tensorboard]'"
        ) from error
    return SummaryWriter(os.fspath(logdir))


class TensorBoard(Callback):
    """Write the metrics of `fit` as scalars for TensorBoard; a step is a batch.

    Raises:
        MissingPackageError: the package tensorboard is not installed.
    """

    def __init__(self, logdir: str | os.PathLike[str]) -> None:
        self._writer = make_writer(logdir)
        self._written = 0

    def on_fit_begin(self, run: RunLike) -> None:
        self._written = 0

    def on_epoch_end(self, run: RunLike) -> None:
        before = run.num_batches - run.nbatch  # batches of previous epochs: new rows belong to this epoch
        for row in run.history.rows[self._written :]:
            for name, value in row.items():
                if name not in ("epoch", "batch", "time_s"):
                    self._writer.add_scalar(name, value, before + row["batch"])
        self._written = len(run.history)
        self._writer.flush()

    def on_fit_end(self, run: RunLike) -> None:
        self.on_epoch_end(run)
        self._writer.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the state that is saved with a run."""
        return {"written": self._written}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state; rows that are already written are skipped.

        Args:
            state: result of `state_dict`, possibly of another process.
        """
        self._written = state["written"]


class LogMetricsCallback:
    """Batch callback or evaluation callback that writes metrics as scalars for TensorBoard.

    Args:
        prefix: prefix of the metrics' names.

    Raises:
        MissingPackageError: the package tensorboard is not installed.

    Source: MXNet 1.9.1 `mx.contrib.tensorboard.LogMetricsCallback`.
    """

    def __init__(self, logging_dir: str, prefix: str | None = None) -> None:
        self.prefix = prefix
        self.step = 0
        self.summary_writer = make_writer(logging_dir)

    def __call__(self, param: BatchEndParam) -> None:
        """Write the metric."""
        self.step += 1
        if param.eval_metric is None:
            return
        for name, value in param.eval_metric.get_name_value():
            title = name if self.prefix is None else f"{self.prefix}-{name}"
            self.summary_writer.add_scalar(title, value, self.step)
        self.summary_writer.flush()


class CSVLogger(Callback):
    """Write the metrics of `fit` to a CSV file, with a row for each epoch and for each evaluation within one.

    The file is complete after every epoch; new metrics add columns. The columns are "epoch", "batch", "time_s" (seconds
    since the epoch began) and the metrics' names; missing values are empty.

    Args:
        path: path of the file; an existing file is replaced.

    Example:
        >>> logger = mx.callback.CSVLogger("run.csv")
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path

    def on_epoch_end(self, run: RunLike) -> None:
        self._write(run)

    def on_fit_end(self, run: RunLike) -> None:
        self._write(run)

    def _write(self, run: RunLike) -> None:
        text = io.StringIO()
        table = csv.DictWriter(text, ["epoch", "batch", "time_s", *run.history.names], lineterminator="\n")
        table.writeheader()
        table.writerows(run.history.rows)
        write_atomically(self._path, text.getvalue().encode())


class LiveCurve(Callback):
    """Plot the metrics of `fit` in a notebook, updated after each epoch; does nothing outside of notebooks.

    Args:
        metrics: names of metrics; default: all.

    Raises:
        MissingPackageError: in `fit`: Matplotlib is not installed.
    """

    def __init__(self, *metrics: str) -> None:
        self._metrics = metrics
        self._shown: Any = None

    def on_fit_begin(self, run: RunLike) -> None:
        self._shown = None
        for name in self._metrics:
            run.check_measured(name)

    def on_epoch_end(self, run: RunLike) -> None:
        display = _notebook_display()
        if display is None:
            return
        figure = run.history.plot(*self._metrics, ax=figure_axes("LiveCurve")).figure
        if self._shown is None:
            self._shown = display(figure, display_id=True)
        else:
            self._shown.update(figure)


def figure_axes(what: str) -> Any:
    """Return axes of a figure outside of pyplot, which in a notebook would show it a second time."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError(
            f"{what} needs Matplotlib, which is not installed; install it with: pip install matplotlib"
        ) from error
    return Figure().add_subplot()


def _notebook_display() -> Any:
    """Return the display function of a notebook; None outside of notebooks."""
    try:
        from IPython.core.getipython import get_ipython
        from IPython.display import display
    except ImportError:
        return None
    return None if get_ipython() is None else display
