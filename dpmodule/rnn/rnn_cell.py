"""The cells under MXNet's own path, `mx.rnn.rnn_cell`."""

from __future__ import annotations

from ..compat import lazy
from .base import BaseRNNCell as BaseRNNCell
from .base import RNNParams as RNNParams
from .cell import GRUCell as GRUCell
from .cell import LSTMCell as LSTMCell
from .cell import RNNCell as RNNCell
from .conv import BaseConvRNNCell as BaseConvRNNCell
from .conv import ConvGRUCell as ConvGRUCell
from .conv import ConvLSTMCell as ConvLSTMCell
from .conv import ConvRNNCell as ConvRNNCell
from .fused import FusedRNNCell as FusedRNNCell
from .modifier import DropoutCell as DropoutCell
from .modifier import ModifierCell as ModifierCell
from .modifier import ResidualCell as ResidualCell
from .modifier import ZoneoutCell as ZoneoutCell
from .stack import BidirectionalCell as BidirectionalCell
from .stack import SequentialRNNCell as SequentialRNNCell

__all__ = [
    "BaseConvRNNCell",
    "BaseRNNCell",
    "BidirectionalCell",
    "ConvGRUCell",
    "ConvLSTMCell",
    "ConvRNNCell",
    "DropoutCell",
    "FusedRNNCell",
    "GRUCell",
    "LSTMCell",
    "ModifierCell",
    "RNNCell",
    "RNNParams",
    "ResidualCell",
    "SequentialRNNCell",
    "ZoneoutCell",
]

lazy.publish(__name__, __all__)
