"""Operators that users call as ``mx.sym.contrib.*`` and ``mx.nd.contrib.*``: importing this package declares them."""

from . import arrays as arrays
from . import batchnorm as batchnorm
from . import box_coding as box_coding
from . import boxes as boxes
from . import deformable as deformable
from . import deformable_pool as deformable_pool
from . import fourier as fourier
from . import hawkes as hawkes
from . import masks as masks
from . import multibox as multibox
from . import proposal as proposal
from . import resize as resize
from . import roi as roi
from . import straight_through as straight_through
from . import transformer as transformer
