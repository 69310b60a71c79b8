"""`EarlyStopping`: end training when a metric gets no better."""

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
        mode: "max" if larger is better, "min" if smaller is; "auto" tells by the name: losses, errors, entropies and
            perplexities are to get smaller.
        min_delta: by how much a value has to be better than the best one.

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
        """Return a number that is smaller the better a value is."""
        if math.isnan(value):
            return math.inf
        return value if self._smaller else -value

    def update(self, value: float) -> bool:
        """Take a value, and say whether it is the best so far."""
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
    """End training after so many epochs in which a metric got no better.

    Args:
        metric: its name in the history of `fit`, such as "validation-accuracy" or "train-cross-entropy".
        patience: how many epochs without a better value are let pass.
        mode: "max" if larger is better, "min" if smaller is, "auto" tells by the name.
        min_delta: by how much a value has to be better than the best one.
        restore_best: give the module the parameters of the best epoch when training is over.

    Attributes:
        best_epoch: number of the epoch with the best value; None before there is one.

    Raises:
        ArgumentError: `patience` is below 0, an unknown mode, or a negative `min_delta`; in `fit`: nothing of that name
            is measured, as far as possible before the first batch.

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
        """Return what is to be saved with a run; with `restore_best` these are the best parameters, too."""
        return {
            "best": self._best.value,
            "best_epoch": self.best_epoch,
            "waited": self._waited,
            "params": self._params,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned.

        Args:
            state: what `state_dict` of another one returned, which may have been in another process.
        """
        self._best.value, self.best_epoch, self._waited = state["best"], state["best_epoch"], state["waited"]
        self._params = state["params"] if self._restore else None
