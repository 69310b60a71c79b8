"""Layers of neural networks: importing this package declares the usual ones, and leaves the rest to `ops.later`."""

from . import activation as activation
from . import batchnorm as batchnorm
from . import conv as conv
from . import deconv as deconv
from . import dense as dense
from . import dropout as dropout
from . import embedding as embedding
from . import losses as losses
from . import norm as norm
from . import pool as pool
from . import rnn as rnn
from . import sequence as sequence
from . import softmax as softmax
from . import softmax_output as softmax_output
from . import upsample as upsample
