"""Saved networks and runs: which network a command reads, where it may write, and how a run is resumed."""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
"""Default sample shape of the built-in networks: that of the digits."""


@dataclass(frozen=True)
class SavedNetwork:
    """A network and, if known, its parameters."""

    net: Symbol
    name: str
    """Its name in messages: the file of the graph, or the name of a built-in network."""
    values: Mapping[str, NDArray] = field(default_factory=dict)
    """Parameters and auxiliary states by name; may be empty."""
    params_file: str | None = None
    is_built_in: bool = False
    """True for a built-in network, False for a file."""

    @property
    def title(self) -> str:
        """Its name, and the file of its parameters."""
        return self.name if self.params_file is None else f"{self.name}, parameters from {self.params_file}"


def find_network(args: argparse.Namespace, default: str | None = None) -> SavedNetwork:
    """Return the network of a command's arguments.

    Args:
        default: default of NET; None: a network is required.
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
        raise ArgumentError(f"got {shown}, expected one network")
    if args.params is not None and args.params_option is not None:
        raise ArgumentError(f"got both PARAMS {args.params} and --params {args.params_option}, expected one")
    params = args.params or args.params_option
    option, name = next(iter(named.items()), ("NET", default))
    if name is None:
        raise ArgumentError(
            "no network is given; expected NET, the prefix of a saved network or its -symbol.json"
        )
    if option == "--network" or (option == "NET" and "network" in args and name in networks.NETWORKS):
        return _built_in(args, name, params, may_be_saved="NET" in named)
    if vars(args).get("classes") is not None:
        raise ArgumentError(f"--classes {args.classes} is for built-in networks; {name} is a saved network")
    if args.prefix is None and (os.path.isfile(name) or os.path.isdir(name)):
        if args.epoch is not None:
            what = "file" if os.path.isfile(name) else "folder"
            raise ArgumentError(
                f"--epoch {args.epoch} is for a prefix; {name} is a {what}, so give the file of its parameters"
            )
        return _load_path(name, params)
    if params is not None and args.epoch is not None:
        raise ArgumentError(f"got both --epoch {args.epoch} and the parameters {params}, expected one")
    return load_network(name, args.epoch, params, option="--epoch")


def _load_path(path: str, params: str | None) -> SavedNetwork:
    """Return the network of a graph file, a folder, or a safetensors file with parameters."""
    if os.path.isfile(path):
        with open(path, "rb") as file:
            is_graph = not looks_like(file.read(9))
        if is_graph:
            return SavedNetwork(
                symbol.load(path), path, {} if params is None else read_values(params), params
            )
    model = read(find_model(path))
    return SavedNetwork(
        model.net, path, model.values if params is None else read_values(params), params or path
    )


def _built_in(args: argparse.Namespace, name: str, params: str | None, may_be_saved: bool) -> SavedNetwork:
    for option, value in (("--epoch", args.epoch), ("--params", params)):
        if value is not None:
            raise ArgumentError(
                f"{option} {value} is for saved networks; {name} is a built-in network without parameters"
            )
    if may_be_saved and checkpoint.files(name):
        raise ArgumentError(
            f"{name} is a built-in network, and {checkpoint.symbol_file(name)} exists; "
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
        epoch: the epoch, or `checkpoint.LAST`; None: the last one, without parameters if there is none.
        params: file of the parameters, in place of those of the prefix.
    """
    path = checkpoint.symbol_file(prefix)
    if not checkpoint.files(prefix):
        raise ArgumentError(
            f"nothing is saved under the prefix {prefix!r}: {path} does not exist; `fit --prefix` creates it"
        )
    saved = checkpoint.epochs(prefix)
    if params is None and epoch is None:
        if not saved and checkpoint.params_files(prefix, checkpoint.LAST):
            raise ArgumentError(
                f"under the prefix {prefix!r} only a state within an epoch is saved; "
                f"{option} {checkpoint.LAST} loads it"
            )
        epoch = saved[-1] if saved else None
    if params is not None or epoch is None:
        net = checkpoint.saved_symbol(prefix, saved[-1] if saved else 0)
        return SavedNetwork(net, path, {} if params is None else read_values(params), params)
    files = checkpoint.params_files(prefix, epoch)
    if not files:
        epochs = ", ".join(map(str, saved)) or "none"
        raise ArgumentError(f"{option} is {epoch}; the saved epochs of the prefix {prefix!r} are: {epochs}")
    net, arg_params, aux_params = checkpoint.load_checkpoint(prefix, epoch)
    values = {**arg_params, **aux_params}
    return SavedNetwork(net, path if os.path.exists(path) else files[-1], values, files[-1])


# files that a command writes

_LONGEST_ENDING = "-last.params.01234567.commit"
"""A longest suffix of a prefix, in the name of a temporary file."""


