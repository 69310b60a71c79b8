"""Options of all commands, built from the rows of ``options.json``.

A row has the names of an option and the name of its value in the help, such as "-ne --num-examples COUNT"; its type: a
function of `option_types`, a list of choices, "flag" (given or not) or "switch" (--name or --no-name); its default; and
its help, to which the default is appended if the text does not have it. The name of "shared" rows is replaced by them;
the rows of a nested list exclude each other. Words in braces are replaced by `_placeholders`.

"in place of arguments" translates advice in errors of the library to command-line options.
"""

from __future__ import annotations

import argparse
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ..base import ArgumentError
from ..optimizer import Optimizer
from . import networks, option_types
from .data import FORMATS
from .models import KINDS

_DEFAULT_MOMENTUM = {"sgd": 0.9, "nag": 0.9}
_DEFAULT_RATES: Mapping[str, Mapping[str, float]] = {
    "fit": {"sgd": 0.1, "nag": 0.1, "adam": 0.003},
    "train-files": {"sgd": 0.1, "nag": 0.1, "adagrad": 0.01, "adam": 0.003},
}
"""Learning rates by command and optimizer that differ from the optimizer's default."""
_CHOICES = {
    "{formats}": ["auto", *FORMATS],
    "{networks}": sorted(networks.NETWORKS),
    "{file_networks}": sorted(networks.FILE_NETWORKS),
    "{kinds}": sorted(KINDS),
}


@cache
def table() -> Any:
    """Return the content of ``options.json``."""
    text = Path(__file__).with_name("options.json").read_text(encoding="utf-8")
    for name, value in _placeholders().items():
        text = text.replace(f"{{{name}}}", value)
    return json.loads(text)


def _placeholders() -> dict[str, str]:
    """Return the replacements of words in braces."""
    widths = {name: kind.width for name, kind in networks.FILE_NETWORKS.items()}
    hidden = {name: ",".join(map(str, kind.hidden)) for name, kind in networks.FILE_NETWORKS.items()}
    return {
        "hidden": _join_sizes(hidden),
        "widths": _join_sizes(widths),
        "rows": str(networks.TABLE_ROWS),
        "network names": ", ".join(sorted(networks.NETWORKS)),
        "kinds of models": "; ".join(f"{name}: {what}" for name, what in KINDS.items()),
        "passes": ", ".join(option_types.PASSES),
        **{f"rates of {command}": _describe_rates(rates) for command, rates in _DEFAULT_RATES.items()},
    }


def _join_sizes(sizes: Mapping[str, Any]) -> str:
    return "; ".join(f"{size} for {name}" for name, size in sizes.items() if size)


def _describe_rates(rates: Mapping[str, float]) -> str:
    by_rate: dict[float, list[str]] = {}
    for name, rate in rates.items():
        by_rate.setdefault(rate, []).append(name)
    return ", ".join(f"{rate:g} for {' and '.join(names)}" for rate, names in by_rate.items())


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the options of a command to its parser."""
    for title, rows in table()["commands"][command]["groups"].items():
        group: Any = parser.add_argument_group(title) if title else parser
        for row in _rows(rows):
            target = group if isinstance(row, dict) else group.add_mutually_exclusive_group()
            for option in [row] if isinstance(row, dict) else _rows(row):
                names, arguments = _arguments(**option)
                target.add_argument(*names, **arguments)


def own_options(*commands: str) -> frozenset[str]:
    """Return the attribute names of the options of some commands."""
    groups = [rows for command in commands for rows in table()["commands"][command]["groups"].values()]
    rows = [row for group in groups for row in _rows(group)]
    return frozenset(
        row.get("dest", _split_name(row["name"])[0][-1].lstrip("-").replace("-", "_")) for row in rows
    )


def _rows(listed: Sequence[Any]) -> Iterator[Any]:
    """Yield rows, with shared rows in place of their name."""
    for row in listed:
        yield from table()["shared"][row] if isinstance(row, str) else [row]


def _split_name(name: str) -> tuple[list[str], list[str]]:
    """Return the names of an option or argument, and the name of its value."""
    words = name.split()
    count = sum(word.startswith("-") for word in words) or 1
    return words[:count], words[count:]


def _arguments(
    name: str, help: str, type: Any = None, default: Any = None, **more: Any
) -> tuple[list[str], dict[str, Any]]:
    """Return the arguments of `add_argument` for a row."""
    names, value = _split_name(name)
    if default is not None and "(default" not in help:
        help += f" (default: {f'{default:g}' if isinstance(default, float) else default})"
    arguments = {"help": help, "default": default, **more}
    if value:
        arguments["metavar"] = value[0]
    if type == "flag":
        arguments.update(action="store_true", default=False)
    elif type == "switch":
        arguments.update(action=argparse.BooleanOptionalAction)
    elif isinstance(type, list) or type in _CHOICES:
        arguments["choices"] = _CHOICES.get(str(type), type)
    elif type is not None:
        arguments["type"] = getattr(option_types, type)
    return names, arguments


def check_optimizer(args: argparse.Namespace) -> None:
    """Check that the optimizer supports the given options."""
    takes = inspect.signature(Optimizer.opt_registry[args.optimizer]).parameters
    if args.momentum is not None and "momentum" not in takes:
        raise ArgumentError(f"--momentum {args.momentum:g} is not supported by --optimizer {args.optimizer}")


def optimizer_params(args: argparse.Namespace, command: str) -> dict[str, Any]:
    """Return the arguments of a command's optimizer, except those that depend on data."""
    momentum = _DEFAULT_MOMENTUM.get(args.optimizer) if args.momentum is None else args.momentum
    rate = _DEFAULT_RATES[command].get(args.optimizer) if args.lr is None else args.lr
    params = {"wd": args.wd, "momentum": momentum, "learning_rate": rate}
    return {name: value for name, value in params.items() if value is not None}
