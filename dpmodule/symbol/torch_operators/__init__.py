"""Translations of torch's operators into symbols, by subject."""

from . import arithmetic as arithmetic
from . import array as array
from . import functional as functional
from . import indexing as indexing
from . import layers as layers
from . import linalg as linalg
from . import networks as networks
from . import reductions as reductions
from .builder import SymbolBuilder as SymbolBuilder
from .table import find as find
from .table import known_overloads as known_overloads
from .value import NoCounterpart as NoCounterpart
from .value import TorchValue as TorchValue
from .value import as_size as as_size
from .value import dims_of as dims_of
from .value import is_number as is_number
