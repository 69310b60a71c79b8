"""Metrics for TensorBoard, under MXNet's name."""

from .. import later
from ..callback.tensorboard import LogMetricsCallback as LogMetricsCallback

__all__ = ["LogMetricsCallback"]

later.publish(__name__, __all__)
