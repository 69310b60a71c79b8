"""Recurrent cells, iterators over sentences and their checkpoints (`mx.rnn`)."""

from .._core import lazy
from .base import BaseRNNCell as BaseRNNCell
from .base import RNNParams as RNNParams
from .base import rnn_unroll as rnn_unroll
from .cell import BaseConvRNNCell as BaseConvRNNCell
from .cell import ConvGRUCell as ConvGRUCell
from .cell import ConvLSTMCell as ConvLSTMCell
from .cell import ConvRNNCell as ConvRNNCell
from .cell import GRUCell as GRUCell
from .cell import LSTMCell as LSTMCell
from .cell import RNNCell as RNNCell
from .checkpoint import do_rnn_checkpoint as do_rnn_checkpoint
from .checkpoint import load_rnn_checkpoint as load_rnn_checkpoint
from .checkpoint import save_rnn_checkpoint as save_rnn_checkpoint
from .compound import BidirectionalCell as BidirectionalCell
from .compound import DropoutCell as DropoutCell
from .compound import ModifierCell as ModifierCell
from .compound import ResidualCell as ResidualCell
from .compound import SequentialRNNCell as SequentialRNNCell
from .compound import ZoneoutCell as ZoneoutCell
from .fused import FusedRNNCell as FusedRNNCell
from .io import BucketSentenceIter as BucketSentenceIter
from .io import encode_sentences as encode_sentences

__all__ = [*lazy.public_names(vars()), "io", "rnn", "rnn_cell"]

lazy.publish(__name__, __all__)
