"""Options: their names and numbers checked, and those of an agent saved beside its parameters."""

from __future__ import annotations

import difflib
import json
import math
import os
import warnings
from collections.abc import Collection, Mapping
from typing import Any

from ..base import ArgumentError, FileFormatError
from ..files import read_settled

_NAMES = (
    "batch_sort",
    "batchsize",
    "cands_datafile",
    "context_length",
    "datatype",
    "hide_labels",
    "hogwild_ahead",
    "hogwild_mode",
    "hogwild_timeout_s",
    "include_labels",
    "max_batch_tokens",
    "model_file",
    "numthreads",
    "on_bad_line",
)
"""Options by which worlds and teachers run differently, and which a program does not use for something else."""

_NEAR = 0.85


def check_names(opt: Mapping[str, Any], names: Collection[str] = _NAMES) -> None:
    """Refuse options whose names differ from known ones only in case, ``_`` and ``-``; warn of others that are close.

    An option that is there under its right name, too, may have a neighbour of any name.

    Args:
        names: those that are known (default: those of worlds and teachers).
    """
    missing = {_letters(name): name for name in names if name not in opt}
    for name in (name for name in opt if name not in names):
        letters = _letters(str(name))
        if letters in missing:
            raise ArgumentError(
                f"there is no option {name!r}; did you mean {missing[letters]!r}? An option of your own needs another "
                "name"
            )
        for near in difflib.get_close_matches(letters, missing, 1, _NEAR):
            warnings.warn(
                f"opt has {name!r}, which nothing here reads; did you mean {missing[near]!r}?",
                stacklevel=3,
            )


def _letters(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def whole(opt: Mapping[str, Any], name: str, default: int | None, least: int = 1) -> int:
    """Return an option that is a whole number.

    Args:
        default: what an option that is missing or None is; None: there has to be one.
    """
    number = default if opt.get(name) is None else opt[name]
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise ArgumentError(f"{name} is {number!r}, expected a whole number from {least}")
    return number


def real(opt: Mapping[str, Any], name: str, default: float, least: float, below: float = math.inf) -> float:
    """Return an option that is a number.

    Args:
        default: what an option that is missing or None is.
    """
    number = opt.get(name)
    if number is None:
        return default
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not least <= number < below:
        limit = "" if below == math.inf else f" and below {below:g}"
        raise ArgumentError(f"{name} is {number!r}, expected a number from {least:g}{limit}")
    return float(number)


RUN_OPTIONS = frozenset(
    {
        "batch_sort",
        "batchindex",
        "batchsize",
        "context_length",
        "contexts",
        "datapath",
        "datatype",
        "hide_labels",
        "hogwild_mode",
        "include_labels",
        "max_batch_tokens",
        "metrics",
        "model_file",
        "num_epochs",
        "numthreads",
        "on_bad_line",
        "override",
        "parlai_home",
        "seed",
        "task",
        "task_arguments",
        "threadindex",
    }
)
"""Options of a run, which are not saved with what it learned."""


def options_file(model_file: str) -> str:
    """Return the path of the options that belong to a model file."""
    return f"{model_file}.opt"


def dictionary_file(model_file: str) -> str:
    """Return the path of the dictionary that belongs to a model file."""
    return f"{model_file}.dict"


def packed_options(opt: Mapping[str, Any]) -> bytes:
    """Return options as the content of a file; those of the run, and what JSON has no form for, are left out."""
    kept = {key: value for key, value in opt.items() if key not in RUN_OPTIONS and _is_plain(value)}
    return json.dumps(kept, indent=1, sort_keys=True).encode() + b"\n"


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(each) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def load_options(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the options of a file."""
    data = read_settled(path)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{os.fspath(path)}: no options in JSON: {error}") from error
    if not isinstance(found, dict):
        raise FileFormatError(
            f"{os.fspath(path)}: {type(found).__name__} in JSON, expected an object with options"
        )
    return found
