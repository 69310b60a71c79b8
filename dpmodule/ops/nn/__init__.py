"""Layers of neural networks: importing this package declares the usual ones; the rest comes by `ops.later`."""

from . import activation as activation
from . import batchnorm as batchnorm
from . import dense as dense
from . import dropout as dropout
from . import embedding as embedding
from . import softmax as softmax
from . import softmax_output as softmax_output
