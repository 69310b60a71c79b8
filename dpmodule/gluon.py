"""Gluon is not part of this package; this module says so where a program reaches for it.

Programs that import Gluon beside the symbolic interface without using it run; anything used from here is an error
that names what takes its place.
"""

from __future__ import annotations

from typing import Any, NoReturn

from .base import MXNetError

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # what the import system and tools look for
        raise AttributeError(name)
    return _Absent(f"gluon.{name}")


class _Absent:
    """Stands for something of Gluon; using it raises."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _refuse(self) -> NoReturn:
        raise MXNetError(
            f"{self._name} is not available: Gluon is not part of this package; use torch.nn, which takes its place, "
            "or mx.mod.TorchModule to train a torch module like a symbol"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse()

    def __getattr__(self, name: str) -> _Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent(f"{self._name}.{name}")
