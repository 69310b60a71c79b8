"""The parser of the command line, and the types of its options.

A type converts the text of one argument, or raises an error that names the option, the text and the expected value.
"""

from __future__ import annotations

import argparse
import inspect
import math
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from .. import kvstore, metric
from ..base import DeviceError, MXNetError, did_you_mean
from ..checkpoint import LAST
from ..context import Context
from ..executor import passes
from ..optimizer.base import registry as optimizers

_CONTEXT = re.compile(r"\s*(cpu|gpu)(?:\((\d{1,9})\)|:(\d{1,9}))?\s*")
_WHOLE = re.compile(r"-?[0-9]{1,12}")
_NEGATIVE = re.compile(r"-(\d|\.\d|inf|nan).*", re.IGNORECASE)
_MAX_INT = 2**31 - 1
_MAX_NUMBER = 1e6
"""Largest allowed rate, decay or factor; larger numbers would overflow."""
PASSES = [each.name for each in passes.PASSES]

T = TypeVar("T")


class CommandParser(argparse.ArgumentParser):
    """A parser without abbreviated option names, with errors in one line.

    Args:
        keep_rest: whether to store all words as `rest` for the command, without parsing them.
    """

    def __init__(self, keep_rest: bool = False, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})
        self._keep_rest = keep_rest

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return a namespace and the unknown words."""
        if not self._keep_rest:
            result, unknown = super().parse_known_args(args, namespace)
            if unknown:
                names = [word.partition("=")[0] for word in unknown if word.startswith("--")]
                hint = did_you_mean(names[0], self._option_string_actions, *names[1:]) if names else ""
                self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
            return result, unknown
        result, _ = super().parse_known_args([], namespace)
        result.rest = list(args)
        return result, []

    def error(self, message: str) -> Any:
        """Print an error with similar choices, and exit with 2."""
        if match := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            message += did_you_mean(match[1], re.findall(r"[\w.-]+", match[2]))
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def join_negative_values(words: Sequence[str]) -> list[str]:
    """Return the words with negative numbers joined to their options, since argparse reads "-1e3" as an option."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1].startswith("--") and "=" not in joined[-1] and _NEGATIVE.fullmatch(word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _type_error(text: str, expected: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"{text!r}, expected {expected}")


def _parse_all(read: Callable[[str], T], parts: Sequence[str], text: str, expected: str) -> list[T]:
    """Convert the parts of a text; an error names the whole text."""
    try:
        return [read(part) for part in parts]
    except argparse.ArgumentTypeError:
        raise _type_error(text, expected) from None


def nonempty(text: str) -> str:
    """Convert any text that is not empty."""
    if not text.strip():
        raise _type_error(text, "a name")
    return text


def integer(low: int, high: int = _MAX_INT) -> Callable[[str], int]:
    """Return a type for integers from `low` to `high`."""

    def read(text: str) -> int:
        if not _WHOLE.fullmatch(text) or not low <= int(text) <= high:
            raise _type_error(text, f"an integer from {low} to {high}")
        return int(text)

    return read


count = integer(0)
positive = integer(1)
class_count = integer(2)
seed = integer(0, 2**32 - 1)
opset = integer(1, 99)
edge = integer(1, 65500)
quality = integer(1, 100)
thread_count = integer(1, 256)


def finite(expected: str, fits: Callable[[float], bool]) -> Callable[[str], float]:
    """Return a type for numbers that satisfy `fits` and are not absurdly large."""

    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not abs(number) <= _MAX_NUMBER or not fits(number):
            raise _type_error(text, expected)
        return number

    return read


learning_rate = finite(f"a number above 0, at most {_MAX_NUMBER:.0f}", lambda number: number > 0)
weight_decay = finite(f"a number from 0 to {_MAX_NUMBER:.0f}", lambda number: number >= 0)
momentum = finite("a number from 0, below 1", lambda number: 0 <= number < 1)
scale = finite(f"a number other than 0, at most {_MAX_NUMBER:.0f}", lambda number: number != 0)
share = finite("a share from 0, below 1", lambda number: 0 <= number < 1)
fraction = finite("a number from 0 to 1", lambda number: 0 <= number <= 1)
ratio = finite("a number above 0, at most 1", lambda number: 0 < number <= 1)
tolerance = finite("a number from 0", lambda number: number >= 0)
timeout = finite("a number of seconds above 0", lambda number: number > 0)
interval = finite("a number of seconds from 0", lambda number: number >= 0)


