"""What ``train-files`` trains on: the description of lines, files, and the network over them."""

from __future__ import annotations

import argparse
import glob
from collections.abc import Sequence
from dataclasses import dataclass

from .. import symbol
from ..base import ArgumentError, did_you_mean
from ..hogwild import DataFeedDesc, Part, check_files
from ..hogwild.data_feed import first_batch
from ..symbol import Symbol
from . import file_networks, file_options
from .file_networks import NETS, NetworkSizes
from .saved import SavedNetwork

_DEFAULT_NET = "bow"
NO_LINE = "--files: in none of the files is a line to train on"


@dataclass(frozen=True)
class FileData:
    """What lines look like, and where they are."""

    feed: DataFeedDesc
    label: str
    files: Sequence[str]
    validation: Sequence[str]


def read(args: argparse.Namespace) -> FileData:
    """Return what the options say of data."""
    if args.feed is None or not args.files:
        raise ArgumentError("which files? Expected --feed FILE, their description, and --files PATTERN")
    feed = DataFeedDesc(args.feed, allow_pipe_command=args.allow_pipe_command)
    if args.batch_size is not None:
        feed.set_batch_size(args.batch_size)
    label = file_networks.find_label(feed, args.label)
    return FileData(feed, label, _matching(args.files, "--files"), _matching(args.validation, "--validation"))


def _matching(patterns: Sequence[str], option: str) -> list[str]:
    """Return the files that patterns name, each once."""
    found: dict[str, None] = {}
    for pattern in patterns:
        is_pattern = glob.has_magic(pattern)
        paths = sorted(glob.glob(pattern, recursive=True)) if is_pattern else [pattern]
        if not paths:
            raise ArgumentError(
                f"{option} {pattern!r} names no file, expected a path or a pattern such as 'part-*'"
            )
        found.update(dict.fromkeys(paths))
    return check_files(list(found)) if found else []


def _values(data: FileData, on_bad_line: str) -> dict[str, int]:
    """Return how many numbers the first line has for each slot of floats."""
    floats = [slot.name for slot in data.feed.used_slots if slot.type == "float"]
    one = DataFeedDesc(
        data.feed.desc(), allow_pipe_command=True
    )  # which the user has allowed, or there is none
    one.set_batch_size(1)
    one.set_dense_slots(floats)
    first = first_batch(one, map(Part, data.files), on_bad_line)
    if first is None:
        raise ArgumentError(NO_LINE)
    return {name: int(first.slots[name].values.shape[1]) for name in floats}


def choose(args: argparse.Namespace, data: FileData, loaded: SavedNetwork | None) -> Symbol:
    """Return the network that the options name.

    Args:
        loaded: what ``--load-epoch`` has loaded, None without it.
    """
    if loaded is not None and args.net is None and args.symbol is None and not _sizes(args):
        return _checked(loaded.net, data, loaded.name)
    if args.symbol is not None:
        for option in _sizes(args):
            raise ArgumentError(
                f"--{option} {_shown(args, option)} does not go with --symbol, a network that has its sizes"
            )
        net = _checked(symbol.load(args.symbol), data, args.symbol)
    else:
        net = network_of(args, data)
    if loaded is not None and net.tojson() != loaded.net.tojson():
        option = f"--symbol {args.symbol}" if args.symbol is not None else f"--net {args.net or _DEFAULT_NET}"
        raise ArgumentError(
            f"{option} is, with these slots and sizes, another network than {loaded.name}, with which --load-epoch "
            "goes on; leave it out, or begin anew under another --prefix"
        )
    return net


def network_of(args: argparse.Namespace, data: FileData) -> Symbol:
    """Return the network of ``--net``."""
    name = args.net or _DEFAULT_NET
    kind = NETS[name]
    has = {
        "width": kind.width > 0,
        "hidden": bool(kind.hidden),
        "dropout": bool(kind.hidden),
        "classes": not kind.is_binary,
    }
    for option, takes in has.items():
        if getattr(args, option) is not None and not takes:
            raise ArgumentError(
                f"--{option} {_shown(args, option)} does not go with --net {name}, which has none to choose"
            )
    sizes = NetworkSizes(
        *_rows(args, data),
        kind.width if args.width is None else args.width,
        kind.hidden if args.hidden is None else args.hidden,
        args.dropout or 0.0,
        args.classes or 2,
        _values(data, args.on_bad_line),
    )
    return file_networks.build(name, data.feed, data.label, sizes)


def _rows(args: argparse.Namespace, data: FileData) -> tuple[int, dict[str, int]]:
    """Return the rows of all tables, and those of some slots."""
    ids = [slot.name for slot in data.feed.used_slots if slot.type == "uint64" and slot.name != data.label]
    rows, rows_of = file_options.ROWS, {}
    for name, count in args.rows:
        if name is None:
            rows = count
        elif name in ids:
            rows_of[name] = count
        else:
            raise ArgumentError(
                f"--rows {name}={count}: {name!r} is no slot of ids that is used; these are "
                f"{', '.join(ids) or 'none'}{did_you_mean(name, ids)}"
            )
    return rows, rows_of


def _sizes(args: argparse.Namespace) -> list[str]:
    """Return the options of sizes that are given."""
    every = ("rows", "width", "hidden", "dropout", "classes")
    return [option for option in every if getattr(args, option) not in (None, [])]


def _shown(args: argparse.Namespace, option: str) -> str:
    value = getattr(args, option)
    if option == "rows":
        name, value = value[-1]
        return str(value) if name is None else f"{name}={value}"
    return (",".join(map(str, value)) or "none") if option == "hidden" else f"{value:g}"


def _checked(net: Symbol, data: FileData, name: str) -> Symbol:
    """Return a network that is to be fed."""
    if data.label not in net.list_arguments():
        variables = [each for each in net.list_arguments() if each not in net.graph.parameters]
        raise ArgumentError(
            f"{name} has no variable {data.label!r}, the feed's label; --label SLOT names another slot. The feed has "
            f"the slots {', '.join(slot.name for slot in data.feed.slots)}, the network the variables "
            f"{', '.join(variables)}{did_you_mean(data.label, variables)}"
        )
    return net
