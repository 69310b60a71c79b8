"""Answers ``import mxnet`` by dpmodule in the children of a process that does; see `dpmodule.as_mxnet`.

Python runs this file at its start if this folder is in PYTHONPATH. It imports nothing before the program does.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))


class _Answers:
    """Finder that installs dpmodule's when the first module of the other system is imported."""

    def __init__(self, words: list[str], roots: list[str]) -> None:
        self._words, self._roots = words, roots

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what dpmodule's finder answers, or None for all other modules."""
        if fullname.partition(".")[0] not in self._roots:
            return None
        from importlib.util import find_spec

        self.install()
        return find_spec(fullname)

    def install(self) -> None:
        """Put dpmodule's finder in place of this one."""
        sys.meta_path[:] = [each for each in sys.meta_path if each is not self]
        package = os.path.dirname(os.path.dirname(_HERE))
        if package not in sys.path:
            sys.path.append(package)
        from dpmodule.as_mxnet import install_from_words

        install_from_words(self._words)


def _next_sitecustomize() -> None:
    """Run the file of this name that this one hides."""
    from importlib.machinery import PathFinder

    sys.path[:] = [each for each in sys.path if os.path.abspath(each) != _HERE]
    spec = PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(sys.modules[__name__])


def _start() -> None:
    systems, _, prefix = os.environ.get("DPMODULE_AS", "").partition("|")
    if prefix != sys.prefix:  # another Python has packages of its own
        return
    for system in systems.split(";"):
        words, _, roots = system.partition("=")
        answers = _Answers(words.split(), roots.split())
        sys.meta_path.insert(0, answers)
        if "--old-numpy" in words:
            answers.install()


_start()
_next_sitecustomize()
