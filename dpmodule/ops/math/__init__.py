"""Arithmetic, comparison, elementwise functions, reductions and products."""

from . import binary as binary
from . import compare as compare
from . import dot as dot
from . import reduce as reduce
from . import scalar as scalar
from . import unary as unary
