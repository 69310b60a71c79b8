"""What a file probably is that is not what its name promises."""

from __future__ import annotations

__all__ = ["likely_kind"]

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
