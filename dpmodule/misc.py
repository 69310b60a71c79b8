"""MXNet's first import path of learning-rate schedules."""

from . import later
from .lr_scheduler import FactorScheduler as FactorScheduler
from .lr_scheduler import LRScheduler as LearningRateScheduler

__all__ = ["FactorScheduler", "LearningRateScheduler"]

later.publish(__name__, __all__)
