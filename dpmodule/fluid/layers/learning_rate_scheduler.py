"""Schedules of the learning rate, for `learning_rate` of an optimizer.

Source: Paddle 1.8, `fluid.layers.learning_rate_scheduler`. The first update has step 0, except for `noam_decay`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..._core import lazy
from ...base import ArgumentError
from ...lr_scheduler import LRScheduler
from .layer_helper import check_number


class Schedule(LRScheduler):
    """Learning rate as a function of the step; created by the functions below.

    It has no functions as attributes, so that it can be saved with an optimizer.

    Args:
        layer: name of the function that created it.
        numbers: arguments of its rate at a step.
    """

    def __init__(self, layer: str, **numbers: Any) -> None:
        super().__init__(_RATES[layer](0, **numbers))
        self.layer, self.numbers = layer, numbers

    def __call__(self, num_update: int) -> float:
        """Return the rate for an update, which has the step `num_update` - 1."""
        return _RATES[self.layer](max(num_update - 1, 0), **self.numbers)


def _schedule(layer: str, checked: Mapping[str, Any] | None = None, **given: Any) -> Schedule:
    """Return a schedule after a check of its numbers; those named after steps and epochs are above 0.

    Args:
        checked: further arguments of its rate, which are valid.
    """
    for name, value in given.items():
        check_number(layer, name, value)
        if ("step" in name or name in ("epochs", "d_model")) and value <= 0:
            raise ArgumentError(f"{layer}: {name} is {value!r}, expected a number above 0")
    return Schedule(layer, **(checked or {}), **given)


def _periods(step: int, decay_steps: float, staircase: bool) -> float:
    return step // decay_steps if staircase else step / decay_steps


def _exponential(
    step: int, learning_rate: float, decay_steps: float, decay_rate: float, staircase: bool
) -> float:
    return learning_rate * float(decay_rate ** _periods(step, decay_steps, staircase))


def _natural(
    step: int, learning_rate: float, decay_steps: float, decay_rate: float, staircase: bool
) -> float:
    return learning_rate * math.exp(-decay_rate * _periods(step, decay_steps, staircase))


def _inverse(
    step: int, learning_rate: float, decay_steps: float, decay_rate: float, staircase: bool
) -> float:
    return learning_rate / (1 + decay_rate * _periods(step, decay_steps, staircase))


def _polynomial(
    step: int, learning_rate: float, decay_steps: float, end_learning_rate: float, power: float, cycle: bool
) -> float:
    if cycle:
        decay_steps *= max(math.ceil(step / decay_steps), 1)
    left = 1 - min(step, decay_steps) / decay_steps
    return (learning_rate - end_learning_rate) * float(left**power) + end_learning_rate


def _cosine(step: int, learning_rate: float, step_each_epoch: float, epochs: float) -> float:
    return learning_rate * 0.5 * (math.cos(step // step_each_epoch * math.pi / epochs) + 1)


def _noam(step: int, d_model: float, warmup_steps: float, learning_rate: float) -> float:
    count = step + 1
    return (
        learning_rate / math.sqrt(d_model) * min(1 / math.sqrt(count), count / math.sqrt(warmup_steps) ** 3)
    )


def _piecewise(step: int, boundaries: Sequence[int], values: Sequence[float]) -> float:
    return values[sum(step >= boundary for boundary in boundaries)]


def _warmup(step: int, after: Any, warmup_steps: float, start_lr: float, end_lr: float) -> float:
    if step < warmup_steps:
        return start_lr + (end_lr - start_lr) * step / warmup_steps
    return after(step + 1) if isinstance(after, LRScheduler) else after


_RATES: dict[str, Callable[..., float]] = {
    "cosine_decay": _cosine,
    "exponential_decay": _exponential,
    "inverse_time_decay": _inverse,
    "linear_lr_warmup": _warmup,
    "natural_exp_decay": _natural,
    "noam_decay": _noam,
    "piecewise_decay": _piecewise,
    "polynomial_decay": _polynomial,
}
"""Rate at a step of each function of `layers`."""


def exponential_decay(
    learning_rate: float, decay_steps: int, decay_rate: float, staircase: bool = False
) -> Schedule:
    """Return ``learning_rate * decay_rate ** (step / decay_steps)``.

    Args:
        learning_rate: rate of the first update.
        decay_steps: number of updates of a period.
        decay_rate: factor of the rate after a period.
        staircase: whether the rate changes only at the end of periods.

    Raises:
        ArgumentError: an argument is not a number, or `decay_steps` is not above 0.

    Example:
        >>> schedule = exponential_decay(0.4, decay_steps=10, decay_rate=0.5, staircase=True)
        >>> schedule(10), schedule(11)
        (0.4, 0.2)
    """
    return _decay("exponential_decay", learning_rate, decay_steps, decay_rate, staircase)


def natural_exp_decay(
    learning_rate: float, decay_steps: int, decay_rate: float, staircase: bool = False
) -> Schedule:
    """Return ``learning_rate * exp(-decay_rate * step / decay_steps)``; arguments as of `exponential_decay`."""
    return _decay("natural_exp_decay", learning_rate, decay_steps, decay_rate, staircase)


def inverse_time_decay(
    learning_rate: float, decay_steps: int, decay_rate: float, staircase: bool = False
) -> Schedule:
    """Return ``learning_rate / (1 + decay_rate * step / decay_steps)``; arguments as of `exponential_decay`."""
    return _decay("inverse_time_decay", learning_rate, decay_steps, decay_rate, staircase)


def _decay(layer: str, learning_rate: float, steps: int, rate: float, staircase: bool) -> Schedule:
    checked = {"staircase": bool(staircase)}
    return _schedule(layer, checked, learning_rate=learning_rate, decay_steps=steps, decay_rate=rate)


def polynomial_decay(
    learning_rate: float,
    decay_steps: int,
    end_learning_rate: float = 0.0001,
    power: float = 1.0,
    cycle: bool = False,
) -> Schedule:
    """Return a rate that falls to `end_learning_rate` in `decay_steps` updates.

    Args:
        learning_rate: rate of the first update.
        decay_steps: number of updates until the end.
        end_learning_rate: rate at the end.
        power: power of the remaining share of updates; 1 for a straight line.
        cycle: whether the rate rises at the end and falls again, more slowly; otherwise it stays.

    Raises:
        ArgumentError: an argument is not a number, or `decay_steps` is not above 0.
    """
    return _schedule(
        "polynomial_decay",
        {"cycle": bool(cycle)},
        learning_rate=learning_rate,
        decay_steps=decay_steps,
        end_learning_rate=end_learning_rate,
        power=power,
    )


def cosine_decay(learning_rate: float, step_each_epoch: int, epochs: int) -> Schedule:
    """Return ``learning_rate * (cos(pi * epoch / epochs) + 1) / 2``, which changes after each epoch.

    Args:
        learning_rate: rate of the first epoch.
        step_each_epoch: number of updates of an epoch.
        epochs: number of epochs.

    Raises:
        ArgumentError: an argument is not a number, or a count is not above 0.
    """
    return _schedule(
        "cosine_decay", learning_rate=learning_rate, step_each_epoch=step_each_epoch, epochs=epochs
    )


def noam_decay(d_model: int, warmup_steps: int, learning_rate: float = 1.0) -> Schedule:
    """Return ``learning_rate * d_model ** -0.5 * min(n ** -0.5, n * warmup_steps ** -1.5)`` for the n-th update.

    Args:
        d_model: number of features of the model.
        warmup_steps: number of updates in which the rate rises.
        learning_rate: factor of the rate.

    Raises:
        ArgumentError: an argument is not a number, or `d_model` or `warmup_steps` is not above 0.
    Source: Vaswani et al., "Attention Is All You Need", 2017, section 5.3.
    """
    return _schedule("noam_decay", d_model=d_model, warmup_steps=warmup_steps, learning_rate=learning_rate)


def piecewise_decay(boundaries: Sequence[int], values: Sequence[float]) -> Schedule:
    """Return a rate that changes at given steps.

    Args:
        boundaries: increasing steps at which the rate changes.
        values: the rates, one more than `boundaries`.

    Raises:
        ArgumentError: an argument is not a list of numbers, `boundaries` do not increase, or the lengths do not match.
    """
    for name, given in (("boundaries", boundaries), ("values", values)):
        if not isinstance(given, (list, tuple)):
            raise ArgumentError(f"piecewise_decay: {name} is {given!r}, expected a list of numbers")
        for value in given:
            check_number("piecewise_decay", name, value)
    steps, rates = list(boundaries), list(values)
    if len(rates) != len(steps) + 1:
        raise ArgumentError(
            f"piecewise_decay: values has {len(rates)} rates, expected {len(steps) + 1}, one more than boundaries"
        )
    if any(first >= second for first, second in zip(steps, steps[1:])):
        raise ArgumentError(f"piecewise_decay: boundaries is {steps}, expected increasing steps")
    return Schedule("piecewise_decay", boundaries=steps, values=rates)


def linear_lr_warmup(learning_rate: Any, warmup_steps: int, start_lr: float, end_lr: float) -> Schedule:
    """Return a rate that rises on a straight line in the first updates.

    Args:
        learning_rate: the rate after the rise, a number or a schedule.
        warmup_steps: number of updates of the rise.
        start_lr: rate of the first update.
        end_lr: rate that the rise ends at.

    Raises:
        ArgumentError: an argument is not a number, or `warmup_steps` is not above 0.
    """
    if not isinstance(learning_rate, LRScheduler):
        check_number("linear_lr_warmup", "learning_rate", learning_rate)
    return _schedule(
        "linear_lr_warmup",
        {"after": learning_rate},
        warmup_steps=warmup_steps,
        start_lr=start_lr,
        end_lr=end_lr,
    )


__all__ = lazy.own_names(vars())
lazy.publish(__name__, __all__)
