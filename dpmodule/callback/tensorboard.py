"""`TensorBoard`: metrics as TensorBoard reads them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

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
