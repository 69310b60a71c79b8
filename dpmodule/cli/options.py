"""Argument types and groups of arguments that several commands share."""

from __future__ import annotations

import argparse
import re

from ..context import Context

__all__ = ["add_data_options", "contexts", "fraction", "named_shape", "positive", "shape", "workload"]

_CONTEXT = re.compile(r"\s*(cpu|gpu)(?:\((\d+)\)|:(\d+))?\s*")


def contexts(text: str) -> list[Context]:
    """Read devices such as "cpu(0),cpu(1)"; "cpu" alone is "cpu(0)"."""
    found = [_CONTEXT.fullmatch(part) for part in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r}, expected devices such as 'cpu(0),cpu(1)' or 'gpu(0)'")
    return [Context(match[1], int(match[2] or match[3] or 0)) for match in found if match]


def workload(text: str) -> list[float]:
    """Read shares of a batch per device, such as "1,3"."""
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = []
    if not shares or min(shares) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r}, expected positive numbers such as '1,3', one per device")
    return shares


def shape(text: str) -> tuple[int, ...]:
    """Read the shape of one sample, such as "1,8,8"."""
    try:
        sizes = tuple(int(part) for part in text.strip("()").split(",") if part.strip())
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r}, expected the shape of one sample such as '1,8,8'")
    return sizes


def named_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Read an input's name and its whole shape, such as "data=1,3,224,224"."""
    name, _, sizes = text.partition("=")
    if not name or not sizes:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a name and a shape such as 'data=1,3,224,224'")
    return name, shape(sizes)


def positive(text: str) -> int:
    """Read a whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a whole number from 1")
    return int(text)


def fraction(text: str) -> float:
    """Read a number from 0 to 1."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a number from 0 to 1")
    return number


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say where samples come from."""
    group = parser.add_argument_group("data")
    group.add_argument(
        "--data",
        metavar="FILE",
        help="an .npz with arrays x and y, or a CSV; without it scikit-learn's 1797 handwritten digits",
    )
    group.add_argument(
        "--label-column",
        default="-1",
        metavar="COLUMN",
        help="name or number of the CSV's column of class numbers, or 'none' (default: the last)",
    )
    group.add_argument(
        "--shape", type=shape, metavar="C,H,W", help="shape of one sample (default: as stored)"
    )
    group.add_argument(
        "--scale", type=float, help="factor on every value (default: 1/16 for the digits, else 1)"
    )
    group.add_argument(
        "--validation",
        type=fraction,
        default=0.2,
        metavar="SHARE",
        help="share of the samples kept apart for validation, the same ones every time (default: 0.2)",
    )
