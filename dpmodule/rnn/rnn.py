"""MXNet's import path of unrolling and of checkpoints of cells (`mx.rnn.rnn`)."""

from __future__ import annotations

from .. import later
from ..checkpoint import load_checkpoint as load_checkpoint
from ..checkpoint import save_checkpoint as save_checkpoint
from .base import BaseRNNCell as BaseRNNCell
from .checkpoint import do_rnn_checkpoint as do_rnn_checkpoint
from .checkpoint import load_rnn_checkpoint as load_rnn_checkpoint
from .checkpoint import save_rnn_checkpoint as save_rnn_checkpoint
from .unroll import rnn_unroll as rnn_unroll

__all__ = [
    "BaseRNNCell",
    "do_rnn_checkpoint",
    "load_checkpoint",
    "load_rnn_checkpoint",
    "rnn_unroll",
    "save_checkpoint",
    "save_rnn_checkpoint",
]

later.publish(__name__, __all__)
