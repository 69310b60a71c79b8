"""`RecordDataset`: a record file as a torch dataset."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from torch.utils.data import Dataset

from ..base import BoundsError
from .files import load_index
from .framing import RecordFile


class RecordDataset(Dataset[Any]):
    """Records of a file by number, in any order, thread or process.

    Args:
        path: the record file (.rec).
        idx_path: the index file (.idx), rebuilt if it does not match; None uses the file of the same name with the
            extension ".idx" if it exists, and otherwise finds the records by scanning their headers.
        transform: function that makes an example from a record, such as `unpack_img`; None gives the bytes. Worker
            processes that are not forked need a function that can be pickled.

    Attributes:
        keys: keys of the records in the index; their numbers if there is no index.

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
        default_path = os.path.splitext(self._path)[0] + ".idx"
        if idx_path is None and os.path.isfile(default_path):
            idx_path = default_path
        if idx_path is not None:
            pairs = load_index(os.fspath(idx_path), self._path, _key)
        else:
            pairs = list(enumerate(self._file.offsets()))
        self.keys: list[Any] = [key for key, _ in pairs]
        self._offsets = [offset for _, offset in pairs]

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, number: int) -> Any:
        """Return a record, after `transform` if given.

        Args:
            number: record number, from 0; negative numbers count from the end.
        """
        try:
            offset = self._offsets[number]
        except IndexError:
            raise BoundsError(
                f"{self._path}: record {number} does not exist; the file has {len(self._offsets)} records"
            ) from None
        record = self._file.read_at(offset)
        return record if self._transform is None else self._transform(record)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._file = RecordFile(self._path)


def _key(text: str) -> Any:
    """Return a key as an integer if possible, else as text."""
    try:
        return int(text)
    except ValueError:
        return text
