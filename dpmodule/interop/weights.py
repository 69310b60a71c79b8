"""Parameters in safetensors files, with the file names of Hugging Face's libraries, and torch's state dictionaries."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .._files import Writer, likely_kind, path_text, read_committed, regular_file
from ..base import ArgumentError, DTypeError, FileError, FileFormatError
from ..ndarray import NDArray, from_torch, safetensors
from ..ops.dtypes import name_of

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

_NAME = re.compile(r"model(-\d{5,}-of-\d{5,})?\.safetensors")
_TEXTS = {"format": "pt"}  # other libraries expect this text: the arrays have torch's layout


def is_weights_file(name: str) -> bool:
    """Return True for the name of a file with parameters, or of their index."""
    return name == INDEX_FILE or _NAME.fullmatch(name) is not None


def weight_files(params: Mapping[str, NDArray], max_bytes: int) -> dict[str, bytes | Writer]:
    """Return the files for parameters by name, each within the limit unless a single array exceeds it.

    Args:
        params: parameters by name, in the order of the files.
        max_bytes: most bytes of arrays in a file, at least 1.
    """
    if max_bytes < 1:
        raise ArgumentError(f"max_shard_bytes is {max_bytes}, expected at least 1")
    shards = _shards(params, max_bytes)
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


def _shards(params: Mapping[str, NDArray], max_bytes: int) -> list[dict[str, NDArray]]:
    shards: list[dict[str, NDArray]] = [{}]
    filled = 0
    for name, array in params.items():
        size = _bytes(array)
        if shards[-1] and filled + size > max_bytes:
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
        by_index: True to read the files that the index names; a killed save may leave files of both kinds.
    """
    if not by_index:
        return safetensors.read(os.path.join(folder, WEIGHTS_FILE))[0]
    index = os.path.join(folder, INDEX_FILE)
    file_names = _weight_map(index)
    params: dict[str, NDArray] = {}
    missing: list[str] = []
    for name in dict.fromkeys(file_names.values()):
        arrays = safetensors.read(os.path.join(folder, name))[0]
        keys = {key for key, file_name in file_names.items() if file_name == name}
        missing += [f"{key!r} is not in {name}" for key in sorted(keys - set(arrays))]
        params.update({key: arrays[key] for key in arrays if key in keys})
    if missing:
        raise FileFormatError(f"{index}: {', '.join(missing)}; the folder's files do not belong together")
    return {key: params[key] for key in file_names}


def _weight_map(path: str) -> dict[str, str]:
    """Return the name of each parameter's file."""
    try:
        file_names = json.loads(read_committed(path))["weight_map"]
        wrong = [
            name for name in file_names.values() if not (isinstance(name, str) and _NAME.fullmatch(name))
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileFormatError(f"{path}: not an index of parameters ({error!r})") from None
    if wrong:
        raise FileFormatError(
            f"{path}: names {wrong[0]!r}, expected files of its own folder such as model-00001-of-00002.safetensors"
        )
    return dict(file_names)


_WRAPPERS = ("state_dict", "model_state_dict", "model")
"""Keys under which programs save the state dictionary together with other values."""

_MAX_LISTED = 20


def load_torch_state(file: str | os.PathLike[str]) -> dict[str, NDArray]:
    """Return the tensors of a state dictionary that `torch.save` wrote by name, on cpu(0).

    The file is read with ``weights_only=True``, which refuses a pickle with anything but tensors. The state dictionary
    may also be the value of "state_dict", "model_state_dict" or "model" in a larger dictionary. `nd.load` does not read
    these files, since a pickle may hold other values than arrays.

    Args:
        file: a ``.pt`` or ``.pth`` file.

    Raises:
        FileError: the file cannot be read.
        FileFormatError: it is damaged, asks for code, or holds other values; the message lists the first ones.

    Example:
        >>> import torch
        >>> torch.save(torch.nn.Linear(3, 2).state_dict(), "linear.pt")
        >>> sorted(mx.interop.load_torch_state("linear.pt"))
        ['bias', 'weight']
    """
    path = path_text(file, "file")
    content = _loaded(path)
    if isinstance(content, Mapping):
        inner = [content[key] for key in _WRAPPERS if isinstance(content.get(key), Mapping)]
        content = inner[0] if len(inner) == 1 else content
    if not isinstance(content, Mapping):
        raise FileFormatError(
            f"{path}: holds {_description(content)}, expected a dictionary of tensors by name"
        )
    wrong = [f"{key!r} is {_description(value)}" for key, value in content.items() if not _fits(key, value)]
    if wrong:
        more = f" and {len(wrong) - _MAX_LISTED} more" if len(wrong) > _MAX_LISTED else ""
        raise FileFormatError(
            f"{path}: {', '.join(wrong[:_MAX_LISTED])}{more}; expected dense tensors of MXNet's types by name"
        )
    return _arrays(content)


def _loaded(path: str) -> Any:
    try:
        with open(path, "rb", opener=regular_file) as file:
            head = file.read(64)
            file.seek(0)
            return torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise FileError(error.errno or 0, f"cannot load: {error.strerror or error}", path) from error
    except MemoryError:
        raise
    except Exception as error:  # torch raises a dozen classes of errors
        kind = "" if head[:2] in (b"PK", b"\x80\x02") else likely_kind(head)
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise FileFormatError(f"{path}: not a state dictionary of torch: {kind or lines[0]}") from error


def _fits(key: Any, value: Any) -> bool:
    if not isinstance(key, str) or not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return False
    try:
        name_of(value.dtype)
    except DTypeError:
        return False
    return value.device.type == "cpu"


def _description(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of {value.dtype}, {value.layout} on {value.device.type}"
    return f"of type {type(value).__name__}"


def _arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, NDArray]:
    """Return tensors as arrays that share no memory, and keep no more memory than they need."""
    arrays, seen = {}, set()
    for name, tensor in tensors.items():
        own = tensor.detach()
        storage = own.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != own.numel() * own.dtype.itemsize:
            own = own.clone()
        seen.add(storage.data_ptr())
        arrays[name] = from_torch(own)
    return arrays
