"""Custom metrics: functions of NumPy arrays, and losses computed by the network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import torch

from ..base import StateError
from .base import Arrays, EvalMetric, Names, as_list, check_label_shapes, register, tensor_of

Feval = Callable[[Any, Any], Any]


@register
class Loss(EvalMetric):
    """Mean of the outputs, for networks that end in a loss.

    Args:
        name: name of the value.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.
    Source: MXNet 1.9.1 `Loss`.
    """

    def __init__(self, name: str = "loss", output_names: Names = None, label_names: Names = None) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def update(self, labels: Arrays, preds: Arrays) -> None:
        for pred in as_list(preds):
            losses = tensor_of(pred)
            self.record(losses.sum(dtype=torch.float64), losses.numel())


@register
class Torch(Loss):
    """`Loss` under its name for Torch criteria.

    Args:
        name: name of the value.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.
    Source: MXNet 1.9.1 `Torch`.
    """

    def __init__(self, name: str = "torch", output_names: Names = None, label_names: Names = None) -> None:
        super().__init__(name, output_names, label_names)


@register
class Caffe(Loss):
    """`Loss` under its name for Caffe losses.

    Args:
        name: name of the value.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.
    Source: MXNet 1.9.1 `Caffe`.
    """

    def __init__(self, name: str = "caffe", output_names: Names = None, label_names: Names = None) -> None:
        super().__init__(name, output_names, label_names)


@register
class CustomMetric(EvalMetric):
    """A function of label and prediction, averaged over batches.

    Args:
        feval: called with label and prediction as NumPy arrays; returns a number, or (sum, count).
        name: name of the value; by default that of the function.
        allow_extra_outputs: ignore outputs in excess of the labels.
        output_names: see `EvalMetric`.
        label_names: see `EvalMetric`.

    Example:
        >>> metric = CustomMetric(lambda label, pred: abs(label - pred).max(), name="worst")

    Source: MXNet 1.9.1 `CustomMetric`.
    """

    def __init__(
        self,
        feval: Feval,
        name: str | None = None,
        allow_extra_outputs: bool = False,
        output_names: Names = None,
        label_names: Names = None,
    ) -> None:
        if name is None:
            name = getattr(feval, "__name__", type(feval).__name__)
            name = f"custom({name})" if "<" in name else name
        super().__init__(
            name,
            output_names,
            label_names,
            feval=feval,
            allow_extra_outputs=allow_extra_outputs,
            has_global_stats=True,
        )
        self._feval = feval
        self._allow_extra_outputs = allow_extra_outputs

    def update(self, labels: Arrays, preds: Arrays) -> None:
        labels, preds = as_list(labels), as_list(preds)
        if not self._allow_extra_outputs:
            check_label_shapes(labels, preds)
        for label, pred in zip(labels, preds):
            found = self._feval(_host(label), _host(pred))
            total, count = found if isinstance(found, tuple) else (found, 1)
            self._count(total, count)

    def get_config(self) -> dict[str, Any]:
        raise _NoConfig(f"{self.name} is a function and has no configuration")


class _NoConfig(StateError, NotImplementedError):
    """A metric without a configuration; also a NotImplementedError, as in MXNet."""


def _host(value: Arrays) -> numpy.ndarray[Any, Any]:
    found: numpy.ndarray[Any, Any] = tensor_of(value).cpu().numpy()
    return found


def np(numpy_feval: Feval, name: str | None = None, allow_extra_outputs: bool = False) -> CustomMetric:
    """Create a metric from a function of NumPy arrays.

    Args:
        numpy_feval: called with label and prediction; returns a number, or (sum, count).
        name: name of the value; by default that of the function.
        allow_extra_outputs: ignore outputs in excess of the labels.
    Source: MXNet 1.9.1 `metric.np`.
    """
    return CustomMetric(numpy_feval, name, allow_extra_outputs)
