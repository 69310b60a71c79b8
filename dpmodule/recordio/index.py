"""Index files of record files: which record begins where."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from ..base import FileError, FileFormatError
from ..files.atomic import write_atomically
from ..files.file_kind import regular_file
from .framing import RecordFile

_logger = logging.getLogger(__name__)

Index = list[tuple[Any, int]]


def write_line(key: Any, offset: int) -> str:
    """Return the line of one record."""
    return f"{key}\t{offset}\n"


def load_index(idx_path: str, rec_path: str, key_type: Callable[[str], Any] = int) -> Index:
    """Return the keys and byte offsets of an index file; make one that is lost, or no longer fits, again.

    An index is checked by its first, middle and last offsets. One made again has the keys of the old one if
    there are as many records, and 0, 1, 2, ... otherwise; it is written beside the record file where that is
    possible, and what was done is logged.
    """
    file = RecordFile(rec_path)
    try:
        index = _read(idx_path, key_type)
        if index is None:
            reason, keys = f"there is no index file {idx_path}", []
        elif _fits(index, file):
            return index
        else:
            reason, keys = f"the index file {idx_path} does not fit", [key for key, _ in index]
        offsets = list(file.offsets())
    finally:
        file.close()
    if len(keys) != len(offsets):
        keys = [key_type(str(i)) for i in range(len(offsets))]
    index = list(zip(keys, offsets, strict=True))
    where = _store(idx_path, index)
    _logger.warning("%s: %s; made one again for %d records, %s", rec_path, reason, len(index), where)
    return index


def _read(path: str, key_type: Callable[[str], Any]) -> Index | None:
    try:
        with open(path, encoding="utf-8", opener=regular_file) as file:
            return [
                _parse(line, number, path, key_type) for number, line in enumerate(file, 1) if line.strip()
            ]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(error.errno, f"index file: {error.strerror}", path) from error
    except UnicodeDecodeError as error:
        raise FileFormatError(
            f"{path}: byte {error.start}: no text; an index file has lines of key and offset"
        ) from error


def _parse(line: str, number: int, path: str, key_type: Callable[[str], Any]) -> tuple[Any, int]:
    key, _, offset = line.strip().partition("\t")
    try:
        position = int(offset)
        if not 0 <= position < 2**63:  # beyond what a file can be asked for
            raise ValueError(offset)
        return key_type(key), position
    except (ValueError, TypeError) as error:
        raise FileFormatError(
            f"{path}: line {number}: {line.strip()[:60]!r} is no key, tab and byte offset; if the file is not "
            "an index, delete it and it is made again from the record file"
        ) from error


def _fits(index: Index, file: RecordFile) -> bool:
    """Say whether records begin where an index claims."""
    if not index:
        return file.size == 0
    offsets = [offset for _, offset in index]
    probes = {offsets[0], offsets[len(offsets) // 2], offsets[-1], max(offsets)}
    if min(offsets) < 0:
        return False
    try:
        return all(file.starts_at(offset) for offset in probes)
    except FileFormatError:
        return False


def _store(path: str, index: Index) -> str:
    """Write an index file if that is possible, and say what became of it."""
    text = "".join(write_line(key, offset) for key, offset in index)
    try:
        write_atomically(path, text.encode())
    except (FileError, OSError) as error:
        return f"in memory only ({os.strerror(error.errno) if error.errno else error})"
    return f"written to {path}"
