"""What a command writes, what is in its way, and the command that resumes an interrupted one."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from .. import checkpoint
from ..base import ArgumentError, MXNetError
from ..symbol import Symbol
from . import saved

_LONGEST_ENDING = "-last.params.01234567.commit"
"""About what is added to a prefix, in the name of a temporary file."""


def check_output(path: str, option: str) -> None:
    """Make sure that a file can be written later; touches nothing."""
    if os.path.isdir(path) or not os.path.basename(path):
        raise ArgumentError(f"{option} is {path!r}, a folder; expected a file")
    if os.path.exists(path):
        if not os.access(path, os.W_OK):
            raise _cannot(option, path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    else:
        _check_folder(option, path, path)


def check_prefix(prefix: str) -> None:
    """Make sure that files with this prefix can be written later; touches nothing."""
    if os.path.basename(prefix) in ("", ".", ".."):
        raise ArgumentError(
            f"--prefix is {prefix!r}, expected a folder, if any, and the first part of file names, such as runs/digits"
        )
    _check_folder("--prefix", prefix, prefix + _LONGEST_ENDING)


def make_folder(path: str) -> None:
    """Make the folder of a file, and those above it, where they are missing."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)


def refuse_others(prefix: str, net: Symbol, shapes: Mapping[str, tuple[int, ...]], command: Command) -> None:
    """Make sure that what is saved under a prefix is of the same network.

    Args:
        shapes: the shapes of its parameters, among others.
    """
    if not checkpoint.files(prefix):
        return
    reason = _difference(prefix, net, shapes)
    if reason is not None:
        raise ArgumentError(
            f"under the prefix {prefix!r} {reason}. Another --prefix keeps its files; this removes them and trains: "
            f"{command.changed(add=['--overwrite'])}"
        )


def remove(prefix: str) -> None:
    """Remove everything that is saved under a prefix."""
    for path in checkpoint.files(prefix):
        os.unlink(path)


def make_ready(prefix: str, overwrite: bool, resume: bool) -> None:
    """Make room for the files of a training that begins."""
    make_folder(prefix)
    interrupted = checkpoint.run_file(prefix, checkpoint.LAST)
    if overwrite:
        remove(prefix)
    elif os.path.exists(interrupted) and not resume:
        print(f"note: {interrupted} is left of an earlier run; --resume continues that", file=sys.stderr)


def tell_written(prefix: str, epoch: int) -> None:
    """Say what a training has written, and which file of an earlier one other commands would take instead."""
    written = checkpoint.params_file(prefix, epoch)
    print(f"written: {checkpoint.symbol_file(prefix)}, {written} and its .states")
    later = [each for each in checkpoint.epochs(prefix) if each > epoch]
    if later:
        print(
            f"note: an earlier training left epoch {later[-1]} under this prefix, and `dpmodule predict` takes the "
            f"last one unless it is told --epoch {epoch}; --overwrite removes what is there",
            file=sys.stderr,
        )


def _check_folder(option: str, given: str, path: str) -> None:
    """Refuse a path whose folder, or the nearest one above it that exists, takes no new file of this name."""
    folder = os.path.dirname(path) or "."
    try:
        while not os.path.lexists(folder):
            folder = os.path.dirname(folder) or "."
        with tempfile.TemporaryFile(dir=folder):
            pass
        with suppress(FileNotFoundError):
            os.lstat(os.path.join(folder, os.path.basename(path)))  # complains about a name that is too long
    except (OSError, ValueError) as error:
        raise _cannot(option, given, error) from error


def _difference(prefix: str, net: Symbol, shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """Say how the network saved under a prefix differs from this one; None if it is the same."""
    epoch = None if checkpoint.epochs(prefix) else checkpoint.LAST
    has_params = epoch is None or bool(checkpoint.params_files(prefix, epoch))
    try:
        other = saved.load(prefix, epoch if has_params else None)
    except (MXNetError, OSError) as error:
        return f"are files that hold no network ({error})"
    for name, value in other.values.items():
        if name in shapes and tuple(value.shape) != shapes[name]:
            return f"another network is saved: its {name} is {tuple(value.shape)}, this one's {shapes[name]}"
    if other.net.tojson() != net.tojson():
        return f"another network is saved: {other.name} describes other operators or attributes"
    return None


def _cannot(option: str, path: str, error: Exception) -> ArgumentError:
    reason = getattr(error, "strerror", None) or error
    return ArgumentError(f"{option} is {path!r}, where nothing can be written: {reason}")


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
