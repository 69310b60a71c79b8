"""`RecordDataset`: a record file as a dataset of torch."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from torch.utils.data import Dataset

from ..base import BoundsError
from .files import load_index
from .framing import RecordFile


class RecordDataset(Dataset[Any]):
    """Read the records of a file by number, in any order, in any thread or process.

    Args:
        path: the record file (.rec).
        idx_path: its index (.idx), made again if it does not fit; None takes the file of the same name that ends in
            ".idx" if there is one, and else looks for the beginnings of all records, which reads no payload.
        transform: makes an example of a record, such as `unpack_img`; None gives the bytes. Worker processes that are
            not forked need a function that can be pickled.

    Attributes:
        keys: the records' keys in the index; their numbers where there is none.

    Raises:
        FileError: a file cannot be read.
        FileFormatError: a file is damaged or has another format.

    Example:
        >>> with mx.recordio.MXRecordIO("some.rec", "w") as record:
        ...     for text in (b"zero", b"one", b"two"):
        ...         record.write(text)
        >>> dataset = mx.recordio.RecordDataset("some.rec", transform=bytes.decode)
        >>> len(dataset), dataset[2], list(dataset)
        (3, 'two', ['zero', 'one', 'two'])
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        idx_path: str | os.PathLike[str] | None = None,
        transform: Callable[[bytes], Any] | None = None,
    ) -> None:
        self._path, self._transform = os.fspath(path), transform
        self._file = RecordFile(self._path)
        beside = os.path.splitext(self._path)[0] + ".idx"
        if idx_path is None and os.path.isfile(beside):
            idx_path = beside
        if idx_path is not None:
            pairs = load_index(os.fspath(idx_path), self._path, _key)
        else:
            pairs = list(enumerate(self._file.offsets()))
        self.keys: list[Any] = [key for key, _ in pairs]
        self._offsets = [offset for _, offset in pairs]

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, number: int) -> Any:
        """Return a record, or what `transform` makes of it.

        Args:
            number: which one, from 0; negative ones count from the end.
        """
        try:
            offset = self._offsets[number]
        except IndexError:
            raise BoundsError(
                f"{self._path}: there is no record {number}, it has {len(self._offsets)}"
            ) from None
        record = self._file.read_at(offset)
        return record if self._transform is None else self._transform(record)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._file = RecordFile(self._path)


def _key(text: str) -> Any:
    """Read a key: a whole number, or any text."""
    try:
        return int(text)
    except ValueError:
        return text
