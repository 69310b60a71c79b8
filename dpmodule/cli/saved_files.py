"""Saved networks and runs: which network a command reads, where it may write, and how a run is resumed."""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from .. import checkpoint, symbol
from ..base import ArgumentError, MXNetError
from ..ndarray import NDArray
from ..ndarray.safetensors import looks_like
from ..symbol import Symbol
from . import networks
from .models import find as find_model
from .models import read, read_values

_SAMPLE = (1, 8, 8)
"""Shape of a sample for the networks that come along, where nothing else is asked for: that of the digits."""


@dataclass(frozen=True)
class SavedNetwork:
    """A network and, as far as they are known, its parameters."""

    net: Symbol
    name: str
    """What messages call it: the file of the graph, or the name of one that comes along."""
    values: Mapping[str, NDArray] = field(default_factory=dict)
    """Parameters and auxiliary states by name; empty if there are none."""
    params_file: str | None = None
    is_built_in: bool = False
    """Whether it is one of those that come along, and no file."""

    @property
    def title(self) -> str:
        """What it is, and where its parameters come from."""
        return self.name if self.params_file is None else f"{self.name}, parameters from {self.params_file}"


def find_network(args: argparse.Namespace, default: str | None = None) -> SavedNetwork:
    """Return the network that the arguments of `add_arguments` name.

    Args:
        default: what NET is if nothing is named; None = that is an error.
    """
    given = {
        "NET": args.net,
        "--prefix": args.prefix,
        "--symbol": args.symbol,
        "--network": vars(args).get("network"),
    }
    named = {option: name for option, name in given.items() if name is not None}
    if len(named) > 1:
        shown = " and ".join(f"{option} {name}" for option, name in named.items())
        raise ArgumentError(f"{shown} are given, expected one network")
    if args.params is not None and args.params_option is not None:
        raise ArgumentError(f"PARAMS {args.params} and --params {args.params_option} are given, expected one")
    params = args.params or args.params_option
    option, name = next(iter(named.items()), ("NET", default))
    if name is None:
        raise ArgumentError("which network? Expected NET: the prefix of a saved one, or its -symbol.json")
    if option == "--network" or (option == "NET" and "network" in args and name in networks.NETWORKS):
        return _built_in(args, name, params, may_be_saved="NET" in named)
    if vars(args).get("classes") is not None:
        raise ArgumentError(f"--classes {args.classes} goes with --network; {name} is a saved network")
    if args.prefix is None and (os.path.isfile(name) or os.path.isdir(name)):
        if args.epoch is not None:
            what = "file" if os.path.isfile(name) else "folder"
            raise ArgumentError(
                f"--epoch {args.epoch} goes with a prefix; {name} is a {what}, give its parameters' file"
            )
        return _load_path(name, params)
    if params is not None and args.epoch is not None:
        raise ArgumentError(f"--epoch {args.epoch} and the parameters {params} are given, expected one")
    return load_network(name, args.epoch, params, option="--epoch")


def _load_path(path: str, params: str | None) -> SavedNetwork:
    """Return the network of a graph's file, or one that has its parameters with it: a folder, or a safetensors file."""
    if os.path.isfile(path):
        with open(path, "rb") as file:
            is_graph = not looks_like(file.read(9))
        if is_graph:
            return SavedNetwork(
                symbol.load(path), path, {} if params is None else read_values(params), params
            )
    found = read(find_model(path))
    return SavedNetwork(
        found.net, path, found.values if params is None else read_values(params), params or path
    )


def _built_in(args: argparse.Namespace, name: str, params: str | None, may_be_saved: bool) -> SavedNetwork:
    for option, value in (("--epoch", args.epoch), ("--params", params)):
        if value is not None:
            raise ArgumentError(
                f"{option} {value} goes with a saved network; {name} comes along, without parameters"
            )
    if may_be_saved and checkpoint.files(name):
        raise ArgumentError(
            f"{name} is a network that comes along, and there is {checkpoint.symbol_file(name)}; "
            f"expected --network {name} or --prefix {name}"
        )
    samples = [shape if of is None else shape[1:] for of, shape in args.shape if of in (None, "data")]
    sample = samples[-1] if samples else _SAMPLE
    net = networks.build(name, sample, 10 if args.classes is None else args.classes)
    return SavedNetwork(net, name, is_built_in=True)


