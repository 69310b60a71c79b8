"""Metrics of other libraries, such as TorchMetrics: objects with ``update``, ``compute`` and ``reset``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .base import Arrays, EvalMetric, tensor_of

_METHODS = ("update", "compute", "reset")


def is_outside(metric: object) -> bool:
    """Say whether an object is a metric of the form that TorchMetrics has."""
    return not isinstance(metric, type) and all(callable(getattr(metric, name, None)) for name in _METHODS)


class OutsideMetric(EvalMetric):
    """A metric of another library, called as ``update(preds, target)``, ``compute()`` and ``reset()``.

    It gets torch tensors on the device of the outputs. Labels that number classes, which have one axis less than the
    outputs, come as integers, as such libraries want them.

    Args:
        metric: the other library's object; what it returns from ``compute`` is a number, or a dict of numbers by name.
        name: what the value is called; None takes the name of the object's class in small letters.

    Example:
        >>> class Largest:
        ...     def reset(self): self.found = 0.0
        ...     def update(self, preds, target): self.found = max(self.found, float((preds - target).abs().max()))
        ...     def compute(self): return self.found
        >>> metric = mx.metric.create(Largest())
        >>> metric.update([mx.nd.array([1.0])], [mx.nd.array([3.0])])
        >>> metric.get()
        ('largest', 2.0)
    """

    def __init__(
        self,
        metric: Any,
        name: str | None = None,
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> None:
        self._metric = metric
        self._batches = 0
        super().__init__(name or type(metric).__name__.lower(), output_names, label_names)

    def update(self, labels: Arrays, preds: Arrays) -> None:
        labels = labels if isinstance(labels, (list, tuple)) else [labels]
        preds = preds if isinstance(preds, (list, tuple)) else [preds]
        for label, pred in zip(labels, preds):
            found = tensor_of(pred).clone()  # such objects may keep it, and the next batch overwrites it
            target = tensor_of(label).to(found.device, copy=True)
            if target.is_floating_point() and target.dim() == found.dim() - 1:
                target = target.long()
            if isinstance(self._metric, torch.nn.Module):  # TorchMetrics' sums have a device
                self._metric.to(found.device)
            self._metric.update(found, target)
            self._batches += 1

    def get(self) -> tuple[Any, Any]:
        if not self._batches:
            return self.name, math.nan
        found = self._metric.compute()
        if isinstance(found, Mapping):
            return list(found), [_number(value) for value in found.values()]
        return self.name, _number(found)

    def reset(self) -> None:
        super().reset()
        self._metric.reset()
        self._batches = 0

    def reset_local(self) -> None:
        """Go on: the object has no sums beside those of the epoch."""


def _number(value: object) -> Any:
    """Return a Python number for a tensor or array of one element, a list for several."""
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
        return value.tolist()
    return value
