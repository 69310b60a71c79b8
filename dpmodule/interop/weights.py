"""The parameters in a folder: one safetensors file, or several with an index, named as Hugging Face's libraries do."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..base import ArgumentError, FileFormatError
from ..files.atomic import Writer
from ..files.file_transaction import read_settled
from ..ndarray import NDArray, safetensors

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

_NAME = re.compile(r"model(-\d{5,}-of-\d{5,})?\.safetensors")
_TEXTS = {"format": "pt"}  # what other libraries look for: the arrays are laid out as torch has them


def is_weights_file(name: str) -> bool:
    """Say whether a file of a folder holds parameters, or is their index."""
    return name == INDEX_FILE or _NAME.fullmatch(name) is not None


def weight_files(params: Mapping[str, NDArray], most: int) -> dict[str, bytes | Writer]:
    """Return the files for parameters, by name: each at most so large, but for arrays that are larger alone.

    Args:
        params: parameters by name, in the order in which they fill the files.
        most: bytes of arrays in a file, at least 1.
    """
    if most < 1:
        raise ArgumentError(f"max_shard_bytes is {most}, expected at least 1")
    shards = _shards(params, most)
    if len(shards) == 1:
        return {WEIGHTS_FILE: _writer(shards[0])}
    names = [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
    index = {
        "metadata": {"total_size": sum(map(_bytes, params.values()))},
        "weight_map": {key: name for name, shard in zip(names, shards, strict=True) for key in shard},
    }
    files: dict[str, bytes | Writer] = {
        name: _writer(shard) for name, shard in zip(names, shards, strict=True)
    }
    files[INDEX_FILE] = json.dumps(index, indent=2).encode()
    return files


def _bytes(array: NDArray) -> int:
    return array.raw.numel() * array.raw.dtype.itemsize


def _shards(params: Mapping[str, NDArray], most: int) -> list[dict[str, NDArray]]:
    shards: list[dict[str, NDArray]] = [{}]
    filled = 0
    for name, array in params.items():
        size = _bytes(array)
        if shards[-1] and filled + size > most:
            shards.append({})
            filled = 0
        shards[-1][name] = array
        filled += size
    return shards


def _writer(arrays: Mapping[str, NDArray]) -> Callable[[Any], None]:
    return lambda file: safetensors.write(file, arrays, _TEXTS)


def load_weights(folder: str, by_index: bool) -> dict[str, NDArray]:
    """Return the parameters in a folder by name.

    Args:
        by_index: whether the index names their files; a save that was killed may have left files of both kinds.
    """
    if not by_index:
        return safetensors.read(os.path.join(folder, WEIGHTS_FILE))[0]
    index = os.path.join(folder, INDEX_FILE)
    places = _weight_map(index)
    found: dict[str, NDArray] = {}
    wrong: list[str] = []
    for name in dict.fromkeys(places.values()):
        arrays = safetensors.read(os.path.join(folder, name))[0]
        wanted = {key for key, place in places.items() if place == name}
        wrong += [f"{key!r} is not in {name}" for key in sorted(wanted - set(arrays))]
        found.update({key: arrays[key] for key in arrays if key in wanted})
    if wrong:
        raise FileFormatError(f"{index}: {', '.join(wrong)}; the folder's files do not belong together")
    return {key: found[key] for key in places}


def _weight_map(path: str) -> dict[str, str]:
    """Return which file of the folder holds which parameter."""
    try:
        places = json.loads(read_settled(path))["weight_map"]
        wrong = [name for name in places.values() if not (isinstance(name, str) and _NAME.fullmatch(name))]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileFormatError(f"{path}: no index of parameters ({error!r})") from None
    if wrong:
        raise FileFormatError(
            f"{path}: names {wrong[0]!r}, expected files of its own folder such as model-00001-of-00002.safetensors"
        )
    return dict(places)
