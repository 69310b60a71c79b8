"""Checks of options: numbers, and names that are misspelt."""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Collection, Mapping
from typing import Any

from ..base import ArgumentError

__all__ = ["check_names", "real", "whole"]

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
        opt: options.
        names: those that are known (default: those of worlds and teachers).

    Raises:
        ArgumentError: there is such a name.
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
        opt: options.
        name: of the option.
        default: what an option that is missing or None is; None: there has to be one.
        least: the smallest that it may be.

    Raises:
        ArgumentError: it is something else.
    """
    number = default if opt.get(name) is None else opt[name]
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise ArgumentError(f"{name} is {number!r}, expected a whole number from {least}")
    return number


def real(opt: Mapping[str, Any], name: str, default: float, least: float, below: float = math.inf) -> float:
    """Return an option that is a number.

    Args:
        opt: options.
        name: of the option.
        default: what an option that is missing or None is.
        least: the smallest that it may be.
        below: what it has to be below of.

    Raises:
        ArgumentError: it is something else.
    """
    number = opt.get(name)
    if number is None:
        return default
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not least <= number < below:
        limit = "" if below == math.inf else f" and below {below:g}"
        raise ArgumentError(f"{name} is {number!r}, expected a number from {least:g}{limit}")
    return float(number)
