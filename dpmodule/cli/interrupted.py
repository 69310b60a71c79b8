"""What a training that is interrupted has saved, and the command that resumes it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from .. import checkpoint
from .command import Command


class SavedRuns:
    """Tells which states of a run have been saved since it was made."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._before = self._times()

    def newest(self) -> str | None:
        """Return the file that was saved last, None if none has been saved."""
        new = {path: time for path, time in self._times().items() if self._before.get(path) != time}
        return max(new, key=lambda path: new[path], default=None)

    def _times(self) -> dict[str, int]:
        paths = [path for path in checkpoint.files(self._prefix) if path.endswith(".run")]
        return {path: os.stat(path).st_mtime_ns for path in paths}


def tell_resume(
    saved: str | None,
    command: Command,
    option: Sequence[str] = ("--resume",),
    without: Mapping[str, int] | None = None,
) -> None:
    """Print what has been saved, and the command that resumes from it, or that begins again.

    Args:
        saved: a file, None: nothing has been saved.
        without: further options that the new command leaves out, and how many values each has.
    """
    if saved is None:
        print("interrupted before anything was saved", file=sys.stderr)
        print(f"to begin again: {command.changed()}", file=sys.stderr)
        return
    remove = {
        "--load-epoch": 1,
        "--overwrite": 0,
        "--resume": 0,
        "-im": 1,
        "--init-model": 1,
        **(without or {}),
    }
    print(f"saved: {saved}", file=sys.stderr)
    print(f"to resume: {command.changed(remove, option)}", file=sys.stderr)
