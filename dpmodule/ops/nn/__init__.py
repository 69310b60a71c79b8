"""Layers of neural networks: importing this package declares them."""

from . import activation as activation
from . import batchnorm as batchnorm
from . import conv as conv
from . import correlation as correlation
from . import crop as crop
from . import ctc as ctc
from . import deconv as deconv
from . import dense as dense
from . import dropout as dropout
from . import embedding as embedding
from . import im2col as im2col
from . import kl_sparse as kl_sparse
from . import losses as losses
from . import norm as norm
from . import pool as pool
from . import pool_v1 as pool_v1
from . import rnn as rnn
from . import roi as roi
from . import sequence as sequence
from . import softmax as softmax
from . import softmax_output as softmax_output
from . import spatial as spatial
from . import upsample as upsample
