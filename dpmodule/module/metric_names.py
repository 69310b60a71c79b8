"""Names that `fit` will measure, known before it has measured anything: a wrong one is told at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..base import ArgumentError, did_you_mean
from ..metric.composite import ExternalMetric

if TYPE_CHECKING:
    from ..metric import EvalMetric


def check_measured(name: str, metrics: Mapping[str, Any]) -> None:
    """Refuse a name that no metric will have, as far as they can tell beforehand.

    Args:
        metrics: by what their names begin with there: "train", or the name of evaluation data.
    """
    known: list[str] = []
    for title, metric in metrics.items():
        names = _names(metric)
        if names is None:
            return
        known += [f"{title}-{each}" for each in names]
    if name not in known:
        raise ArgumentError(
            f"fit: {name!r} will not be measured; there will be {', '.join(known) or 'no metrics'}"
            f"{did_you_mean(name, known)}"
        )


def _names(metric: EvalMetric) -> Iterable[str] | None:
    """Return the names of a metric's values; None where only a batch can tell."""
    if any(isinstance(each, ExternalMetric) for each in _parts(metric)):
        return None
    try:
        return [name for name, _ in metric.get_name_value()]
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeError):
        return None  # one of the user's own that divides by what it has seen


def _parts(metric: EvalMetric) -> list[Any]:
    return [part for each in getattr(metric, "metrics", ()) for part in _parts(each)] or [metric]
