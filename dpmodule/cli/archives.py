"""Archives of models: tar files, with or without compression, and zip files, such as ``.mar``, unpacked safely."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from .._files import regular_file
from ..base import FileError, FileFormatError, MXNetError

FREE_BYTES = 1 << 28
"""Unpacked bytes that every archive may have; a larger one may have `MAX_GROWTH` times its own size."""
MAX_GROWTH = 50
MAX_ENTRIES = 10_000

_COMPRESSED: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}
_TAR_NAME = re.compile(r".*\.(tar(\.(gz|bz2|xz))?|tgz|tbz2|txz)", re.IGNORECASE | re.DOTALL)
_ZIP_NAME = re.compile(r"([^.]*|.*\.(zip|mar|model))", re.IGNORECASE | re.DOTALL)
_TAR_MAGIC = b"ustar"
_TAR_MAGIC_AT = 257
_BLOCK = 512


def looks_like_archive(path: str) -> bool:
    """Return True for a file with the name and beginning of an archive of models."""
    with open(path, "rb", opener=regular_file) as file:
        head = file.read(_TAR_MAGIC_AT + len(_TAR_MAGIC))
    name = os.path.basename(path)
    if head[:2] == b"PK":
        return _ZIP_NAME.fullmatch(name) is not None and not _is_one_model(path)
    return head[_TAR_MAGIC_AT:] == _TAR_MAGIC or (
        _TAR_NAME.fullmatch(name) is not None and any(map(head.startswith, _COMPRESSED))
    )


def is_zip_of_arrays(path: str) -> bool:
    """Return True for a zip file that holds nothing but arrays of NumPy, as MXNet 2.0 saves parameters."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False
    return bool(names) and all(name.endswith(".npy") for name in names)


def _is_one_model(path: str) -> bool:
    """Return True for a zip file that torch or NumPy wrote."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False  # unpacking reports it
    return any(name.endswith(("/data.pkl", "models/model.json")) for name in names) or is_zip_of_arrays(path)


def unpack(path: str, folder: str) -> None:
    """Write the files of an archive into an empty folder.

    Raises:
        FileFormatError: the archive is damaged, has links, devices, encrypted entries or paths that leave the folder,
            or is of absurd size.
        FileError: a file cannot be written.
    """
    budget = max(FREE_BYTES, MAX_GROWTH * os.path.getsize(path))
    with _naming_problems(path):
        for number, (name, size, open_entry) in enumerate(_entries(path, budget)):
            if number >= MAX_ENTRIES:
                raise _refused(path, f"it has more than {MAX_ENTRIES:,} entries")
            budget -= size
            if budget < 0:
                raise _refused(
                    path, f"{name!r} and the entries before it have more than {MAX_GROWTH} times its size"
                )
            target = _target(path, folder, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if os.path.lexists(target):
                raise _refused(path, f"it has two entries {name!r}")
            with open_entry() as source, open(target, "xb") as file:
                _copy(source, file, size)


_Entry = tuple[str, int, Callable[[], IO[bytes]]]
"""Name and size of a file in an archive, and a function that opens it."""


def _entries(path: str, budget: int) -> Iterator[_Entry]:
    """Yield the files of an archive in order; each must be read before the next."""
    with open(path, "rb", opener=regular_file) as file:
        head = file.read(8)
        file.seek(0)
        yield from _zip_entries(path, file) if head[:2] == b"PK" else _tar_entries(path, file, head, budget)


def _zip_entries(path: str, file: IO[bytes]) -> Iterator[_Entry]:
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _refused(path, f"{info.filename!r} is a link or a device")
            if info.flag_bits & 1:
                raise _refused(path, f"{info.filename!r} is encrypted")
            if not info.is_dir():
                yield info.filename, info.file_size, lambda info=info: archive.open(info)  # type: ignore[misc]


def _tar_entries(path: str, file: IO[bytes], head: bytes, budget: int) -> Iterator[_Entry]:
    opener = next((opener for mark, opener in _COMPRESSED.items() if head.startswith(mark)), None)
    # headers count as well, since tarfile holds them in memory
    plain = _Limited(path, file if opener is None else opener(file), budget + _BLOCK * MAX_ENTRIES)
    end = 0
    with tarfile.open(fileobj=cast(Any, plain), mode="r|") as archive:
        for member in archive:
            if member.isdir():
                continue
            if not member.isreg() or member.issparse():
                raise _refused(path, f"{member.name!r} is a link, a device or a file with holes")
            yield member.name, member.size, lambda member=member: archive.extractfile(member)  # type: ignore[misc]
            end = member.offset_data + member.size
    while plain.read(1 << 20):  # checksums are compared at the end
        pass
    if plain.count < end + _BLOCK:
        raise _refused(path, "it is truncated")


class _Limited:
    """A file that may be read up to a number of bytes."""

    def __init__(self, path: str, file: Any, limit: int) -> None:
        self.count = 0
        self._path, self._file, self._limit = path, file, limit

    def read(self, size: int) -> bytes:
        """Read some bytes."""
        data: bytes = self._file.read(size)
        self.count += len(data)
        if self.count > self._limit:
            raise _refused(self._path, f"it unpacks to more than {MAX_GROWTH} times its size")
        return data


def _copy(source: IO[bytes], file: IO[bytes], size: int) -> None:
    """Copy an entry of a known size."""
    while size:
        data = source.read(min(size, 1 << 20))
        if not data:
            raise EOFError("an entry ends early")
        file.write(data)
        size -= len(data)
    source.read(1)  # a zip file's checksum is compared at the end


def _target(path: str, folder: str, name: str) -> str:
    """Return the path of an entry in a folder."""
    parts = name.replace("\\", "/").split("/")
    if name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0] or "\0" in name:
        raise _refused(path, f"the path {name!r} leaves the folder")
    kept = [part for part in parts if part not in ("", ".")]
    if not kept:
        raise _refused(path, f"an entry has the name {name!r}")
    return os.path.join(folder, *kept)


def _refused(path: str, why: str) -> FileFormatError:
    return FileFormatError(f"{path}: this archive is not unpacked: {why}")


@contextmanager
def _naming_problems(path: str) -> Iterator[None]:
    """Turn errors of the packages that read archives into ours."""
    try:
        yield
    except (MXNetError, MemoryError):
        raise
    except OSError as error:
        if error.errno is None:  # gzip.BadGzipFile, and the like
            raise _damaged(path, error) from error
        raise FileError(error.errno, f"cannot unpack it: {error.strerror}", path) from error
    except Exception as error:  # tarfile, zipfile and the packages below them raise many types
        raise _damaged(path, error) from error


def _damaged(path: str, error: Exception) -> FileFormatError:
    return FileFormatError(f"{path}: a damaged or truncated archive ({error})")
