"""Composite metrics, metrics of other libraries, and `create`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import torch

from ..base import ArgumentError
from .base import Arrays, EvalMetric, Names, alias, as_list, registry, tensor_of

if TYPE_CHECKING:
    from typing_extensions import Self


_METHODS = ("update", "compute", "reset")


def is_external(metric: object) -> bool:
    """Return True if an object has the interface of TorchMetrics."""
    return not isinstance(metric, type) and all(callable(getattr(metric, name, None)) for name in _METHODS)


class ExternalMetric(EvalMetric):
    """A metric of another library, called as ``update(preds, target)``, ``compute()`` and ``reset()``.

    It receives torch tensors on the device of the outputs. Class labels, with one axis less than the outputs, are
    converted to integers.

    Args:
        metric: the other library's object; its ``compute`` returns a number or a dict of numbers by name.
        name: name of the value; by default the lower-case class name of the object.

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
        labels, preds = as_list(labels), as_list(preds)
        for label, pred in zip(labels, preds):
            prediction = tensor_of(
                pred
            ).clone()  # a copy, since the object may keep it and the next batch overwrites it
            target = tensor_of(label).to(prediction.device, copy=True)
            if target.is_floating_point() and target.dim() == prediction.dim() - 1:
                target = target.long()
            if isinstance(self._metric, torch.nn.Module):  # TorchMetrics' sums are on a device
                self._metric.to(prediction.device)
            self._metric.update(prediction, target)
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
        """Do nothing, since the object has only global sums."""


def _number(value: object) -> Any:
    """Convert a tensor or array to a Python number or list."""
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
        return value.tolist()
    return value


MetricLike: TypeAlias = (
    "EvalMetric | type[EvalMetric] | str | Callable[..., Any] | ExternalMetricLike | Sequence[Any]"
)
"""A metric: an `EvalMetric`, its name, a function of label and prediction, a TorchMetrics object, or a list."""


class ExternalMetricLike(Protocol):
    """A metric of another library."""

    def update(self, preds: Any, target: Any, /) -> Any:
        """Add a batch."""

    def compute(self) -> Any:
        """Return the value."""

    def reset(self) -> Any:
        """Discard all batches."""


def create(metric: MetricLike, *args: Any, **kwargs: Any) -> EvalMetric:
    """Create a metric.

    Args:
        metric: a registered name ("acc"), a function of label and prediction, a metric class, a metric (returned
            unchanged), an object with ``update(preds, target)``, ``compute()`` and ``reset()`` as in TorchMetrics, or a
            list of these for a composite.

    Raises:
        ArgumentError: the name is not registered.

    Example:
        >>> create(["acc", "ce"]).get()
        (['accuracy', 'cross-entropy'], [nan, nan])
    """
    if isinstance(metric, type) and issubclass(metric, EvalMetric):
        return metric(*args, **kwargs)
    if is_external(metric) and not isinstance(metric, EvalMetric):
        return ExternalMetric(metric, *args, **kwargs)
    if callable(metric) and not isinstance(metric, EvalMetric):
        from .custom import CustomMetric

        return CustomMetric(metric, *args, **kwargs)
    if isinstance(metric, (list, tuple)):
        composite = CompositeEvalMetric()
        for part in metric:
            composite.add(create(part, *args, **kwargs))
        return composite
    return registry.create(metric, *args, **kwargs)


@alias("composite")
class CompositeEvalMetric(EvalMetric):
    """Several metrics of the same batches.

    Args:
        metrics: metrics, or arguments of `create`.
        name: name of the composite.
        output_names: if given, `update_dict` passes only these outputs on.
        label_names: if given, `update_dict` passes only these labels on.
    Source: MXNet 1.9.1 `CompositeEvalMetric`.
    """

    def __init__(
        self,
        metrics: Sequence[Any] | None = None,
        name: str = "composite",
        output_names: Names = None,
        label_names: Names = None,
    ) -> None:
        self.metrics: list[EvalMetric] = [create(metric) for metric in metrics or ()]
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def add(self, metric: MetricLike) -> None:
        """Add a metric.

        Args:
            metric: a metric, or an argument of `create`.
        """
        self.metrics.append(create(metric))

    def get_metric(self, index: int) -> EvalMetric:
        """Return a metric by position.

        Args:
            index: from 0; negative ones count from the end.

        Raises:
            ArgumentError: the index is out of range.
        """
        if not -len(self.metrics) <= index < len(self.metrics):
            raise ArgumentError(f"get_metric: index is {index}, expected less than {len(self.metrics)}")
        return self.metrics[index]

    def update_dict(self, labels: Mapping[str, Any], preds: Mapping[str, Any]) -> None:
        """Add a batch given by name; each metric selects its own labels and outputs.

        Args:
            labels: arrays of (N, ...) by name.
            preds: outputs of (N, ...) by name.

        Raises:
            KeyError: a name that a metric needs is missing.
        """
        if self.label_names is not None:
            labels = {name: value for name, value in labels.items() if name in self.label_names}
        if self.output_names is not None:
            preds = {name: value for name, value in preds.items() if name in self.output_names}
        for metric in self.metrics:
            metric.update_dict(labels, preds)

    def update(self, labels: Arrays, preds: Arrays) -> None:
        for metric in self.metrics:
            metric.update(labels, preds)

    def merge(self, other: Self) -> None:
        self.check_merge(other)
        for mine, theirs in zip(self.metrics, other.metrics):
            mine.merge(theirs)

    def check_merge(self, other: Self) -> None:
        super().check_merge(other)
        if len(self.metrics) != len(other.metrics):
            raise ArgumentError(
                f"metric {self.name!r}: cannot merge a composite of {len(other.metrics)} metrics, expected one of "
                f"{len(self.metrics)}"
            )
        for mine, theirs in zip(self.metrics, other.metrics):
            mine.check_merge(theirs)

    def state_dict(self) -> dict[str, Any]:
        return {"metrics": [metric.state_dict() for metric in self.metrics]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for metric, saved in zip(self.metrics, state["metrics"], strict=True):
            metric.load_state_dict(saved)

    def settings(self) -> list[dict[str, Any]]:
        return [row for metric in self.metrics for row in metric.settings()]

    def reset(self) -> None:
        for metric in self.metrics:
            metric.reset()

    def reset_local(self) -> None:
        for metric in self.metrics:
            metric.reset_local()

    def get(self) -> tuple[list[str], list[Any]]:
        return _columns(metric.get_name_value() for metric in self.metrics)

    def get_global(self) -> tuple[list[str], list[Any]]:
        return _columns(metric.get_global_name_value() for metric in self.metrics)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "metrics": [metric.get_config() for metric in self.metrics]}


def _columns(parts: Iterable[list[tuple[str, Any]]]) -> tuple[list[str], list[Any]]:
    rows = [row for part in parts for row in part]
    return [name for name, _ in rows], [value for _, value in rows]
