"""`LiveCurve`: a plot of metrics that grows in a notebook."""

from __future__ import annotations

from typing import Any

from .base import Callback

__all__ = ["LiveCurve"]


class LiveCurve(Callback):
    """Draw the metrics of `fit` in a notebook, anew after each epoch.

    Args:
        metrics: names of metrics; all if none is named.

    Raises:
        MissingPackageError: in `fit`: Matplotlib is not installed.
    """

    def __init__(self, *metrics: str) -> None:
        self._metrics = metrics
        self._shown: Any = None

    def on_epoch_end(self, run: Any) -> None:
        """Draw the curves."""
        figure = run.history.plot(*self._metrics).figure
        display = _notebook_display()
        if display is None:
            return
        if self._shown is None:
            self._shown = display(figure, display_id=True)
        else:
            self._shown.update(figure)


def _notebook_display() -> Any:
    """Return what shows an object in a notebook; None outside of one."""
    try:
        from IPython.core.getipython import get_ipython
        from IPython.display import display
    except ImportError:
        return None
    return None if get_ipython() is None else display
