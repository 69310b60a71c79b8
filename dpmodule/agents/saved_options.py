"""Options in a file beside a saved agent: JSON, which no program in it can make run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ..base import FileFormatError
from ..files.file_transaction import read_settled

__all__ = ["RUN_OPTIONS", "load_options", "options_file", "packed_options"]

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
    """Return the options of a file.

    Raises:
        FileError: it cannot be read.
        FileFormatError: it is no JSON object.
    """
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