def load_network(
    prefix: str, epoch: int | str | None = None, params: str | None = None, option: str = "--load-epoch"
) -> SavedNetwork:
    """Return the network saved under a prefix.

    Args:
        epoch: which epoch, or `checkpoint.LAST`; None = the last one, without parameters if there is none.
        params: file of the parameters, if they are not the prefix's.
    """
    path = checkpoint.symbol_file(prefix)
    if not checkpoint.files(prefix):
        raise ArgumentError(
            f"nothing is saved under the prefix {prefix!r}: there is no {path}; `fit --prefix` makes one"
        )
    saved = checkpoint.epochs(prefix)
    if params is None and epoch is None:
        if not saved and checkpoint.params_files(prefix, checkpoint.LAST):
            raise ArgumentError(
                f"under the prefix {prefix!r} is only what was saved within an epoch; "
                f"{option} {checkpoint.LAST} takes that"
            )
        epoch = saved[-1] if saved else None
    if params is not None or epoch is None:
        net = checkpoint.saved_symbol(prefix, saved[-1] if saved else 0)
        return SavedNetwork(net, path, {} if params is None else read_values(params), params)
    files = checkpoint.params_files(prefix, epoch)
    if not files:
        epochs = ", ".join(map(str, saved)) or "none"
        raise ArgumentError(
            f"{option} is {epoch}; saved under the prefix {prefix!r} are the epochs: {epochs}"
        )
    net, arg_params, aux_params = checkpoint.load_checkpoint(prefix, epoch)
    values = {**arg_params, **aux_params}
    return SavedNetwork(net, path if os.path.exists(path) else files[-1], values, files[-1])


# files that a command writes

_LONGEST_ENDING = "-last.params.01234567.commit"
"""About what is added to a prefix, in the name of a temporary file."""


def check_output(path: str, option: str) -> None:
    """Make sure that a file can be written later; touches nothing."""
    if os.path.isdir(path) or not os.path.basename(path):
        raise ArgumentError(f"{option} is {path!r}, a folder; expected a file")
    if os.path.exists(path):
        if not os.access(path, os.W_OK):
            raise _not_writable(option, path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
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


def check_same_network(
    prefix: str, net: Symbol, shapes: Mapping[str, tuple[int, ...]], command: Command
) -> None:
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


def prepare_prefix(prefix: str, overwrite: bool, resume: bool) -> None:
    """Make room for the files of a training that begins."""
    make_folder(prefix)
    interrupted = checkpoint.run_file(prefix, checkpoint.LAST)
    if overwrite:
        remove(prefix)
    elif os.path.exists(interrupted) and not resume:
        print(f"note: {interrupted} is left of an earlier run; --resume continues that", file=sys.stderr)


def print_written(prefix: str, epoch: int) -> None:
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
        raise _not_writable(option, given, error) from error


def _difference(prefix: str, net: Symbol, shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """Say how the network saved under a prefix differs from this one; None if it is the same."""
    epoch = None if checkpoint.epochs(prefix) else checkpoint.LAST
    has_params = epoch is None or bool(checkpoint.params_files(prefix, epoch))
    try:
        other = load_network(prefix, epoch if has_params else None)
    except (MXNetError, OSError) as error:
        return f"are files that hold no network ({error})"
    for name, value in other.values.items():
        if name in shapes and tuple(value.shape) != shapes[name]:
            return f"another network is saved: its {name} is {tuple(value.shape)}, this one's {shapes[name]}"
    if other.net.tojson() != net.tojson():
        return f"another network is saved: {other.name} describes other operators or attributes"
    return None


def _not_writable(option: str, path: str, error: Exception) -> ArgumentError:
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


def print_resume_command(
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
