"""Repositories of the Hugging Face Hub: their files are fetched by its own package, where that is installed."""

from __future__ import annotations

import os
import re

from ..base import FileError, MissingPackageError

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_WANTED = ["*.json", "*.safetensors", "README.md"]


def local_folder(name: str, revision: str | None = None) -> str:
    """Return the folder of a name: itself if it is there, else the copy of the repository with this id."""
    if os.path.isdir(name):
        return name
    if not _ID.fullmatch(name):
        raise FileError(2, "no such folder, and no repository's id such as user/name", name)
    try:
        import huggingface_hub
    except ImportError:
        raise MissingPackageError(
            f"{name!r} is no folder here; to fetch it as a repository's id, pip install huggingface_hub"
        ) from None
    try:
        return str(huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=_WANTED))
    except Exception as error:  # its own kinds of errors change with its versions
        raise FileError(
            getattr(error, "errno", None) or 5, f"cannot fetch the repository: {error}", name
        ) from error
