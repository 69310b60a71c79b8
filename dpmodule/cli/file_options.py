"""The options of ``dpmodule train-files``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from .. import metric
from ..base import MXNetError
from . import file_networks, optimizer_options, options, saving_options

RATES = {"sgd": 0.1, "nag": 0.1, "adagrad": 0.01, "adam": 0.003}
ROWS = 100_000


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options."""
    _add_data_options(parser.add_argument_group("data"))
    _add_network_options(parser.add_argument_group("network"))
    _add_training_options(parser.add_argument_group("training"))
    optimizer_options.add_options(parser.add_argument_group("optimizer"), "adagrad", RATES)
    saving_options.add_options(
        parser.add_argument_group("files that are written"),
        "train on the lines that are left in the epoch in which Ctrl-C or an error ended the run under PREFIX, if "
        "there is one (default: start anew)",
    )


def _add_data_options(group: Any) -> None:
    group.add_argument(
        "--feed",
        type=options.input_file,
        metavar="FILE",
        help="description of the lines, in the text format of mx.DataFeedDesc (default: none, it is needed)",
    )
    group.add_argument(
        "--files",
        type=options.filled,
        nargs="+",
        default=[],
        metavar="PATTERN",
        help="files to train on, plain or .gz, or patterns such as 'part-*' (default: none, they are needed)",
    )
    group.add_argument(
        "--validation",
        type=options.filled,
        nargs="+",
        default=[],
        metavar="PATTERN",
        help="files whose metric is computed after every epoch (default: none)",
    )
    group.add_argument(
        "--label",
        type=options.filled,
        metavar="SLOT",
        help="the slot to be predicted (default: the only one whose name ends in 'label')",
    )
    group.add_argument(
        "--on-bad-line",
        choices=["error", "skip"],
        default="error",
        help="what to do with a line that is not as described; skipped ones are counted (default: error)",
    )
    options.add_check_labels(group, "raise")
    group.add_argument(
        "--allow-pipe-command",
        action="store_true",
        help="run the description's pipe_command, a program that files go through (default: refuse it)",
    )


def _add_network_options(group: Any) -> None:
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--net",
        choices=sorted(file_networks.NETS),
        help="bag of words, factorization machine, logistic regression or wide and deep, over the slots that are used "
        "(default: bow, or the saved one with --load-epoch)",
    )
    which.add_argument(
        "--symbol",
        type=options.input_file,
        metavar="FILE",
        help="train the network in this -symbol.json, whose inputs are named as slots are (default: none)",
    )
    group.add_argument(
        "--rows",
        type=table_rows,
        action="append",
        default=[],
        metavar="[SLOT=]COUNT",
        help="rows of the tables of all slots, or of one slot, once for each; every id must be below it "
        f"(default: {ROWS})",
    )
    group.add_argument(
        "--width",
        type=options.positive,
        help=f"numbers of a row of an embedding (default: {_defaults(lambda kind: kind.width)})",
    )
    shown = _defaults(lambda kind: ",".join(map(str, kind.hidden)))
    group.add_argument(
        "--hidden",
        type=hidden,
        metavar="LIST",
        help=f"units of the hidden layers, or none (default: {shown})",
    )
    group.add_argument(
        "--dropout",
        type=options.share,
        help="share of a hidden layer's units that is dropped in training (default: 0)",
    )
    group.add_argument(
        "--classes", type=options.whole(2), help="number of classes, with --net bow (default: 2)"
    )


def _defaults(of: Callable[[file_networks.NetworkKind], Any]) -> str:
    found = {name: of(kind) for name, kind in file_networks.NETS.items()}
    return "; ".join(f"{value} for {name}" for name, value in found.items() if value)


def _add_training_options(group: Any) -> None:
    group.add_argument(
        "--workers",
        type=options.positive,
        default=1,
        metavar="COUNT",
        help="how many workers train at once; no more than there are files without --split-files (default: 1)",
    )
    group.add_argument(
        "--split-files",
        action="store_true",
        help="cut files by bytes into work for all workers (default: each is read by one)",
    )
    group.add_argument(
        "--mode",
        choices=["auto", "native", "process", "serial"],
        default="auto",
        help="threads of C++, processes, or this process alone (default: auto, the fastest that has the network)",
    )
    group.add_argument(
        "--epochs", type=options.positive, default=10, help="number of the last epoch (default: 10)"
    )
    group.add_argument(
        "--batch-size", type=options.positive, help="lines of a batch (default: the description's)"
    )
    group.add_argument(
        "--metric",
        type=metric_names,
        metavar="LIST",
        help="what is printed after each epoch, as mx.metric.create takes it, such as auc,acc (default: auc for two "
        "classes, else acc)",
    )
    group.add_argument(
        "--timeout",
        type=options.finite("a number of seconds above 0", lambda number: number > 0),
        default=60.0,
        metavar="SECONDS",
        help="how long a worker may go without finishing a batch (default: 60)",
    )
    group.add_argument("--seed", type=options.seed, default=0, help="seed of all random numbers (default: 0)")
    group.add_argument(
        "--quiet",
        action="store_true",
        help="no progress bar, and a line for the last epoch only (default: one for each)",
    )


def table_rows(text: str) -> tuple[str | None, int]:
    """Read rows of tables, such as "90000", or those of one slot, such as "words=90000"."""
    name, equals, count = text.rpartition("=")
    try:
        if bool(name) == bool(equals):
            return name or None, options.positive(count)
    except argparse.ArgumentTypeError:
        pass
    raise argparse.ArgumentTypeError(
        f"{text!r}, expected a slot and a number of rows such as 'words=90000', or a number for all slots"
    )


def hidden(text: str) -> tuple[int, ...]:
    """Read units of hidden layers, such as "128,96"; "none" is no layer."""
    if text.lower() == "none":
        return ()
    try:
        return tuple(options.positive(part.strip()) for part in text.split(","))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r}, expected units such as '128,96', or none") from None


def metric_names(text: str) -> list[str]:
    """Read names of metrics, such as "auc,acc"."""
    names = [name.strip() for name in text.split(",")]
    try:
        metric.create(list(names))
    except (MXNetError, TypeError) as error:
        raise argparse.ArgumentTypeError(f"{text!r}, expected names of metrics: {error}") from None
    return names
