"""The part of ``mx.gluon.contrib`` that exists here: the projected LSTM."""

from __future__ import annotations

from ..._core import lazy
from ..names_left_out import left_out_getattr
from . import rnn as rnn

__all__ = ["cnn", "data", "estimator", "nn", "rnn"]

__getattr__, __dir__ = lazy.attributes(__name__, __all__, otherwise=left_out_getattr("gluon.contrib"))
