"""Learning-rate schedules: functions from the number of updates done to a learning rate.

Source: MXNet 1.9.1 `mx.lr_scheduler`; the values are compared with recorded ones.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._core import lazy
from .base import ArgumentError

_WARMUP_MODES = ("linear", "constant")


def _check_count(kind: str, name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ArgumentError(f"{kind}: {name} is {value!r}, expected an integer number of updates")
    if value < least:
        raise ArgumentError(f"{kind}: {name} is {value}, expected at least {least}")


def _check_factor(kind: str, factor: float) -> None:
    if factor > 1.0:
        raise ArgumentError(f"{kind}: factor is {factor}, expected at most 1 (the rate would grow)")


class LRScheduler:
    """Base class of schedules, with the base rate and the warm-up.

    Args:
        base_lr: learning rate that the schedule starts from.
        warmup_steps: number of updates of the warm-up, before the schedule.
        warmup_begin_lr: rate of the first update of the warm-up, at most `base_lr`.
        warmup_mode: "linear" rises from `warmup_begin_lr` to `base_lr`, "constant" stays at `warmup_begin_lr`.

    Raises:
        ArgumentError: a negative or fractional count, an unknown mode, or a warm-up that starts above `base_lr`.
    """

    def __init__(
        self,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        kind = type(self).__name__
        _check_count(kind, "warmup_steps", warmup_steps, 0)
        if warmup_begin_lr > base_lr:
            raise ArgumentError(
                f"{kind}: warmup_begin_lr is {warmup_begin_lr}, expected at most base_lr {base_lr}"
            )
        if warmup_mode not in _WARMUP_MODES:
            raise ArgumentError(f'{kind}: warmup_mode is {warmup_mode!r}, expected "linear" or "constant"')
        self.base_lr = base_lr
        self.warmup_steps = warmup_steps
        self.warmup_begin_lr = warmup_begin_lr
        self.warmup_final_lr = base_lr
        self.warmup_mode = warmup_mode

    def get_warmup_lr(self, num_update: int) -> float:
        """Return the rate inside the warm-up.

        Args:
            num_update: number of updates made, below `warmup_steps`.

        Raises:
            ArgumentError: the warm-up is over at `num_update`.
        """
        if num_update >= self.warmup_steps:
            raise ArgumentError(
                f"get_warmup_lr: num_update is {num_update}, the warm-up ends at {self.warmup_steps}"
            )
        if self.warmup_mode == "constant":
            return self.warmup_begin_lr
        rise = (self.warmup_final_lr - self.warmup_begin_lr) * float(num_update) / float(self.warmup_steps)
        return self.warmup_begin_lr + rise

    def __call__(self, num_update: int) -> float:
        """Return the rate for an update.

        Args:
            num_update: largest number of updates that any parameter has received.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement __call__")


