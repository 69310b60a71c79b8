"""Contrib operators over symbols at MXNet's old import path: ``from mxnet.contrib.symbol import Proposal``."""

from __future__ import annotations

from functools import partial

from ..compat import lazy
from ..ops.registry import names_in
from ..symbol import contrib

__all__: list[str] = []

__getattr__, __dir__ = lazy.attributes(
    __name__, __all__, otherwise=partial(getattr, contrib), operators=partial(names_in, "contrib")
)
