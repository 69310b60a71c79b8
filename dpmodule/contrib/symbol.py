"""Contrib operators over symbols at MXNet's old import path: ``from mxnet.contrib.symbol import Proposal``."""

from __future__ import annotations

from typing import Any

from ..symbol import contrib

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    return getattr(contrib, name)


def __dir__() -> list[str]:
    return dir(contrib)
