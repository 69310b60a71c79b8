"""What stands in the place of Gluon's classes and functions, and says so when it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ..base import MXNetError

__all__ = ["Absent", "absent_from"]


def absent_from(place: str) -> Callable[[str], Any]:
    """Return a module's ``__getattr__`` that lets every unknown name be reached, but not used.

    Args:
        place: the module's path as programs write it, such as ``gluon.utils``.
    """

    def get(name: str) -> Any:
        if name.startswith("__"):  # what the import system and tools look for
            raise AttributeError(name)
        return Absent(f"{place}.{name}")

    return get


class Absent:
    """Stands for something of Gluon; using it raises.

    Args:
        name: what it stands for.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def _refuse(self) -> NoReturn:
        raise MXNetError(
            f"{self._name} is not available: Gluon is not part of this package; use torch.nn, which takes its place, "
            "or mx.mod.TorchModule to train a torch module like a symbol"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise; nothing is there to be called.

        Raises:
            MXNetError: always.
        """
        self._refuse()

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")
