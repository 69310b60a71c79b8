"""Helpers of `parlai.core.build_data` for data that is already on this machine; nothing is downloaded.

Source: interfaces of ParlAI, 2018.
"""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

from ...base import NotSupportedError

__all__ = [
    "built",
    "download",
    "download_from_google_drive",
    "download_models",
    "make_dir",
    "mark_done",
    "modelzoo_path",
    "move",
    "remove_dir",
    "untar",
]

_MARK = ".built"


def built(path: str, version_string: str | None = None) -> bool:
    """Return True if `mark_done` has marked a folder of data with this version.

    Args:
        path: the folder.
        version_string: the version; None: any.
    """
    mark = os.path.join(path, _MARK)
    if version_string is None or not os.path.isfile(mark):
        return os.path.isfile(mark)
    with open(mark, encoding="utf-8") as file:
        return version_string in file.read().split("\n")


def mark_done(path: str, version_string: str | None = None) -> None:
    """Mark a folder of data as complete.

    Args:
        path: the folder.
        version_string: its version.
    """
    with open(os.path.join(path, _MARK), "w", encoding="utf-8") as file:
        file.write(f"dpmodule\n{version_string or ''}\n")


def make_dir(path: str) -> None:
    """Make a folder and those above it.

    Args:
        path: the folder, which may exist.
    """
    os.makedirs(path, exist_ok=True)


def move(path1: str, path2: str) -> None:
    """Rename a file or a folder.

    Args:
        path1: the old path.
        path2: the new path.
    """
    shutil.move(path1, path2)


def remove_dir(path: str) -> None:
    """Remove a folder with its files.

    Args:
        path: the folder, which may be missing.
    """
    shutil.rmtree(path, ignore_errors=True)


def untar(path: str, fname: str, deleteTar: bool = True) -> None:
    """Unpack an archive in its folder.

    Args:
        path: the folder.
        fname: name of the archive in it.
        deleteTar: whether to remove the archive afterwards.
    """
    archive = os.path.join(path, fname)
    if fname.endswith(".zip"):
        shutil.unpack_archive(archive, path)
    else:
        shutil.unpack_archive(archive, path, filter="data")  # nothing outside the folder
    if deleteTar:
        os.remove(archive)


def download(url: str, path: str, fname: str, redownload: bool = False) -> None:
    """Do nothing if a file is there; nothing is downloaded.

    Args:
        url: address of the file.
        path: the folder.
        fname: name of the file in it.
        redownload: ignored.

    Raises:
        NotSupportedError: the file is missing.
    """
    file = os.path.join(path, fname)
    if not os.path.exists(file):
        raise NotSupportedError(f"download: dpmodule reads nothing from the network; save {url} as {file}")


def download_from_google_drive(gd_id: str, destination: str) -> None:
    """Do nothing if a file is there; see `download`.

    Args:
        gd_id: id of the file.
        destination: its path.
    """
    download(f"the file {gd_id} of Google Drive", *os.path.split(destination))


def download_models(*names: object, **options: object) -> NoReturn:
    """Raise an error, since this package has no models to download.

    Args:
        names: ignored.
        options: ignored.

    Raises:
        NotSupportedError: always.
    """
    raise NotSupportedError("download_models: this package has no trained models; train one with train_model")


def modelzoo_path(datapath: str, path: str | None) -> str | None:
    """Return the path of a model.

    Args:
        datapath: folder of data.
        path: path of the model file; "zoo:NAME" and "models:NAME" mean a file below ``models`` in `datapath`.
    """
    for prefix in ("zoo:", "models:"):
        if path is not None and path.startswith(prefix):
            return os.path.join(datapath, "models", path[len(prefix) :])
    return path
