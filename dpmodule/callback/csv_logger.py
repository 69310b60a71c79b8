"""`CSVLogger`: the history of `fit` as a table in a file."""

from __future__ import annotations

import csv
import io
import os
from typing import TYPE_CHECKING

from ..files.atomic import write_atomically
from .base import Callback

if TYPE_CHECKING:
    from .base import RunLike


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
