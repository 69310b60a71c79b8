"""Arithmetic, comparison, elementwise functions, reductions and products."""

from . import binary as binary
from . import compare as compare
from . import dot as dot
from . import factor as factor
from . import khatri_rao as khatri_rao
from . import linalg as linalg
from . import reduce as reduce
from . import scalar as scalar
from . import triangle as triangle
from . import unary as unary
