"""Translations of torch's operators into symbols, one file a subject."""

from . import activations as activations
from . import arithmetic as arithmetic
from . import array as array
from . import attention as attention
from . import creation as creation
from . import functions as functions
from . import indexing as indexing
from . import layers as layers
from . import linalg as linalg
from . import losses as losses
from . import recurrent as recurrent
from . import reductions as reductions
from .builder import SymbolBuilder as SymbolBuilder
from .sizes import as_size as as_size
from .sizes import dims_of as dims_of
from .sizes import is_number as is_number
from .table import find as find
from .table import known_overloads as known_overloads
from .value import NoCounterpart as NoCounterpart
from .value import TorchValue as TorchValue
