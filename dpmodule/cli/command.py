"""The command that is being run, and the one to run next, as a line for the shell."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """The words behind the program's name."""

    words: Sequence[str]

    def changed(self, remove: Mapping[str, int] | None = None, add: Sequence[str] = ()) -> str:
        """Return a line for the shell with some options changed.

        Args:
            remove: options to leave out, and how many values each has.
        """
        kept: list[str] = []
        words = iter(self.words)
        for word in words:
            option, equals, _ = word.partition("=")
            if option not in (remove or {}):
                kept.append(word)
            elif not equals:
                for _ in range((remove or {})[option]):
                    next(words, None)
        return shlex.join([*_program(), *kept, *add])


def _program() -> list[str]:
    """Return the words by which this program was started, "dpmodule" where that is not known."""
    path = sys.argv[0]
    folder, name = os.path.split(path)
    if name == "__main__.py" and os.path.basename(folder) == "dpmodule":  # python -m dpmodule
        return [sys.executable, "-m", "dpmodule"]
    is_elsewhere = name == "dpmodule" and shutil.which(name) != path
    return [path if is_elsewhere else "dpmodule"]
