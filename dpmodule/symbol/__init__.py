"""Symbols: `mx.sym`.

Every operator is a function here: by name (`sym.FullyConnected`), in the submodule of its namespace (`sym.contrib`,
`sym.linalg`, ...), or in `sym._internal` if its name begins with an underscore.
"""

import functools
import typing

from .._core import lazy
from . import contrib as contrib
from . import op_functions
from .creation import arange as arange
from .creation import eye as eye
from .creation import full as full
from .creation import histogram as histogram
from .creation import hypot as hypot
from .creation import linspace as linspace
from .creation import maximum as maximum
from .creation import minimum as minimum
from .creation import ones as ones
from .creation import pow as pow
from .creation import power as power
from .creation import split_v2 as split_v2
from .creation import zeros as zeros
from .symbol import Group as Group
from .symbol import Symbol as Symbol
from .symbol import Variable as Variable
from .symbol import load as load
from .symbol import load_json as load_json
from .symbol import var as var

if typing.TYPE_CHECKING:
    from . import op as op
    from . import random as random
    from .torch_import import from_torch as from_torch
    from .torch_node import torch_module as torch_module
    from .torch_node import write_back as write_back

    _internal: typing.Any
    image: typing.Any
    linalg: typing.Any
    sparse: typing.Any

_LATER = {
    "control_flow": "",
    "random": "",
    "subgraph": "",
    "torch_import": "from_torch",
    "torch_node": "torch_module write_back",
}

__all__ = [
    *lazy.public_names(vars()),
    *lazy.modules_of(_LATER),
    "contrib",
    "image",
    "linalg",
    "op",
    "random",
    "sparse",
]

__getattr__: typing.Callable[[str], typing.Callable[..., Symbol]]
__getattr__, __dir__ = lazy.attributes(
    __name__,
    __all__,
    _LATER,
    functools.partial(op_functions.op_function_in, ""),
    operators=functools.partial(op_functions.names_in, ""),
)
