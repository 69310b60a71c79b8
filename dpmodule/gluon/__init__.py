"""The few parts of Gluon that programs of the Module interface use; the rest says that it is not there.

Programs that import Gluon beside the symbolic interface without using it run; anything else used from here is an
error that names what takes its place.
"""

from __future__ import annotations

from . import contrib as contrib
from . import loss as loss
from . import utils as utils
from .absent import absent_from

__all__ = ["contrib", "loss", "utils"]

__getattr__ = absent_from("gluon")