def check_output(path: str, option: str) -> None:
    """Raise ArgumentError if a file cannot be written later; does not create it."""
    if os.path.isdir(path) or not os.path.basename(path):
        raise ArgumentError(f"{option} is {path!r}, a folder; expected a file")
    if os.path.exists(path):
        if not os.access(path, os.W_OK):
            raise _not_writable(option, path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    else:
        _check_folder(option, path, path)


def check_prefix(prefix: str) -> None:
    """Raise ArgumentError if files with this prefix cannot be written later; does not create them."""
    if os.path.basename(prefix) in ("", ".", ".."):
        raise ArgumentError(f"--prefix is {prefix!r}, expected a prefix of file names, such as runs/digits")
    _check_folder("--prefix", prefix, prefix + _LONGEST_ENDING)


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Yield a temporary folder, which is removed afterwards, also on Ctrl-C and SIGTERM."""
    is_default = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    catches = is_default and threading.current_thread() is threading.main_thread()
    if catches:
        signal.signal(signal.SIGTERM, _end)
    try:
        with tempfile.TemporaryDirectory(prefix="dpmodule-") as folder:
            yield folder
    finally:
        if catches:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def make_folder(path: str) -> None:
    """Create the folder of a file and its missing parents."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)


def check_same_network(
    prefix: str, net: Symbol, shapes: Mapping[str, tuple[int, ...]], command: Command
) -> None:
    """Raise ArgumentError if another network is saved under a prefix.

    Args:
        shapes: shapes of arguments, including its parameters.
    """
    if not checkpoint.files(prefix):
        return
    reason = _difference(prefix, net, shapes)
    if reason is not None:
        raise ArgumentError(
            f"under the prefix {prefix!r} {reason}. Choose another --prefix, or remove the saved files: "
            f"{command.changed(add=['--overwrite'])}"
        )


def remove(prefix: str) -> None:
    """Remove all files that are saved under a prefix."""
    for path in checkpoint.files(prefix):
        os.unlink(path)


def prepare_prefix(prefix: str, overwrite: bool, resume: bool) -> None:
    """Prepare the prefix of a new training."""
    make_folder(prefix)
    interrupted = checkpoint.run_file(prefix, checkpoint.LAST)
    if overwrite:
        remove(prefix)
    elif os.path.exists(interrupted) and not resume:
        print(f"note: {interrupted} belongs to an interrupted run; --resume continues it", file=sys.stderr)


def print_written(prefix: str, epoch: int) -> None:
    """Print the written files, and a note if an earlier training has later epochs."""
    written = checkpoint.params_file(prefix, epoch)
    print(f"written: {checkpoint.symbol_file(prefix)}, {written} and its .states")
    later = [other for other in checkpoint.epochs(prefix) if other > epoch]
    if later:
        print(
            f"note: an earlier training saved epoch {later[-1]} under this prefix, which `dpmodule predict` uses "
            f"unless --epoch {epoch} is given; --overwrite removes earlier files",
            file=sys.stderr,
        )


def _check_folder(option: str, value: str, path: str) -> None:
    """Raise ArgumentError if a file cannot be created in its folder, or in the nearest existing parent."""
    folder = os.path.dirname(path) or "."
    try:
        while not os.path.lexists(folder):
            folder = os.path.dirname(folder) or "."
        with tempfile.TemporaryFile(dir=folder):
            pass
        with suppress(FileNotFoundError):
            os.lstat(os.path.join(folder, os.path.basename(path)))  # raises for a name that is too long
    except (OSError, ValueError) as error:
        raise _not_writable(option, value, error) from error


def _difference(prefix: str, net: Symbol, shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """Return how the network saved under a prefix differs from this one; None if it is the same."""
    epoch = None if checkpoint.epochs(prefix) else checkpoint.LAST
    has_params = epoch is None or bool(checkpoint.params_files(prefix, epoch))
    try:
        other = load_network(prefix, epoch if has_params else None)
    except (MXNetError, OSError) as error:
        return f"the files do not have a readable network ({error})"
    for name, value in other.values.items():
        if name in shapes and tuple(value.shape) != shapes[name]:
            return f"another network is saved: its {name} has shape {tuple(value.shape)}, expected {shapes[name]}"
    if other.net.tojson() != net.tojson():
        return f"another network is saved: {other.name} has other operators or attributes"
    return None


def _not_writable(option: str, path: str, error: Exception) -> ArgumentError:
    reason = getattr(error, "strerror", None) or error
    return ArgumentError(f"{option} is {path!r}, which cannot be written: {reason}")


@dataclass(frozen=True)
class Command:
    """The words of a command line after the program's name."""

    words: Sequence[str]

    def changed(self, remove: Mapping[str, int] | None = None, add: Sequence[str] = ()) -> str:
        """Return a shell command with some options changed.

        Args:
            remove: options to remove, with their numbers of values.
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
    """Return the words that started this program, "dpmodule" if they are unknown."""
    path = sys.argv[0]
    folder, name = os.path.split(path)
    if name == "__main__.py" and os.path.basename(folder) == "dpmodule":  # python -m dpmodule
        return [sys.executable, "-m", "dpmodule"]
    is_elsewhere = name == "dpmodule" and shutil.which(name) != path
    return [path if is_elsewhere else "dpmodule"]


class SavedRuns:
    """Finds the states of a run that have been saved since its creation."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._before = self._times()

    def newest(self) -> str | None:
        """Return the file that was saved last, None if there is none."""
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
    """Print the saved file and the command that resumes from it, or the command to start again.

    Args:
        saved: the saved file; None: nothing has been saved.
        without: further options to remove from the command, with their numbers of values.
    """
    if saved is None:
        print("interrupted before anything was saved", file=sys.stderr)
        print(f"to start again: {command.changed()}", file=sys.stderr)
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
