"""The parts of Gluon that run and train exported networks, and those that programs of the Module interface use.

Other names raise an error when they are used. Programs may import Gluon together with the symbolic interface. The error
for using a missing part names its replacement.
"""

from __future__ import annotations

from .._core import lazy
from . import contrib as contrib
from . import loss as loss
from . import utils as utils
from .block import SymbolBlock as SymbolBlock
from .names_left_out import add_left_out_modules, left_out_getattr, names_of
from .parameter import DeferredInitializationError as DeferredInitializationError
from .parameter import Parameter as Parameter
from .parameter import ParameterDict as ParameterDict
from .trainer import Trainer as Trainer

add_left_out_modules({"nn": [SymbolBlock]})

__all__ = [
    *names_of(""),
    "DeferredInitializationError",
    "Parameter",
    "ParameterDict",
    "SymbolBlock",
    "Trainer",
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

__getattr__, __dir__ = lazy.attributes(__name__, __all__, otherwise=left_out_getattr("gluon"))