class FactorScheduler(LRScheduler):
    """Multiply the rate by a factor every `step` updates.

    Args:
        step: number of updates between two changes.
        factor: factor of the rate, at most 1.
        stop_factor_lr: the rate never falls below this.
        base_lr: see `LRScheduler`, as are the warm-up arguments.
        warmup_steps: number of updates of the warm-up.
        warmup_mode: "linear" or "constant".

    Raises:
        ArgumentError: `step` is below 1, or `factor` above 1.

    Example:
        >>> schedule = FactorScheduler(step=10, factor=0.5, base_lr=0.4)
        >>> schedule(10), schedule(11)
        (0.4, 0.2)
    """

    def __init__(
        self,
        step: int,
        factor: float = 1,
        stop_factor_lr: float = 1e-8,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        if step < 1:
            raise ArgumentError(f"FactorScheduler: step is {step}, expected at least 1")
        _check_factor("FactorScheduler", factor)
        self.step = step
        self.factor = factor
        self.stop_factor_lr = stop_factor_lr
        self.count: float = 0

    def __call__(self, num_update: int) -> float:
        """Return the rate for an update; a later call never returns an earlier rate."""
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        while num_update > self.count + self.step:
            self.count += self.step
            self.base_lr = max(self.base_lr * self.factor, self.stop_factor_lr)
            logging.info("Update[%d]: Change learning rate to %0.5e", num_update, self.base_lr)
        return self.base_lr


class MultiFactorScheduler(LRScheduler):
    """Multiply the rate by a factor at given updates.

    Args:
        step: increasing numbers of updates after which the rate changes.
        factor: factor of the rate, at most 1.
        base_lr: see `LRScheduler`, as are the warm-up arguments.
        warmup_steps: number of updates of the warm-up.
        warmup_mode: "linear" or "constant".

    Raises:
        ArgumentError: `step` is empty, not increasing or holds a number below 1, or `factor` is above 1.
    """

    def __init__(
        self,
        step: Sequence[int],
        factor: float = 1,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        if not isinstance(step, (list, tuple)) or not step:
            raise ArgumentError(
                f"MultiFactorScheduler: step is {step!r}, expected a list of numbers of updates"
            )
        if step[0] < 1 or any(a >= b for a, b in zip(step[:-1], step[1:], strict=True)):
            raise ArgumentError(f"MultiFactorScheduler: step is {step!r}, expected increasing numbers from 1")
        _check_factor("MultiFactorScheduler", factor)
        self.step = list(step)
        self.cur_step_ind = 0
        self.factor = factor
        self.count = 0

    def __call__(self, num_update: int) -> float:
        """Return the rate for an update; a later call never returns an earlier rate."""
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        while self.cur_step_ind < len(self.step) and num_update > self.step[self.cur_step_ind]:
            self.count = self.step[self.cur_step_ind]
            self.cur_step_ind += 1
            self.base_lr *= self.factor
            logging.info("Update[%d]: Change learning rate to %0.5e", num_update, self.base_lr)
        return self.base_lr


class _Decay(LRScheduler):
    """Base class of schedules that fall from the base rate after the warm-up to `final_lr` at `max_update`."""

    def __init__(
        self,
        max_update: int,
        base_lr: float,
        final_lr: float,
        warmup_steps: int,
        warmup_begin_lr: float,
        warmup_mode: str,
    ) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        kind = type(self).__name__
        _check_count(kind, "max_update", max_update, 1)
        if warmup_steps >= max_update:
            raise ArgumentError(
                f"{kind}: warmup_steps is {warmup_steps}, expected less than max_update {max_update}"
            )
        self.base_lr_orig = base_lr
        self.max_update = max_update
        self.final_lr = final_lr
        self.max_steps = max_update - warmup_steps

    def _share(self, done: float) -> float:
        """Return the weight of the base rate, from 1 to 0, after the share `done` of the updates."""
        raise NotImplementedError

    def __call__(self, num_update: int) -> float:
        """Return the rate for an update."""
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        if num_update <= self.max_update:
            done = float(num_update - self.warmup_steps) / float(self.max_steps)
            self.base_lr = self.final_lr + (self.base_lr_orig - self.final_lr) * self._share(done)
        return self.base_lr


class PolyScheduler(_Decay):
    """Fall from the base rate to a final rate along a power of the remaining updates.

    Args:
        max_update: number of updates at which the final rate is reached.
        base_lr: see `LRScheduler`, as are the warm-up arguments.
        warmup_steps: number of updates of the warm-up, fewer than `max_update`.
        warmup_mode: "linear" or "constant".

    Raises:
        ArgumentError: `max_update` is below 1, or inside the warm-up.
    """

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        pwr: float = 2,
        final_lr: float = 0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(max_update, base_lr, final_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        self.power = pwr

    def _share(self, done: float) -> float:
        return math.pow(1.0 - done, self.power)


class CosineScheduler(_Decay):
    """Fall from the base rate to a final rate along half a cosine wave.

    Args:
        max_update: number of updates at which the final rate is reached.
        base_lr: see `LRScheduler`, as are the warm-up arguments.
        warmup_steps: number of updates of the warm-up, fewer than `max_update`.
        warmup_mode: "linear" or "constant".

    Raises:
        ArgumentError: `max_update` is below 1, or inside the warm-up.

    Source: Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", 2016, without restarts.
    """

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        final_lr: float = 0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(max_update, base_lr, final_lr, warmup_steps, warmup_begin_lr, warmup_mode)

    def _share(self, done: float) -> float:
        return (1.0 + math.cos(math.pi * done)) / 2.0


class OneCycle(LRScheduler):
    """Raise the rate from a small one to the largest, and lower it to almost nothing.

    Args:
        total_updates: number of updates of the whole training; the rate stays at its last value after them.
        warmup_share: share of the updates in which the rate rises.
        anneal: "cos" for halves of cosine waves, "linear" for straight lines.
        div_factor: the first rate is ``max_lr / div_factor``.
        final_div_factor: the last rate is the first one divided by this.

    Raises:
        ArgumentError: a number is out of range, or `anneal` is neither.

    Example:
        >>> schedule = OneCycle(max_lr=1.0, total_updates=11, warmup_share=0.5, anneal="linear")
        >>> [round(schedule(n), 2) for n in (1, 6, 11)]
        [0.04, 0.91, 0.0]

    Source: Smith and Topin, "Super-Convergence", 2018; the rate of update n is that of torch's `OneCycleLR` after
    n - 1 steps.
    """

    def __init__(
        self,
        max_lr: float,
        total_updates: int,
        warmup_share: float = 0.3,
        anneal: str = "cos",
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
    ) -> None:
        super().__init__(max_lr)
        _check_count("OneCycle", "total_updates", total_updates, 2)
        if not 0 <= warmup_share <= 1:
            raise ArgumentError(f"OneCycle: warmup_share is {warmup_share!r}, expected a number from 0 to 1")
        if anneal not in ("cos", "linear"):
            raise ArgumentError(f'OneCycle: anneal is {anneal!r}, expected "cos" or "linear"')
        self.max_lr = max_lr
        self.total_updates = total_updates
        self.anneal = anneal
        self._first = max_lr / div_factor
        self._last = self._first / final_div_factor
        self._top = warmup_share * total_updates - 1

    def __call__(self, num_update: int) -> float:
        """Return the rate for an update, the first being number 1."""
        step, end = min(max(num_update - 1, 0), self.total_updates - 1), self.total_updates - 1
        if step <= self._top:
            return self._between(self._first, self.max_lr, step / self._top if self._top > 0 else 1.0)
        return self._between(self.max_lr, self._last, (step - self._top) / (end - self._top))

    def _between(self, start: float, end: float, done: float) -> float:
        if self.anneal == "linear":
            return start + (end - start) * done
        return end + (start - end) / 2.0 * (1.0 + math.cos(math.pi * done))


class ReduceOnPlateau(LRScheduler):
    """Multiply the rate by a factor when a metric stops improving.

    `Module.fit` passes the metric after each epoch; your own loop calls `step`.

    Args:
        metric: name of the metric in the history of `fit`, such as "validation-accuracy".
        factor: factor of the rate, below 1.
        patience: number of epochs without improvement before the rate changes.
        mode: "min" if smaller is better, "max" if larger is.
        threshold: least improvement, as a share of the best value.
        cooldown: number of epochs after a change that are not counted.
        min_lr: the rate never falls below this.
        base_lr: the first rate; an optimizer sets it to its own.

    Raises:
        ArgumentError: a number is out of range, or `mode` is neither.

    Example:
        >>> schedule = ReduceOnPlateau("validation-accuracy", factor=0.5, patience=0, mode="max", base_lr=0.4)
        >>> [schedule.step(value) for value in (0.5, 0.6, 0.6)]
        [0.4, 0.4, 0.2]

    Source: torch's `ReduceLROnPlateau` with a relative threshold.
    """

    def __init__(
        self,
        metric: str,
        factor: float = 0.1,
        patience: int = 10,
        mode: str = "min",
        threshold: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
        base_lr: float = 0.01,
    ) -> None:
        super().__init__(base_lr)
        if not 0 < factor < 1:
            raise ArgumentError(f"ReduceOnPlateau: factor is {factor!r}, expected a number between 0 and 1")
        if mode not in ("min", "max"):
            raise ArgumentError(f'ReduceOnPlateau: mode is {mode!r}, expected "min" or "max"')
        _check_count("ReduceOnPlateau", "patience", patience, 0)
        _check_count("ReduceOnPlateau", "cooldown", cooldown, 0)
        self.metric = metric
        self.factor = factor
        self.patience = patience
        self.mode = mode
        self.threshold = threshold
        self.cooldown = cooldown
        self.min_lr = min_lr
        self.best = math.inf if mode == "min" else -math.inf
        self.waited = 0
        self.cooling = 0

    def __call__(self, num_update: int) -> float:
        """Return the rate for an update: the same for all updates until the metric changes it."""
        return self.base_lr

    def step(self, value: float) -> float:
        """Record the metric of an epoch, and return the rate of the next epoch."""
        if self._is_better(value):
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        if self.cooling:
            self.cooling -= 1
            self.waited = 0
        if self.waited > self.patience:
            self.base_lr = max(self.base_lr * self.factor, self.min_lr)
            self.cooling, self.waited = self.cooldown, 0
            logging.info("%s has not improved: change learning rate to %0.5e", self.metric, self.base_lr)
        return self.base_lr

    def _is_better(self, value: float) -> bool:
        if self.mode == "min":
            return value < self.best * (1.0 - self.threshold)
        return value > self.best * (1.0 + self.threshold)

    def on_fit_begin(self, run: Any) -> None:
        """Check, before a `fit`, that the metric will be measured.

        Args:
            run: the training.

        Raises:
            ArgumentError: no metric of that name will be measured.
        """
        run.check_measured(self.metric)

    def on_epoch_end(self, run: Any) -> None:
        """Record the metric of an epoch of `fit`.

        Args:
            run: the training whose `history` has the metric.

        Raises:
            ArgumentError: no metric of that name is measured.
        """
        self.step(run.history[self.metric][-1])


__all__ = lazy.own_names(vars())
lazy.publish(__name__, __all__)
