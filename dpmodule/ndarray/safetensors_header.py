"""The header of a safetensors file: what it says, and whether that can be.

A file is the header's length (u64, little-endian), the header (JSON, padded with blanks), and the bytes of all arrays.
The header has an entry for each array: ``{"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}``, with
offsets from the header's end, and may have texts by name under ``__metadata__``. Arrays lie one behind the other, in
any order, without gaps. Source: the format's description, https://github.com/huggingface/safetensors.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from ..base import FileFormatError
from ..files import likely_kind
from ..ops.dtypes import torch_dtype
from ..ops.shapes import prod

LENGTH_BYTES = 8
METADATA = "__metadata__"
DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "I64": "int64",
    "U64": "uint64",
    "F64": "float64",
}
"""The format's names of element types, and ours; it has further ones that MXNet has not."""

_MOST_BYTES = 100_000_000
"""The longest header that is read; the format's own library has the same limit."""
_MOST_AXES = 64
_MOST_ELEMENTS = 2**59  # beyond, strides would not fit into 64 bits
_MOST_TOLD = 50


class TensorEntry(NamedTuple):
    """An array of the file."""

    name: str
    dtype: str
    """Our name of the element type."""
    shape: tuple[int, ...]
    start: int
    """Offset of its first byte from the header's end."""
    stop: int


class SafetensorsHeader(NamedTuple):
    """What a header says."""

    entries: list[TensorEntry]
    """In the order of the header."""
    metadata: dict[str, str]
    end: int
    """Where in the file the data begin."""


class _TwiceError(ValueError):
    """Two entries have the same name."""


def looks_like(head: bytes) -> bool:
    """Say whether a file that begins like this is a safetensors file, whole or not.

    Args:
        head: its first 9 bytes or more.
    """
    length = int.from_bytes(head[:LENGTH_BYTES], "little")
    return head[LENGTH_BYTES : LENGTH_BYTES + 1] == b"{" and 2 <= length <= _MOST_BYTES


def header_length(head: bytes, size: int, name: str) -> int:
    """Return the length of a header in bytes, which lies whole within the file.

    Args:
        head: the file's first 8 bytes.
        size: the file's size in bytes.
    """
    length = int.from_bytes(head[:LENGTH_BYTES], "little")
    if len(head) < LENGTH_BYTES or size < LENGTH_BYTES + 2:
        meaning = "the file is truncated or damaged" if size else likely_kind(b"")
        raise FileFormatError(f"{name}: byte 0: {size} bytes are not a safetensors file; {meaning}")
    if length > _MOST_BYTES:
        raise FileFormatError(
            f"{name}: byte 0: a header of {length} bytes, expected at most {_MOST_BYTES}; the file is damaged, or no "
            "safetensors file"
        )
    if length > size - LENGTH_BYTES:
        raise FileFormatError(
            f"{name}: byte 0: a header of {length} bytes, but {size - LENGTH_BYTES} are left; the file is truncated or "
            "damaged"
        )
    return length


def read_header(text: bytes, size: int, name: str) -> SafetensorsHeader:
    """Return what a header says, checked against the size of the file.

    Args:
        text: the header's bytes.
        size: the file's size in bytes.
    """
    end = LENGTH_BYTES + len(text)
    content = _parsed(text, name)
    problems: list[str] = []
    metadata = _metadata(content.pop(METADATA, None), problems)
    entries = [entry for key, value in content.items() if (entry := _entry(key, value, problems)) is not None]
    if not problems:
        _check_places(entries, size - end, problems)
    if problems:
        more = len(problems) - _MOST_TOLD
        told = "; ".join(problems[:_MOST_TOLD]) + (f"; and {more} more" if more > 0 else "")
        raise FileFormatError(f"{name}: byte {LENGTH_BYTES} (the header): {told}; the file is damaged")
    return SafetensorsHeader(entries, metadata, end)


