"""`LiveCurve`: a plot of metrics that grows in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..base import MissingPackageError
from .base import Callback

if TYPE_CHECKING:
    from .base import RunLike


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
