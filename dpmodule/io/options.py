"""Keyword options of the file iterators: declared in tables, given as values or as text."""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from ..base import ArgumentError
from ..ops.attrs import choice, integer, string
from ..ops.spec import REQUIRED, Attr

Options = Mapping[str, Attr]

OptionValues = SimpleNamespace
"""Options as `parse_options` returns them, one attribute each."""

positive = integer(low=1)


def parse_options(owner: str, options: Options, given: Mapping[str, Any]) -> OptionValues:
    """Return an object with one attribute per option.

    Options that the iterator does not have are named in a warning and otherwise ignored, since programs
    for MXNet give some that it drops without a word.

    Args:
        given: what the user gave; text is read as MXNet reads it.
    """
    values = {}
    for name, option in options.items():
        if name not in given:
            if option.default is REQUIRED:
                raise ArgumentError(f"{owner}: {name} is required: {option.doc}, {option.type.expects}")
            values[name] = option.default
            continue
        try:
            values[name] = option.type.parse(given[name])
        except (ValueError, TypeError, KeyError, OverflowError, SyntaxError, RecursionError, MemoryError):
            raise ArgumentError(
                f"{owner}: {name} is {given[name]!r}, expected {option.type.expects} ({option.doc})"
            ) from None
    for name in given:
        if name not in options:
            near = difflib.get_close_matches(name, options, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            warnings.warn(f"{owner} has no option {name!r} and ignores it{hint}", stacklevel=3)
    return SimpleNamespace(**values)


def describe(cls: type, options: Options) -> None:
    """Give a class the signature and the list of arguments that its options make."""
    empty = inspect.Parameter.empty
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=empty if option.default is REQUIRED else option.default,
            annotation=option.type.annotation,
        )
        for name, option in options.items()
    ]
    cls.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    lines = [f"    {name}: {option.doc}; {option.type.expects}." for name, option in options.items()]
    text = inspect.getdoc(cls) or ""
    cls.__doc__ = text.replace("Args:\n    options: see below.", "Args:\n" + "\n".join(lines))


BATCH = {"batch_size": Attr(positive, "number of examples in a batch")}

PREFETCH = {
    "prefetch_buffer": Attr(integer(low=0), "number of batches read ahead", 4),
    "ctx": Attr(choice("cpu", "gpu"), "accepted and without effect: batches are made on the CPU", "gpu"),
}

THREADS = {
    "preprocess_threads": Attr(
        positive, "number of threads that parse or decode; results do not depend on it", 4
    ),
}

PARTS = {
    "num_parts": Attr(positive, "number of parts that the examples are split into", 1),
    "part_index": Attr(integer(low=0), "which part to read, from 0", 0),
}

NAMES = {
    "data_name": Attr(string, "name of the data", "data"),
    "label_name": Attr(string, "name of the labels", "softmax_label"),
}


def check_parts(owner: str, o: OptionValues) -> None:
    """Refuse a part that does not exist."""
    if o.part_index >= o.num_parts:
        raise ArgumentError(
            f"{owner}: part_index is {o.part_index}, expected 0 to {o.num_parts - 1} (num_parts - 1)"
        )
