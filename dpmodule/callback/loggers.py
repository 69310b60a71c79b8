"""Callbacks that record how training goes: event files of TensorBoard, a CSV file, a curve in a notebook."""

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
    """Return a writer of event files."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingPackageError(
            "event files are written by tensorboard, which is not installed; install it with: "
            "pip install 'dpmodule[tensorboard]'"
        ) from error
    return SummaryWriter(os.fspath(logdir))


class TensorBoard(Callback):
    """Write what `fit` measures as scalars for TensorBoard; a step is a batch.

    Raises:
        MissingPackageError: the package tensorboard is not installed.
    """

    def __init__(self, logdir: str | os.PathLike[str]) -> None:
        self._writer = make_writer(logdir)
        self._written = 0

    def on_fit_begin(self, run: RunLike) -> None:
        self._written = 0

    def on_epoch_end(self, run: RunLike) -> None:
        before = run.num_batches - run.nbatch  # batches of former epochs: new rows are of this one
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
        """Return what is to be saved with a run."""
        return {"written": self._written}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on behind the rows that were written.

        Args:
            state: what `state_dict` of another one returned, which may have been in another process.
        """
        self._written = state["written"]


class LogMetricsCallback:
    """Write metrics as scalars for TensorBoard: a batch callback, or one at the end of an evaluation.

    Args:
        prefix: what the metrics' names begin with.

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
    """Write what `fit` measures to a CSV file, a row for each epoch and for each evaluation within one.

    The file is whole after every epoch; a metric that comes later adds a column. Columns are "epoch", "batch", "time_s"
    (seconds since the epoch began) and the metrics' names; what a row lacks is left empty.

    Args:
        path: the file; an older one is replaced.

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
    """Draw the metrics of `fit` in a notebook, anew after each epoch; elsewhere nothing is drawn.

    Args:
        metrics: names of metrics; all if none is named.

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
        figure = run.history.plot(*self._metrics, ax=_axes()).figure
        if self._shown is None:
            self._shown = display(figure, display_id=True)
        else:
            self._shown.update(figure)


def _axes() -> Any:
    """Return axes of a figure that pyplot does not know, which would show it once more after the cell."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError(
            "LiveCurve draws by Matplotlib, which is not installed; install it with: pip install matplotlib"
        ) from error
    return Figure().add_subplot()


def _notebook_display() -> Any:
    """Return what shows an object in a notebook; None outside of one."""
    try:
        from IPython.core.getipython import get_ipython
        from IPython.display import display
    except ImportError:
        return None
    return None if get_ipython() is None else display
