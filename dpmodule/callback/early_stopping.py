"""`EarlyStopping`: stop training when a metric no longer improves."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

from ..base import ArgumentError
from .base import Callback

if TYPE_CHECKING:
    from .base import RunLike

_MODES = ("auto", "min", "max")
_SMALLER_IS_BETTER = ("loss", "error", "entropy", "perplexity", "likelihood", "mae", "mse", "rmse")


class BestValue:
    """Keeps the best value of a metric.

    Args:
        mode: "max" if larger is better, "min" if smaller is better; "auto" decides by the name: smaller is better for
            losses, errors, entropies and perplexities.
        min_delta: smallest difference that counts as an improvement.

    Attributes:
        value: the best value so far; NaN before there is one.
    """

    def __init__(self, metric: str, mode: str = "auto", min_delta: float = 0.0) -> None:
        if mode not in _MODES:
            raise ArgumentError(f"mode is {mode!r}, expected one of {', '.join(_MODES)}")
        if not min_delta >= 0:
            raise ArgumentError(f"min_delta is {min_delta!r}, expected a number from 0")
        self.metric = metric
        self.value = math.nan
        self._min_delta = min_delta
        self._smaller = mode == "min" or (
            mode == "auto" and any(word in metric.lower() for word in _SMALLER_IS_BETTER)
        )

    def rank(self, value: float) -> float:
        """Return a sort key of a value: smaller is better."""
        if math.isnan(value):
            return math.inf
        return value if self._smaller else -value

    def update(self, value: float) -> bool:
        """Record a value, and return True if it is the best so far."""
        if math.isnan(value):
            return False
        better = (
            value < self.value - self._min_delta if self._smaller else value > self.value + self._min_delta
        )
        if math.isnan(self.value) or better:
            self.value = value
            return True
        return False


class EarlyStopping(Callback):
    """Stop training when a metric has not improved for a number of epochs.

    Args:
        metric: its name in the history of `fit`, such as "validation-accuracy" or "train-cross-entropy".
        patience: number of epochs without improvement that are tolerated.
        mode: "max" if larger is better, "min" if smaller is better, "auto" decides by the name.
        min_delta: smallest difference that counts as an improvement.
        restore_best: set the module's parameters to those of the best epoch at the end of training.

    Attributes:
        best_epoch: number of the epoch with the best value; None before there is one.

    Raises:
        ArgumentError: `patience` is below 0, the mode is unknown, or `min_delta` is negative; in `fit`: the metric is
            not measured, if possible before the first batch.

    Example:
        >>> stopping = mx.callback.EarlyStopping("validation-accuracy", patience=3, restore_best=True)
        >>> stopping.best_epoch is None
        True
    """

    def __init__(
        self,
        metric: str,
        patience: int = 5,
        mode: str = "auto",
        min_delta: float = 0.0,
        restore_best: bool = False,
    ) -> None:
        if patience < 0:
            raise ArgumentError(f"EarlyStopping: patience is {patience}, expected a number of epochs from 0")
        self.best_epoch: int | None = None
        self._best = BestValue(metric, mode, min_delta)
        self._patience = patience
        self._restore = restore_best
        self._waited = 0
        self._params: Any = None

    def on_fit_begin(self, run: RunLike) -> None:
        run.check_measured(self._best.metric)

    def on_epoch_end(self, run: RunLike) -> bool:
        value = run.history[self._best.metric][-1]
        if self._best.update(value):
            self.best_epoch, self._waited = run.epoch, 0
            if self._restore:
                self._params = run.module.get_params()
            return False
        self._waited += 1
        return self.has_ended()

    def has_ended(self) -> bool:
        return self._waited > self._patience

    def on_fit_end(self, run: RunLike) -> None:
        if self._params is not None:
            run.module.set_params(*self._params)
            logging.info(
                "EarlyStopping: parameters are those of epoch %d (%s=%g)",
                self.best_epoch,
                self._best.metric,
                self._best.value,
            )
            self._params = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state that is saved with a run, including the best parameters with `restore_best`."""
        return {
            "best": self._best.value,
            "best_epoch": self.best_epoch,
            "waited": self._waited,
            "params": self._params,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state.

        Args:
            state: result of `state_dict`, possibly of another process.
        """
        self._best.value, self.best_epoch, self._waited = state["best"], state["best_epoch"], state["waited"]
        self._params = state["params"] if self._restore else None
