"""Damaged versions of valid files: flipped bits, odd numbers, cuts, repeats, joins, and for JSON changed values."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

__all__ = ["mutate"]

NUMBERS = (
    0,
    1,
    -1,
    2,
    127,
    128,
    255,
    256,
    2**15,
    2**16,
    2**31 - 1,
    -(2**31),
    2**32 - 1,
    2**63 - 1,
    -(2**63),
    2**40,
)
TEXTS = (
    "",
    "x",
    "null",
    "-1",
    "()",
    "(1,",
    "(0, 0)",
    "(1000000, 1000000, 1000000)",
    "1e400",
    "nan",
    "None",
    "\0",
    "é",
)
VALUES: tuple[Any, ...] = (*NUMBERS, *TEXTS, None, True, 1.5, [], {}, [[]], [0, 0, 0], {"a": "b"})


def _flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _overwrite(data: bytearray, rng: random.Random) -> None:
    code = rng.choice(("<b", "<h", "<i", "<q"))
    number = rng.choice(NUMBERS) & (2 ** (8 * struct.calcsize(code)) - 1)
    size = struct.calcsize(code)
    at = rng.randrange(max(len(data) - size, 0) + 1)
    data[at : at + size] = number.to_bytes(size, "little")


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def _drop(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice((1, 2, 4, 8, 64))]


def _repeat(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    data[at:at] = data[at : at + rng.choice((1, 4, 8, 64))] * rng.choice((1, 2, 16))


def _insert(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data) + 1) : 0] = rng.randbytes(rng.choice((1, 4, 8)))


_CHANGES = (_flip, _flip, _overwrite, _overwrite, _cut, _drop, _repeat, _insert)


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Collect (container, key) of everything inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        found.append((value, key))
        _places(inner, found)
    return found


def _change_json(data: bytes, rng: random.Random) -> bytes:
    """Change, remove, copy or rename values of a JSON text, which stays one."""
    root = json.loads(data)
    places = _places(root, [])
    for _ in range(rng.choice((1, 1, 2, 5))):
        container, key = rng.choice(places)
        try:
            action = rng.randrange(4)
            if action == 0:
                container[key] = rng.choice(VALUES)
            elif action == 1:
                del container[key]
            elif action == 2:
                other, place = rng.choice(places)
                container[key] = other[place]
            elif isinstance(container, dict):
                container[
                    rng.choice(("op", "name", "inputs", "attrs", "attr", "param", "x", "subgraphs", "shape"))
                ] = container.pop(key)
        except (KeyError, IndexError):  # an earlier change took it away
            continue
    try:
        return json.dumps(root).encode()
    except (ValueError, RecursionError):  # a copy put a value into itself
        return data[: rng.randrange(len(data))]


def mutate(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """Return a damaged version of a file.

    Args:
        data: a valid file.
        others: valid files of its kind, to join parts of.
        rng: where chance comes from.
    """
    if data[:1] == b"{" and rng.random() < 0.6:
        return _change_json(data, rng)
    if data[8:9] == b"{" and rng.random() < 0.6:  # safetensors: the header, whose length stands before it
        end = 8 + int.from_bytes(data[:8], "little")
        header = _change_json(data[8:end], rng)
        return len(header).to_bytes(8, "little") + header + data[end:]
    changed = bytearray(data)
    if rng.random() < 0.1:
        other = rng.choice(others)
        return bytes(changed[: rng.randrange(len(changed) + 1)]) + other[rng.randrange(len(other) + 1) :]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if changed:
            rng.choice(_CHANGES)(changed, rng)
    return bytes(changed)
