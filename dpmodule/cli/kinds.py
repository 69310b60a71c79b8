"""What a file or folder of a model is, as its content tells, and what one that is to be written will be."""

from __future__ import annotations

import os
import re
import zipfile
from typing import NamedTuple

from .. import checkpoint
from ..base import ArgumentError, FileFormatError
from ..files.file_kind import likely_kind, regular_file
from ..files.file_transaction import settle
from ..interop.folder import CONFIG_FILE, SYMBOL_FILE
from ..ndarray.binary_reader import LIST_MAGIC
from ..ndarray.safetensors import looks_like

KINDS = {
    "mxnet": "PREFIX-symbol.json and PREFIX-NNNN.params",
    "safetensors": "one file of graph and parameters",
    "folder": "what Module.save_pretrained writes",
    "onnx": "an ONNX file",
    "pt2": "what torch.export.save writes",
    "pt": "a state dictionary of torch, its graph beside it in NAME-symbol.json",
}
"""Kinds of models, and what they are."""

_EPOCH = re.compile(r"(?P<prefix>.+)-(?P<epoch>\d{4,}|last)\.(params|safetensors)", re.DOTALL)
_SYMBOL = "-symbol.json"
_ENDINGS = {
    ".params": "mxnet",
    ".safetensors": "safetensors",
    ".onnx": "onnx",
    ".pt2": "pt2",
    ".pt": "pt",
    ".pth": "pt",
}


class ModelPlace(NamedTuple):
    """Where a model is."""

    kind: str
    path: str
    """A file, a folder, or a prefix."""
    epoch: int | str | None = None
    """Which epoch of a prefix."""
    is_prefix: bool = False
    is_graph: bool = False
    """Whether it is the file of a graph alone."""


def is_pretrained(folder: str) -> bool:
    """Say whether a folder holds one model, as `Module.save_pretrained` writes it."""
    return {CONFIG_FILE, SYMBOL_FILE} <= set(os.listdir(folder))


def find(path: str, epoch: int | str | None = None) -> ModelPlace:
    """Return what is at a path.

    Args:
        epoch: which epoch of the prefix; None = the last one.
    """
    if os.path.isdir(path):
        if is_pretrained(path):
            return ModelPlace("folder", path.rstrip(os.sep) or os.sep)
        raise FileFormatError(
            f"{path}: a folder without {CONFIG_FILE} and {SYMBOL_FILE}, so no model that save_pretrained wrote"
        )
    settle(path)
    if os.path.exists(path):
        return _of_file(path)
    saved = checkpoint.epochs(path)
    if epoch is None and saved:
        epoch = saved[-1]
    if not checkpoint.files(path):
        raise ArgumentError(
            f"{path}: there is no such file or folder, and nothing is saved under this prefix"
        )
    if epoch is None or not (files := checkpoint.params_files(path, epoch)):
        shown = ", ".join(map(str, saved)) or "none"
        raise ArgumentError(
            f"{path}: epoch {epoch} has no parameters; saved under this prefix are the epochs: {shown}"
        )
    return ModelPlace("mxnet" if files[0].endswith(".params") else "safetensors", path, epoch, is_prefix=True)


def _of_file(path: str) -> ModelPlace:
    with open(path, "rb", opener=regular_file) as file:
        head = file.read(64)
    match = _EPOCH.fullmatch(path)
    if int.from_bytes(head[:8], "little") == LIST_MAGIC and len(head) > 8:
        if match is None:
            return ModelPlace("mxnet", path)
        return ModelPlace("mxnet", match["prefix"], _epoch(match["epoch"]), is_prefix=True)
    if looks_like(head):
        return ModelPlace("safetensors", path)
    if head.lstrip()[:1] == b"{":
        return _of_symbol(path)
    if head[:2] == b"PK":
        return ModelPlace(_of_archive(path), path)
    if head[:1] == b"\x80":
        return ModelPlace("pt", path)
    if head[:1] == b"\x08" or path.lower().endswith(
        ".onnx"
    ):  # an ONNX file begins with the number of its version
        return ModelPlace("onnx", path)
    raise FileFormatError(
        f"{path}: no model; {likely_kind(head) or 'its content is of no kind that is known here'}"
    )


def _of_symbol(path: str) -> ModelPlace:
    prefix = path.removesuffix(_SYMBOL)
    saved = checkpoint.epochs(prefix) if prefix != path else []
    return (
        ModelPlace("mxnet", prefix, saved[-1], is_prefix=True)
        if saved
        else ModelPlace("mxnet", path, is_graph=True)
    )


def _of_archive(path: str) -> str:
    """Tell torch's archives apart."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise FileFormatError(f"{path}: a zip archive that is damaged ({error})") from None
    if any(name.endswith(("models/model.json", "serialized_exported_program.json")) for name in names):
        return "pt2"
    if any(name.endswith("/data.pkl") for name in names):
        return "pt"
    raise FileFormatError(f"{path}: a zip archive, but none that torch wrote")


def wanted(path: str, kind: str | None, epoch: int | str) -> ModelPlace:
    """Return what is to be written at a path.

    Args:
        path: where; its ending tells the kind. A folder that is there, or a name that ends in a slash, is a folder, a
            name without one of the endings a prefix.
        kind: one of `KINDS`, None = as the path tells.
    """
    match = _EPOCH.fullmatch(path)
    ending = os.path.splitext(path)[1].lower()
    is_folder = path.endswith(os.sep) or os.path.isdir(path)
    found = kind or ("folder" if is_folder else _ENDINGS.get(ending, "mxnet"))
    if is_folder != (found == "folder") and (is_folder or os.path.exists(path)):
        there = "is a folder" if is_folder else "is a file"
        raise ArgumentError(f"{path} {there}, and the output is to be {found}: {KINDS[found]}")
    if found in ("mxnet", "safetensors") and match is not None:
        return ModelPlace(found, match["prefix"], _epoch(match["epoch"]), is_prefix=True)
    if found == "mxnet" or (found == "safetensors" and not ending):
        return ModelPlace(found, path.removesuffix(_SYMBOL).removesuffix(".params"), epoch, is_prefix=True)
    return ModelPlace(found, path.rstrip(os.sep) if found == "folder" else path)


def _epoch(text: str) -> int | str:
    return int(text) if text.isdigit() else text
