"""What a file is: a regular file or something that may block, and what its content looks like."""

from __future__ import annotations

import errno
import os
import stat

from ..base import FileError

_LEAST = 4
"""How many bytes must agree before they mean something."""

_MARKS = (
    (b"version https://git-lfs", "this is a Git LFS pointer; fetch the file itself with 'git lfs pull'"),
    (b"<!doctype", "this is an HTML page, perhaps a failed download"),
    (b"<html", "this is an HTML page, perhaps a failed download"),
    (b"<?xml", "this is an XML page, perhaps a failed download"),
    (
        b"pk\x03\x04",
        "this is a zip archive, perhaps of NumPy or torch; use numpy.load or interop.load_torch_state",
    ),
    (b"\x1f\x8b", "this is gzip-compressed; decompress it first"),
    (b"\x93numpy", "this is a NumPy file; use numpy.load"),
    (b"{", "this looks like JSON, perhaps the symbol file"),
    (b"\x80", "this is a Python pickle, which is not read here"),
)


def likely_kind(head: bytes) -> str:
    """Say in words what a file is by its first bytes, "" where they tell nothing.

    Args:
        head: the beginning of the file; 64 bytes are enough, fewer tell less.
    """
    if not head:
        return "the file is empty"
    start = head[:64].lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    for mark, meaning in _MARKS:
        if start.startswith(mark) or (len(start) >= _LEAST and mark.startswith(start)):
            return meaning
    return ""


def regular_file(path: str, flags: int) -> int:
    """Open a regular file; to be given to `open` as its `opener`.

    Opening a named pipe that nobody writes to blocks, and some devices, such as ``/dev/zero``, never end.

    Returns:
        The descriptor.

    Example:
        >>> with open("weights.bin", "wb") as file:
        ...     _ = file.write(b"1234")
        >>> with open("weights.bin", "rb", opener=regular_file) as file:
        ...     file.read()
        b'1234'
    """
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # `open` itself refuses folders
        kind = "a named pipe" if stat.S_ISFIFO(mode) else "a device" if _is_device(mode) else "a socket"
        raise FileError(errno.EINVAL, f"this is {kind}, expected a regular file", path)
    return os.open(path, flags)


def refuse_device(path: str) -> None:
    """Check that a path does not lead to a device; data may come from a pipe, which ends."""
    if _is_device(os.stat(path).st_mode):
        raise FileError(errno.EINVAL, "this is a device, expected a file or a pipe", path)


def _is_device(mode: int) -> bool:
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