def epoch(text: str) -> int | str:
    """Convert the number of an epoch, or "last" for a state saved within an epoch."""
    if text == LAST:
        return text
    try:
        return count(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, or {LAST!r}") from None


def contexts(text: str) -> list[Context]:
    """Convert devices such as "cpu(0),cpu(1)"; "cpu" means "cpu(0)"."""
    matches = [_CONTEXT.fullmatch(part) for part in text.split(",")]
    if not all(matches):
        raise _type_error(text, "devices such as 'cpu(0),cpu(1)' or 'gpu(0)'")
    devices = [Context(match[1], int(match[2] or match[3] or 0)) for match in matches if match]
    try:
        return [device.check() for device in devices]
    except MXNetError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def device(text: str) -> Context:
    """Convert one device."""
    devices = contexts(text)
    if len(devices) != 1:
        raise _type_error(text, "one device")
    return devices[0]


def workload(text: str) -> list[float]:
    """Convert shares of a batch per device, such as "1,3"."""
    expected = "positive numbers such as '1,3', one for each device"
    return _parse_all(finite(expected, lambda number: number > 0), text.split(","), text, expected)


def shape(text: str) -> tuple[int, ...]:
    """Convert the shape of one sample, such as "1,8,8"."""
    parts = [part.strip() for part in text.strip().removeprefix("(").removesuffix(")").split(",")]
    if len(parts) > 1 and not parts[-1]:  # as Python writes (64,)
        parts.pop()
    expected = f"the shape of one sample such as '1,8,8', each from 1 to {_MAX_INT}"
    return tuple(_parse_all(positive, parts, text, expected))


def input_shape(text: str) -> tuple[str | None, tuple[int, ...]]:
    """Convert the name and the shape of an input, such as "data=1,3,224,224", or the shape of one sample.

    A colon is allowed in place of the equals sign.
    """
    name, equals, sizes = text.rpartition("=" if "=" in text else ":")
    expected = "a name and a shape such as 'data=1,3,224,224', or the shape of one sample such as '3,224,224'"
    if bool(name) != bool(equals):
        raise _type_error(text, expected)
    return name or None, _parse_all(shape, [sizes], text, expected)[0]


def table_rows(text: str) -> tuple[str | None, int]:
    """Convert the number of rows of tables, such as "90000", or of one slot, such as "words=90000"."""
    name, equals, count = text.rpartition("=")
    expected = "a slot and a number of rows such as 'words=90000', or a number for all slots"
    if bool(name) != bool(equals):
        raise _type_error(text, expected)
    return name or None, _parse_all(positive, [count], text, expected)[0]


def hidden(text: str) -> tuple[int, ...]:
    """Convert units of hidden layers, such as "128,96"; "none" means no layers."""
    if text.lower() == "none":
        return ()
    parts = [part.strip() for part in text.split(",")]
    return tuple(_parse_all(positive, parts, text, "units such as '128,96', or none"))


def input_file(text: str) -> str:
    """Convert the name of an existing file."""
    if os.path.isdir(text):
        raise _type_error(text, "a file, not a folder")
    if not os.path.exists(text):
        raise _type_error(text, "an existing file")
    return text


def pass_names(text: str) -> list[str]:
    """Convert names of passes, separated by commas."""
    names = [name.strip() for name in text.split(",")]
    if not set(names) <= set(PASSES):
        raise _type_error(text, f"some of {', '.join(PASSES)}")
    return names


def metric_names(text: str) -> list[str]:
    """Convert names of metrics, such as "auc,acc"."""
    names = [name.strip() for name in text.split(",")]
    try:
        metric.create(list(names))
    except (MXNetError, TypeError) as error:
        raise _type_error(text, f"names of metrics: {error}") from None
    return names


def optimizer_name(text: str) -> str:
    """Convert the name of an optimizer without required arguments."""
    names = sorted(name for name in optimizers.offered() if not _required_arguments(optimizers.find(name)))
    if text.lower() not in names:
        raise _type_error(text, f"one of {', '.join(names)}")
    return text.lower()


def _required_arguments(cls: Any) -> list[str]:
    """Return the arguments of a class without defaults."""
    parameters = inspect.signature(cls).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]


def store(text: str) -> str | None:
    """Convert the name of a kvstore; "none" means None."""
    name = text.lower()
    if name == "none":
        return None
    if name in kvstore.DIST:
        return name
    try:
        kvstore.create(text)
    except DeviceError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    except MXNetError:
        raise _type_error(text, "local, device, dist_sync, dist_async or none") from None
    return text
