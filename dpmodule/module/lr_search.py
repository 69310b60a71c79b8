"""`find_rate`: try growing learning rates on a few batches, and see where the loss falls."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import metric as metrics
from .._devices import generators
from ..base import ArgumentError, StateError
from ..initializer import Uniform
from ..symbol import Symbol
from .fit import update_metric
from .history import new_axes
from .training_data import bindable, labelled_iter, named_batches

if TYPE_CHECKING:
    from ..io import DataIter
    from ..metric import EvalMetric
    from ..metric.composite import MetricLike
    from .types import DataLike, InitializerLike, OptimizerLike, OptimizerParams

_WINDOW = 11
"""How many losses around a rate are averaged: a mean of former ones alone would lag behind the rates."""

_DIVERGED = 4.0
"""The search ends where the mean of the last losses is so many times the smallest such mean."""

_SHARE_OF_FALL = 0.9
"""Share of the whole fall of the loss that is behind it at the suggestion: at the minimum itself rates hurt already,
and behind it there may be others by chance."""

_LOSSES = {
    "SoftmaxOutput": "ce",
    "LinearRegressionOutput": "mse",
    "LogisticRegressionOutput": "mse",
    "MAERegressionOutput": "mae",
    "MakeLoss": "loss",
    "make_loss": "loss",
}


@dataclass(frozen=True, repr=False)
class RateSearch:
    """What `Module.lr_find` found.

    Attributes:
        rates: the learning rates that were tried, in ascending order.
        suggestion: the rate at which the loss has nearly come to its minimum.
    """

    rates: list[float]
    losses: list[float]
    suggestion: float

    def __repr__(self) -> str:
        return f"<RateSearch: {len(self.rates)} rates up to {self.rates[-1]:.3g}, suggestion {self.suggestion:.3g}>"

    def plot(self, ax: Any = None) -> Any:
        """Draw the losses over the rates, and return Matplotlib's axes.

        Args:
            ax: axes to draw into; None makes a figure as pyplot does, which a notebook shows.
        """
        ax = new_axes("RateSearch.plot") if ax is None else ax
        ax.plot(self.rates, self.losses)
        ax.axvline(self.suggestion, linestyle=":", color="black", label=f"suggestion {self.suggestion:.2g}")
        ax.set_xscale("log")
        ax.set_xlabel("learning rate")
        ax.set_ylabel("loss")
        ax.legend()
        return ax


def find_rate(
    module: Any,
    train_data: DataLike,
    start_lr: float,
    end_lr: float,
    num_batches: int,
    optimizer: OptimizerLike,
    optimizer_params: OptimizerParams | None,
    initializer: InitializerLike,
    metric: MetricLike | None,
) -> RateSearch:
    """Try learning rates on a module; see `Module.lr_find`.

    Args:
        module: what is trained; it is not bound, and nobody needs it afterwards.
    """
    if not 0 < start_lr < end_lr:
        raise ArgumentError(
            f"lr_find: start_lr is {start_lr}, end_lr is {end_lr}; expected 0 < start_lr < end_lr"
        )
    if num_batches < 2 * _WINDOW:
        raise ArgumentError(f"lr_find: num_batches is {num_batches}, expected at least {2 * _WINDOW}")
    loss = metrics.create(_usual_loss(module.symbol) if metric is None else metric)
    random = generators.state_dict()
    data = labelled_iter(module, train_data, "lr_find")
    position = _position(data)
    try:
        module.bind(bindable(module, data.provide_data), data.provide_label)
        module.init_params(Uniform(0.01) if initializer is None else initializer)
        module.init_optimizer(optimizer=optimizer, optimizer_params=optimizer_params or {})
        return _search(module, data, list(np.geomspace(start_lr, end_lr, num_batches)), loss)
    finally:
        data.reset()
        if position is not None:
            data.load_state_dict(position)
        generators.load_state_dict(random)


def _position(data: DataIter) -> Any:
    """Return where an iterator stands, None if it does not say; then it only begins anew."""
    try:
        return deepcopy(data.state_dict())
    except (NotImplementedError, AttributeError):
        return None


def _usual_loss(symbol: Symbol | None) -> str:
    """Return the metric that says what a network's first output learns."""
    node = symbol.graph.heads[0][0] if isinstance(symbol, Symbol) else None
    name = None if node is None or node.op is None else node.op.name
    if name not in _LOSSES:
        raise ArgumentError(
            f"lr_find: the network ends in {name}, which is no loss; give metric=, such as 'mse'"
        )
    return _LOSSES[name]


def _endless_batches(module: Any, data: DataIter) -> Iterator[Any]:
    """Yield batches, epoch after epoch."""
    while True:
        data.reset()
        found = False
        for batch in named_batches(module, data):
            found = True
            yield batch
        if not found:
            raise StateError("lr_find: train_data gave no batch")


def _search(module: Any, data: DataIter, rates: list[float], loss: EvalMetric) -> RateSearch:
    updates = module.updates.optimizer
    updates.lr_scheduler = None
    found: list[float] = []
    least = math.inf
    for rate, batch in zip(rates, _endless_batches(module, data)):
        updates.set_learning_rate(float(rate))
        module.forward_backward(batch)
        loss.reset()
        update_metric(module, loss, batch, False)
        found.append(float(loss.get_name_value()[0][1]))
        last = math.fsum(found[-_WINDOW:]) / len(found[-_WINDOW:])
        least = min(least, last)
        if not math.isfinite(found[-1]) or (len(found) >= _WINDOW and last > _DIVERGED * least):
            found.pop()
            break
        module.update()
    if len(found) < _WINDOW:
        raise StateError(
            f"lr_find: the loss grew without end within {len(found) + 1} batches; take a smaller start_lr, or look "
            "at the data"
        )
    losses = _smooth(found)
    tried = [float(rate) for rate in rates[: len(found)]]
    enough = losses[0] - _SHARE_OF_FALL * (losses[0] - min(losses))
    return RateSearch(tried, losses, next(rate for rate, loss in zip(tried, losses) if loss <= enough))


def _smooth(losses: list[float]) -> list[float]:
    """Return the mean of each loss and those around it; at the ends there are fewer."""
    half = _WINDOW // 2
    parts = [losses[max(0, i - half) : i + half + 1] for i in range(len(losses))]
    return [math.fsum(part) / len(part) for part in parts]
