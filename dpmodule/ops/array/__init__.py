"""Creation, shape, joining, indexing and type conversion; what few programs need comes by `ops.later`."""

from . import axis as axis
from . import cast as cast
from . import create as create
from . import handling as handling
from . import index as index
from . import join as join
from . import reshape as reshape
from . import slicing as slicing
