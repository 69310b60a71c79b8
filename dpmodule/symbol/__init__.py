"""Symbols: `mx.sym`.

Every operator is a function here: those without leading underscore by name (`sym.FullyConnected`), those of a
namespace in a submodule (`sym.contrib`, `sym.linalg`, ...), those with one in `sym._internal`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..compat import lazy
from . import _internal as _internal
from . import contrib as contrib
from . import image as image
from . import linalg as linalg
from . import op as op
from . import sparse as sparse
from .creation import (
    arange,
    eye,
    full,
    histogram,
    hypot,
    linspace,
    maximum,
    minimum,
    ones,
    pow,
    power,
    split_v2,
    zeros,
)
from .op_functions import face_of, names_in
from .symbol import Group, Symbol, Variable, load, load_json, var

if TYPE_CHECKING:
    from . import random as random
    from .torch_import import from_torch
    from .torch_node import torch_module, write_back

__all__ = [
    "Group",
    "Symbol",
    "Variable",
    "arange",
    "contrib",
    "eye",
    "from_torch",
    "full",
    "histogram",
    "hypot",
    "image",
    "linalg",
    "linspace",
    "load",
    "load_json",
    "maximum",
    "minimum",
    "ones",
    "op",
    "pow",
    "power",
    "random",
    "sparse",
    "split_v2",
    "torch_module",
    "var",
    "write_back",
    "zeros",
]


__getattr__, __dir__ = lazy.attributes(
    __name__,
    __all__,
    {
        "control_flow": "",
        "random": "",
        "subgraph": "",
        "torch_import": "from_torch",
        "torch_node": "torch_module write_back",
    },
    partial(face_of, ""),
    operators=partial(names_in, ""),
)
