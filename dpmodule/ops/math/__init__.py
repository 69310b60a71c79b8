"""Arithmetic, comparison, elementwise functions, reductions and products; linear algebra comes by `ops.later`."""

from . import binary as binary
from . import compare as compare
from . import dot as dot
from . import reduce as reduce
from . import scalar as scalar
from . import unary as unary
