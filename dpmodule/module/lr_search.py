"""`find_rate`: a learning-rate range test on a few batches."""

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
"""Number of losses averaged around a rate; the window is centered, as a mean of earlier losses would lag."""

_DIVERGED = 4.0
"""The search ends when the mean of the last losses exceeds the smallest such mean by this factor."""

_SHARE_OF_DECREASE = 0.9
"""Share of the total decrease of the loss at the suggested rate: rates at the minimum itself are already too large,
and later minima may be random."""

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
    """Result of `Module.lr_find`.

    Attributes:
        rates: the tried learning rates, in ascending order.
        suggestion: the rate at which the loss is close to its minimum.
    """

    rates: list[float]
    losses: list[float]
    suggestion: float

    def __repr__(self) -> str:
        return f"<RateSearch: {len(self.rates)} rates up to {self.rates[-1]:.3g}, suggestion {self.suggestion:.3g}>"

    def plot(self, ax: Any = None) -> Any:
        """Plot the losses over the rates, and return the Matplotlib axes.

        Args:
            ax: axes to draw into; None makes a pyplot figure, which a notebook shows.
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
        module: an unbound module that is not used afterwards.
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
    """Return the state of an iterator; None if it has none, so that it can only be reset."""
    try:
        return deepcopy(data.state_dict())
    except (NotImplementedError, AttributeError):
        return None


def _usual_loss(symbol: Symbol | None) -> str:
    """Return the metric for the loss of a network's first output."""
    node = symbol.graph.heads[0][0] if isinstance(symbol, Symbol) else None
    name = None if node is None or node.op is None else node.op.name
    if name not in _LOSSES:
        raise ArgumentError(
            f"lr_find: the network ends in {name}, which is not a loss; pass metric=, such as 'mse'"
        )
    return _LOSSES[name]


def _endless_batches(module: Any, data: DataIter) -> Iterator[Any]:
    """Yield batches, epoch after epoch."""
    while True:
        data.reset()
        has_batch = False
        for batch in named_batches(module, data):
            has_batch = True
            yield batch
        if not has_batch:
            raise StateError("lr_find: train_data has no batch")


def _search(module: Any, data: DataIter, rates: list[float], loss: EvalMetric) -> RateSearch:
    optimizer = module.updates.optimizer
    optimizer.lr_scheduler = None
    raw_losses: list[float] = []
    least = math.inf
    for rate, batch in zip(rates, _endless_batches(module, data)):
        optimizer.set_learning_rate(float(rate))
        module.forward_backward(batch)
        loss.reset()
        update_metric(module, loss, batch, False)
        raw_losses.append(float(loss.get_name_value()[0][1]))
        last = math.fsum(raw_losses[-_WINDOW:]) / len(raw_losses[-_WINDOW:])
        least = min(least, last)
        if not math.isfinite(raw_losses[-1]) or (len(raw_losses) >= _WINDOW and last > _DIVERGED * least):
            raw_losses.pop()
            break
        module.update()
    if len(raw_losses) < _WINDOW:
        raise StateError(
            f"lr_find: the loss diverged within {len(raw_losses) + 1} batches; "
            "use a smaller start_lr, or check the data"
        )
    losses = _smooth(raw_losses)
    tried = [float(rate) for rate in rates[: len(raw_losses)]]
    target = losses[0] - _SHARE_OF_DECREASE * (losses[0] - min(losses))
    return RateSearch(tried, losses, next(rate for rate, loss in zip(tried, losses) if loss <= target))


def _smooth(losses: list[float]) -> list[float]:
    """Return the centered moving average of the losses, over fewer losses at the ends."""
    half = _WINDOW // 2
    parts = [losses[max(0, i - half) : i + half + 1] for i in range(len(losses))]
    return [math.fsum(part) / len(part) for part in parts]
