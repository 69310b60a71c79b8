"""Arrays: `NDArray`, how to make them, operators as functions over them, and MXNet's file format.

Every operator is a function here: those without leading underscore by name (`nd.relu`), those of a namespace
in a submodule (`nd.contrib`, `nd.linalg`, `nd.random`, `nd.sparse`, `nd.image`), those with one in
`nd._internal`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..compat import lazy
from . import _internal as _internal
from . import contrib as contrib
from . import image as image
from . import linalg as linalg
from . import methods as methods
from . import op as op
from . import sparse as sparse
from .cached_op import CachedOp
from .creation import (
    arange,
    array,
    concatenate,
    empty,
    eye,
    from_dlpack,
    from_numpy,
    from_torch,
    full,
    histogram,
    linspace,
    moveaxis,
    onehot_encode,
    ones,
    split_v2,
    to_dlpack_for_read,
    to_dlpack_for_write,
    waitall,
    zeros,
)
from .ndarray import NDArray
from .op_functions import face_of, names_in
from .operators import (
    add,
    divide,
    equal,
    greater,
    greater_equal,
    lesser,
    lesser_equal,
    logical_and,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    modulo,
    multiply,
    not_equal,
    power,
    subtract,
    true_divide,
)
from .ragged import ragged_array
from .sparse_creation import cast_storage

if TYPE_CHECKING:
    from . import random as random
    from . import utils as utils
    from .image_file import imdecode
    from .serial import load, load_frombuffer, save

__all__ = [
    "CachedOp",
    "NDArray",
    "add",
    "arange",
    "array",
    "cast_storage",
    "concatenate",
    "contrib",
    "divide",
    "empty",
    "equal",
    "eye",
    "from_dlpack",
    "from_numpy",
    "from_torch",
    "full",
    "greater",
    "greater_equal",
    "histogram",
    "image",
    "imdecode",
    "lesser",
    "lesser_equal",
    "linalg",
    "linspace",
    "load",
    "load_frombuffer",
    "logical_and",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "modulo",
    "moveaxis",
    "multiply",
    "not_equal",
    "onehot_encode",
    "ones",
    "op",
    "power",
    "ragged_array",
    "random",
    "save",
    "sparse",
    "split_v2",
    "subtract",
    "to_dlpack_for_read",
    "to_dlpack_for_write",
    "true_divide",
    "utils",
    "waitall",
    "zeros",
]


__getattr__, __dir__ = lazy.attributes(
    __name__,
    __all__,
    {
        "contrib_functions": "",
        "contrib_updates": "",
        "control_flow": "",
        "image_file": "imdecode",
        "random": "",
        "binary_reader": "",
        "safetensors": "",
        "serial": "load load_frombuffer save",
        "utils": "",
    },
    partial(face_of, ""),
    operators=partial(names_in, ""),
)
