"""Contrib operators over arrays at MXNet's old import path: ``from mxnet.contrib.ndarray import MultiBoxDetection``."""

from __future__ import annotations

from functools import partial

from ..compat import lazy
from ..ndarray import contrib
from ..ops.registry import names_in

__all__: list[str] = []

__getattr__, __dir__ = lazy.attributes(
    __name__, __all__, otherwise=partial(getattr, contrib), operators=partial(names_in, "contrib")
)
