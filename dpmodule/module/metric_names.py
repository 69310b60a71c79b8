"""Check of metric names before training starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..base import ArgumentError, did_you_mean
from ..metric.composite import ExternalMetric

if TYPE_CHECKING:
    from ..metric import EvalMetric


def check_measured(name: str, metrics: Mapping[str, Any]) -> None:
    """Raise ArgumentError for a name that no metric will have, as far as that is known beforehand.

    Args:
        metrics: metrics by the prefix of their names: "train", or the name of evaluation data.
    """
    known: list[str] = []
    for title, metric in metrics.items():
        names = _names(metric)
        if names is None:
            return
        known += [f"{title}-{metric_name}" for metric_name in names]
    if name not in known:
        raise ArgumentError(
            f"fit: {name!r} will not be measured; the metrics will be {', '.join(known) or 'none'}"
            f"{did_you_mean(name, known)}"
        )


def _names(metric: EvalMetric) -> Iterable[str] | None:
    """Return the names of a metric's values; None if they depend on a batch."""
    if any(isinstance(part, ExternalMetric) for part in _parts(metric)):
        return None
    try:
        return [name for name, _ in metric.get_name_value()]
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeError):
        return None  # a user-defined metric that divides by its count


def _parts(metric: EvalMetric) -> list[Any]:
    return [part for each in getattr(metric, "metrics", ()) for part in _parts(each)] or [metric]