def _parsed(text: bytes, name: str) -> dict[str, Any]:
    """Return the JSON of a header."""
    where = f"{name}: byte {LENGTH_BYTES} (the header)"
    try:
        if text[:1] != b"{":
            raise ValueError("it does not begin with a brace")
        found = json.loads(text.decode(), object_pairs_hook=_once, parse_constant=_refused)
    except _TwiceError as error:
        raise FileFormatError(f"{where}: {error}; the file is damaged") from None
    except (ValueError, RecursionError) as error:
        raise FileFormatError(
            f"{where}: no JSON as safetensors has it ({error}); the file is damaged, or of another kind"
        ) from None
    return dict(found)


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the dict of a JSON object whose keys are all different."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]
        raise _TwiceError(f"more than one entry for {', '.join(map(repr, twice[:_MOST_TOLD]))}")
    return found


def _refused(text: str) -> NoReturn:
    """Refuse numbers that JSON does not have: NaN and the infinities."""
    raise ValueError(f"there is no number {text}")


def _metadata(found: object, problems: list[str]) -> dict[str, str]:
    if found is None:
        return {}
    if not isinstance(found, dict):
        problems.append(f"{METADATA} is {type(found).__name__}, expected texts by name")
        return {}
    wrong = [key for key, value in found.items() if not isinstance(value, str)]
    problems += [f"{METADATA}: {key!r} is no text" for key in wrong]
    return found


def _entry(name: str, value: Any, problems: list[str]) -> TensorEntry | None:
    """Return what the header says of an array; None, and what is wrong with it, if it cannot be."""
    problem = _problem(value)
    if problem:
        problems.append(f"array {name!r}: {problem}")
        return None
    return TensorEntry(name, DTYPES[value["dtype"]], tuple(value["shape"]), *value["data_offsets"])


def _problem(value: object) -> str:
    """Say what is wrong with the entry of an array, "" if nothing is."""
    entry = value if isinstance(value, dict) else {}
    missing = {"dtype", "shape", "data_offsets"} - set(entry)
    if missing:
        return f"has no {', '.join(sorted(missing))}"
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        return f"its dtype is {_shown(dtype)}, expected one of {', '.join(DTYPES)}"
    if not _are_counts(shape) or len(shape) > _MOST_AXES or prod([n for n in shape if n]) >= _MOST_ELEMENTS:
        return f"its shape is {_shown(shape)}, which is impossible"
    if not _are_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        return f"its data_offsets are {_shown(offsets)}, expected a first byte and the one behind the last"
    wanted, given = prod(shape) * torch_dtype(DTYPES[dtype]).itemsize, offsets[1] - offsets[0]
    if wanted != given:
        return f"{dtype} of shape {tuple(shape)} has {wanted} bytes, but its data_offsets {offsets} {given}"
    return ""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _are_counts(value: object) -> bool:
    return isinstance(value, list) and all(type(each) is int and each >= 0 for each in value)


def _check_places(entries: Sequence[TensorEntry], size: int, problems: list[str]) -> None:
    """Add what is wrong with where arrays lie: they must cover the data without gap or overlap."""
    last, place = None, 0
    for entry in sorted(entries, key=lambda each: (each.start, each.stop)):
        if entry.start < place and last is not None:
            problems.append(
                f"array {entry.name!r} overlaps {last!r}: it begins at {entry.start}, before {place}"
            )
        elif entry.start > place:
            behind = "the beginning" if last is None else repr(last)
            problems.append(
                f"array {entry.name!r} begins at {entry.start}: a gap of {entry.start - place} bytes behind {behind}"
            )
        if entry.stop > size:
            problems.append(f"array {entry.name!r} ends at {entry.stop}, but there are {size} bytes of data")
        if entry.stop >= place:
            last, place = entry.name, entry.stop
    if place < size:
        problems.append(f"{size - place} bytes of data belong to no array")


def header_text(entries: Mapping[str, Any], metadata: Mapping[str, str], multiple: int) -> bytes:
    """Return a header, padded so that the data begin at a multiple of some bytes, with its length before it."""
    content = {**({METADATA: dict(metadata)} if metadata else {}), **entries}
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(LENGTH_BYTES + len(text)) % multiple)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text
