"""Arrays: `NDArray`, its creation, operators as functions of arrays, and MXNet's file format.

Every operator is a function here: by name (`nd.relu`), in the submodule of its namespace (`nd.contrib`, `nd.linalg`,
`nd.random`, `nd.sparse`, `nd.image`), or in `nd._internal` if its name begins with an underscore.
"""

import functools
import typing

from .._core import lazy
from . import _internal as _internal
from . import contrib as contrib
from . import methods as methods
from . import op_functions
from . import sparse as sparse
from .cached_op import CachedOp as CachedOp
from .creation import arange as arange
from .creation import array as array
from .creation import concatenate as concatenate
from .creation import empty as empty
from .creation import eye as eye
from .creation import from_dlpack as from_dlpack
from .creation import from_numpy as from_numpy
from .creation import from_torch as from_torch
from .creation import full as full
from .creation import histogram as histogram
from .creation import linspace as linspace
from .creation import moveaxis as moveaxis
from .creation import onehot_encode as onehot_encode
from .creation import ones as ones
from .creation import split_v2 as split_v2
from .creation import to_dlpack_for_read as to_dlpack_for_read
from .creation import to_dlpack_for_write as to_dlpack_for_write
from .creation import waitall as waitall
from .creation import zeros as zeros
from .ndarray import NDArray as NDArray
from .operators import add as add
from .operators import divide as divide
from .operators import equal as equal
from .operators import greater as greater
from .operators import greater_equal as greater_equal
from .operators import lesser as lesser
from .operators import lesser_equal as lesser_equal
from .operators import logical_and as logical_and
from .operators import logical_or as logical_or
from .operators import logical_xor as logical_xor
from .operators import maximum as maximum
from .operators import minimum as minimum
from .operators import modulo as modulo
from .operators import multiply as multiply
from .operators import not_equal as not_equal
from .operators import power as power
from .operators import subtract as subtract
from .operators import true_divide as true_divide
from .ragged import ragged_array as ragged_array
from .sparse_creation import cast_storage as cast_storage

if typing.TYPE_CHECKING:
    from . import op as op
    from . import random as random
    from . import utils as utils
    from .image_file import imdecode as imdecode
    from .serial import load as load
    from .serial import load_frombuffer as load_frombuffer
    from .serial import save as save

    image: typing.Any
    linalg: typing.Any

_LATER = {
    "image_file": "imdecode",
    "random": "",
    "binary_reader": "",
    "safetensors": "",
    "serial": "load load_frombuffer save",
    "utils": "",
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
    "utils",
]

__getattr__, __dir__ = lazy.attributes(
    __name__,
    __all__,
    _LATER,
    functools.partial(op_functions.op_function_in, ""),
    operators=functools.partial(op_functions.names_in, ""),
)
