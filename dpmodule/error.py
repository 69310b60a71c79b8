"""MXNet's import path of errors (`mx.error`); `dpmodule.base` defines them all."""

from __future__ import annotations

from ._core import lazy
from .base import MXNetError as MXNetError

__all__ = ["InternalError", "MXNetError"]

lazy.publish(__name__, __all__)


class InternalError(MXNetError):
    """An error in the library itself; MXNet raises it if a check of its C++ code fails, this package never does."""
