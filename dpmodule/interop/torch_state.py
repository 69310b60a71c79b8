"""torch's files of state dictionaries, read without executing anything."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from ..base import DTypeError, FileError, FileFormatError
from ..files.file_kind import likely_kind, regular_file
from ..ndarray import NDArray, from_torch
from ..ops.dtypes import name_of

_WRAPPERS = ("state_dict", "model_state_dict", "model")
"""Where programs keep the state dictionary among other things that they save."""

_MOST_TOLD = 20


def load_torch_state(file: str | os.PathLike[str]) -> dict[str, NDArray]:
    """Return the tensors of a state dictionary that `torch.save` wrote, on cpu(0), by their names.

    The file is read with ``weights_only=True``: a pickle that asks for anything but tensors is refused. Of a dictionary
    that has the state dictionary under "state_dict", "model_state_dict" or "model", that is taken. `nd.load` does not
    read these files: it promises arrays, which a pickle does not.

    Args:
        file: a ``.pt`` or ``.pth`` file.

    Raises:
        FileError: the file cannot be read.
        FileFormatError: it is damaged, asks for code, or holds something else; all entries that do not fit are told.

    Example:
        >>> import torch
        >>> torch.save(torch.nn.Linear(3, 2).state_dict(), "linear.pt")
        >>> sorted(mx.interop.load_torch_state("linear.pt"))
        ['bias', 'weight']
    """
    path = os.fspath(file)
    found = _loaded(path)
    if isinstance(found, Mapping):
        inner = [found[key] for key in _WRAPPERS if isinstance(found.get(key), Mapping)]
        found = inner[0] if len(inner) == 1 else found
    if not isinstance(found, Mapping):
        raise FileFormatError(f"{path}: holds {_kind(found)}, expected a dictionary of tensors by name")
    wrong = [f"{key!r} is {_kind(value)}" for key, value in found.items() if not _fits(key, value)]
    if wrong:
        more = f" and {len(wrong) - _MOST_TOLD} more" if len(wrong) > _MOST_TOLD else ""
        raise FileFormatError(
            f"{path}: {', '.join(wrong[:_MOST_TOLD])}{more}; expected dense tensors of MXNet's types by name"
        )
    return _arrays(found)


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
    except Exception as error:  # torch has a dozen kinds for what may be wrong
        kind = "" if head[:2] in (b"PK", b"\x80\x02") else likely_kind(head)
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise FileFormatError(f"{path}: no state dictionary of torch: {kind or lines[0]}") from error


def _fits(key: Any, value: Any) -> bool:
    if not isinstance(key, str) or not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return False
    try:
        name_of(value.dtype)
    except DTypeError:
        return False
    return value.device.type == "cpu"


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of {value.dtype}, {value.layout} on {value.device.type}"
    return f"of type {type(value).__name__}"


def _arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, NDArray]:
    """Return tensors as arrays none of which has memory of another one, or keeps more memory than its own."""
    found, seen = {}, set()
    for name, tensor in tensors.items():
        own = tensor.detach()
        storage = own.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != own.numel() * own.dtype.itemsize:
            own = own.clone()
        seen.add(storage.data_ptr())
        found[name] = from_torch(own)
    return found
