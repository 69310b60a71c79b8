"""`History`: the metrics that `fit` measured, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..base import ArgumentError, MissingPackageError, did_you_mean


class History:
    """Table of the metrics of `fit`: one row for each epoch, and one for each evaluation within an epoch.

    Attributes:
        rows: dicts with "epoch", "batch" (number of batches done in it), "time_s" (seconds since the epoch began), and
            metrics by name, such as "train-accuracy", "validation-accuracy" or, for named evaluation data,
            "test-accuracy".
        ended: the reason for which `fit` ended before its last epoch; "" if it did not.

    Example:
        >>> history = History()
        >>> history.add(0, 10, 0.5, {"train-accuracy": 0.75})
        >>> history["train-accuracy"], history.names
        ([0.75], ['train-accuracy'])
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.ended = ""

    def add(self, epoch: int, batch: int, time_s: float, values: dict[str, float]) -> None:
        """Add a row.

        Args:
            epoch: number of the epoch.
            time_s: seconds since the epoch began.
            values: metrics by name.
        """
        self.rows.append({"epoch": epoch, "batch": batch, "time_s": time_s, **values})

    @property
    def names(self) -> list[str]:
        """Names of the metrics, in the order of their first appearance."""
        columns = dict.fromkeys(name for row in self.rows for name in row)
        return [name for name in columns if name not in ("epoch", "batch", "time_s")]

    def __getitem__(self, name: str) -> list[float]:
        """Return the values of a column, skipping rows without it."""
        values = [row[name] for row in self.rows if name in row]
        if not values:
            raise ArgumentError(
                f"History: {name!r} was not measured; the metrics are {', '.join(self.names) or 'none'}"
                f"{did_you_mean(name, self.names)}"
            )
        return values

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __repr__(self) -> str:
        if not self.rows:
            return "<History: nothing measured>"
        last = ", ".join(f"{name}={self[name][-1]:.4g}" for name in self.names)
        return f"<History: {len({row['epoch'] for row in self.rows})} epochs, {last}>"

    def _repr_html_(self) -> str:
        """Return the HTML that notebooks show: a table and a small plot of each metric."""
        from .notebook import history_html

        title = f"History of {len({row['epoch'] for row in self.rows})} epochs"
        title += f"; ended: {self.ended}" if self.ended else ""
        return history_html(title, self.names, self.rows, _positions)

    def plot(self, *names: str, ax: Any = None) -> Any:
        """Plot metrics over epochs, and return the Matplotlib axes.

        Args:
            names: names of the metrics; all by default.
            ax: axes to draw into; None makes a pyplot figure, which a notebook shows.
        """
        if ax is None:
            ax = new_axes("History.plot")
        for name in names or self.names:
            values = self[name]
            rows = [row for row in self.rows if name in row]
            ax.plot(_positions(rows), values, marker="o" if len(values) < 20 else None, label=name)
        ax.set_xlabel("epoch")
        ax.legend()
        return ax


def _positions(rows: list[dict[str, Any]]) -> list[float]:
    """Return the positions of rows on the axis of epochs; the end of epoch 0 is at 1."""
    longest = {row["epoch"]: row["batch"] for row in rows}
    return [row["epoch"] + row["batch"] / max(longest[row["epoch"]], 1) for row in rows]


def new_axes(what: str) -> Any:
    """Return the axes of a new pyplot figure, which a notebook, or elsewhere ``plt.show()``, shows."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingPackageError(
            f"{what} needs Matplotlib, which is not installed; install it with: pip install matplotlib"
        ) from error
    return pyplot.figure().add_subplot()
