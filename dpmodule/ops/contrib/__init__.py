"""Operators that users call as ``mx.sym.contrib.*`` and ``mx.nd.contrib.*``: importing this package declares them."""

from . import arrays as arrays
from . import boxes as boxes
from . import deformable as deformable
from . import functions as functions
from . import multibox as multibox
from . import proposal as proposal
from . import resize as resize
from . import roi as roi
from . import transformer as transformer
