"""The few parts of Gluon that programs of the Module interface use; the rest says that it is not there.

Programs that import Gluon beside the symbolic interface without using it run; anything else used from here is an
error that names what takes its place.
"""

from __future__ import annotations

from .._core import lazy
from . import contrib as contrib
from . import loss as loss
from . import utils as utils
from .absent import absent_from, add_modules, names_of

add_modules()

__all__ = [
    *names_of(""),
    "block",
    "contrib",
    "data",
    "loss",
    "model_zoo",
    "nn",
    "parameter",
    "rnn",
    "trainer",
    "utils",
]

__getattr__, __dir__ = lazy.attributes(__name__, __all__, otherwise=absent_from("gluon"))
