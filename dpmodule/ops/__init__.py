"""Operators: one declaration each, read by arrays, symbols, executors and (later) automatic batching and ONNX.

Importing this package declares the operators that most programs use; those of the modules in `later` are declared
when the first of them is asked for.
"""

from . import array as array
from . import math as math
from . import nn as nn
from . import sparse as sparse
from .registry import add_later as add_later
from .registry import find as find
from .registry import get as get
from .registry import names as names
from .registry import namespace_of as namespace_of
