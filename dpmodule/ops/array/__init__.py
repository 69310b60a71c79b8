"""Creation, shape, joining, indexing, ordering and type conversion."""

from . import axis as axis
from . import blocks as blocks
from . import cast as cast
from . import create as create
from . import handling as handling
from . import histogram as histogram
from . import index as index
from . import join as join
from . import order as order
from . import pad as pad
from . import ravel as ravel
from . import reshape as reshape
from . import slicing as slicing
from . import stretch as stretch
