"""Conversion of folders of pictures to record files: listing, splitting and writing pictures."""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any, NamedTuple, TypeVar

from .._files import regular_file, write_set
from ..base import ArgumentError, FileError, FileFormatError
from ..ops.image import decode, encode, resize
from .files import write_line
from .framing import frame, pack

ENDINGS = (".bmp", ".gif", ".jp2", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""Extensions of picture files."""

_KEPT = (b"\xff\xd8\xff", b"\x89PNG\r\n")
"""First bytes of JPEG and PNG files, which every reader of records decodes."""

_QUALITY = 95
_CUBIC = 2

A = TypeVar("A")
B = TypeVar("B")


class Picture(NamedTuple):
    """A picture in a folder: its number in the listing, its class and its relative path."""

    number: int
    label: int
    path: str


@dataclass(frozen=True)
class ImageEncoding:
    """Resizing and encoding of pictures.

    Args:
        shorter_edge: new length of the shorter edge in pixels; None does not resize.
        quality: JPEG quality, 1 to 100; None keeps JPEG and PNG files unchanged if they are not resized.
    """

    shorter_edge: int | None = None
    quality: int | None = None

    def __call__(self, content: bytes, name: str) -> bytes:
        """Return the encoded picture for a record."""
        pixels = decode(content, to_rgb=False, name=name)
        if self.shorter_edge is None and self.quality is None and content.startswith(_KEPT):
            return content
        if self.shorter_edge is not None:
            height, width = pixels.shape[:2]
            scale = self.shorter_edge / min(height, width)
            width, height = (max(self.shorter_edge, round(edge * scale)) for edge in (width, height))
            pixels = resize(pixels, width, height, _CUBIC)
        return encode(pixels.numpy(), ".jpg", _QUALITY if self.quality is None else self.quality)


def find_pictures(folder: str) -> tuple[list[str], list[Picture]]:
    """List the pictures below a folder; each folder that has some is a class.

    Hidden files and folders are skipped; links are followed, and each folder is read once.

    Returns:
        The classes (sorted paths of folders, whose indices are the labels), and the pictures, class by class.
    """
    names_of_class: dict[str, list[str]] = {}
    seen: set[str] = set()
    for path, folders, files in os.walk(folder, onerror=_refuse, followlinks=True):
        real = os.path.realpath(path)
        folders[:] = [] if real in seen else sorted(name for name in folders if not name.startswith("."))
        names = [name for name in files if name.lower().endswith(ENDINGS) and not name.startswith(".")]
        if names and real not in seen:
            names_of_class[os.path.relpath(path, folder)] = sorted(names)
        seen.add(real)
    if not names_of_class:
        raise ArgumentError(
            f"there is no picture in {folder}; expected folders, one for each class, with files that end in "
            f"{', '.join(ENDINGS)}"
        )
    classes = sorted(names_of_class)
    rows = [
        (label, os.path.normpath(os.path.join(path, name)))
        for label, path in enumerate(classes)
        for name in names_of_class[path]
    ]
    return classes, [Picture(number, *row) for number, row in enumerate(rows)]


def _refuse(error: OSError) -> None:
    raise FileError(error.errno or 0, f"folder of pictures: {error.strerror}", error.filename) from error


def split_pictures(
    pictures: Sequence[Picture], ratio: float = 1.0, seed: int | None = None
) -> tuple[list[Picture], list[Picture]]:
    """Split the pictures of each class for training and validation.

    Args:
        ratio: fraction of each class for training; at least one picture.
        seed: seed of a random order in which pictures are chosen and written; None keeps the order.
    """
    rows = list(pictures)
    if seed is not None:
        random.Random(seed).shuffle(rows)
    counts: dict[int, int] = {}
    for row in rows:
        counts[row.label] = counts.get(row.label, 0) + 1
    left = {label: max(1, round(ratio * count)) for label, count in counts.items()}
    parts: tuple[list[Picture], list[Picture]] = [], []
    for row in rows:
        parts[left[row.label] <= 0].append(row)
        left[row.label] -= 1
    return parts


def write_pictures(
    folder: str, parts: Mapping[str, Sequence[Picture]], recoding: ImageEncoding, threads: int = 1
) -> dict[str, str]:
    """Write pictures as ``PREFIX.rec``, with ``PREFIX.idx`` and ``PREFIX.lst``, for every prefix.

    The files appear together after everything is written.

    Returns:
        Reasons why pictures were left out, by path.
    """
    unusable: dict[str, str] = {}
    contents: dict[str, Callable[[IO[bytes]], object]] = {}
    with ThreadPoolExecutor(threads, "im2rec") as pool:
        for prefix, pictures in parts.items():
            part = _RecordPart(folder, prefix, pictures, recoding, unusable)
            # in this order: writing the records fills the contents of the other two
            contents[f"{prefix}.rec"] = partial(part.write_records, pool=pool, ahead=2 * threads)
            contents[f"{prefix}.idx"] = partial(_write_lines, part.index)
            contents[f"{prefix}.lst"] = partial(_write_lines, part.listing)
        write_set(contents, os.path.basename(next(iter(parts))))
    return unusable


def _write_lines(lines: list[bytes], file: IO[bytes]) -> None:
    file.writelines(lines)


@dataclass
class _RecordPart:
    """The pictures of one record file."""

    folder: str
    prefix: str
    pictures: Sequence[Picture]
    recoding: ImageEncoding
    unusable: dict[str, str]
    index: list[bytes] = field(default_factory=list)
    listing: list[bytes] = field(default_factory=list)

    def write_records(self, file: IO[bytes], pool: ThreadPoolExecutor, ahead: int) -> None:
        at = 0
        for picture, content in zip(self.pictures, _ahead(pool, self._content, self.pictures, ahead)):
            if isinstance(content, str):
                self.unusable[picture.path] = content
                continue
            record = frame(pack((0, float(picture.label), picture.number, 0), content))
            file.write(record)
            self.index.append(write_line(picture.number, at).encode())
            self.listing.append(f"{picture.number}\t{picture.label:f}\t{picture.path}\n".encode())
            at += len(record)
        if not at:
            raise ArgumentError(
                f"{self.prefix}.rec would be empty: none of its {len(self.pictures)} pictures can be used; first "
                f"reason: {next(iter(self.unusable.values()), 'there is none')}"
            )

    def _content(self, picture: Picture) -> bytes | str:
        """Return the encoded picture, or the reason why it cannot be used."""
        path = os.path.join(self.folder, picture.path)
        if not picture.path.isprintable():
            return f"{picture.path!r}: a list has one line of printable text per picture; rename the file"
        try:
            with open(path, "rb", opener=regular_file) as file:
                return self.recoding(file.read(), path)
        except OSError as error:
            return f"{path}: {error.strerror or error}"
        except FileFormatError as error:
            return str(error)


def _ahead(
    pool: ThreadPoolExecutor, function: Callable[[A], B], items: Iterable[A], count: int
) -> Iterator[B]:
    """Yield the results of a function in order; at most `count` items are pending."""
    pending: deque[Future[Any]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) >= count:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
