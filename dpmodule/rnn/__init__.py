"""Recurrent cells, iterators over sentences and their checkpoints (`mx.rnn`)."""

from ..compat import lazy
from .base import BaseRNNCell as BaseRNNCell
from .base import RNNParams as RNNParams
from .cell import GRUCell as GRUCell
from .cell import LSTMCell as LSTMCell
from .cell import RNNCell as RNNCell
from .checkpoint import do_rnn_checkpoint as do_rnn_checkpoint
from .checkpoint import load_rnn_checkpoint as load_rnn_checkpoint
from .checkpoint import save_rnn_checkpoint as save_rnn_checkpoint
from .conv import BaseConvRNNCell as BaseConvRNNCell
from .conv import ConvGRUCell as ConvGRUCell
from .conv import ConvLSTMCell as ConvLSTMCell
from .conv import ConvRNNCell as ConvRNNCell
from .fused import FusedRNNCell as FusedRNNCell
from .io import BucketSentenceIter as BucketSentenceIter
from .io import encode_sentences as encode_sentences
from .modifier import DropoutCell as DropoutCell
from .modifier import ModifierCell as ModifierCell
from .modifier import ResidualCell as ResidualCell
from .modifier import ZoneoutCell as ZoneoutCell
from .stack import BidirectionalCell as BidirectionalCell
from .stack import SequentialRNNCell as SequentialRNNCell
from .unroll import rnn_unroll as rnn_unroll

__all__ = [*lazy.handed_on(vars()), "io", "rnn", "rnn_cell"]

lazy.publish(__name__, __all__)
