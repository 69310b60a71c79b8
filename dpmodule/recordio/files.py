"""`MXRecordIO` and `MXIndexedRecordIO`: record files, and index files with the offsets of records."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import IO, Any

from .._core.closing import Closing
from .._files import likely_kind, regular_file, write_atomically
from ..base import ArgumentError, FileError, FileFormatError, StateError, UnknownNameError
from .framing import RecordFile, frame, read_record

_logger = logging.getLogger(__name__)

Index = list[tuple[Any, int]]


def write_line(key: Any, offset: int) -> str:
    """Return the line of a record in an index file."""
    return f"{key}\t{offset}\n"


def load_index(idx_path: str, rec_path: str, key_type: Callable[[str], Any] = int) -> Index:
    """Return the keys and byte offsets of an index file; rebuild a missing or outdated one.

    The first, middle and last offsets of an index are checked. A rebuilt index keeps the old keys if the number of
    records is the same, and otherwise has the keys 0, 1, 2, ...; it is written if possible, and the rebuild is logged.
    """
    file = RecordFile(rec_path)
    try:
        index = _read(idx_path, key_type)
        if index is None:
            reason, keys = f"there is no index file {idx_path}", []
        elif _fits(index, file):
            return index
        else:
            reason, keys = f"the index file {idx_path} does not match", [key for key, _ in index]
        offsets = list(file.offsets())
    finally:
        file.close()
    if len(keys) != len(offsets):
        keys = [key_type(str(i)) for i in range(len(offsets))]
    index = list(zip(keys, offsets, strict=True))
    destination = _store(idx_path, index)
    _logger.warning("%s: %s; rebuilt it for %d records, %s", rec_path, reason, len(index), destination)
    return index


def _read(path: str, key_type: Callable[[str], Any]) -> Index | None:
    try:
        with open(path, encoding="utf-8", opener=regular_file) as file:
            return [
                _parse(line, number, path, key_type) for number, line in enumerate(file, 1) if line.strip()
            ]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(error.errno, f"index file: {error.strerror}", path) from error
    except UnicodeDecodeError as error:
        raise FileFormatError(
            f"{path}: byte {error.start}: the file is not text; an index file has lines of key and offset"
        ) from error


def _parse(line: str, number: int, path: str, key_type: Callable[[str], Any]) -> tuple[Any, int]:
    key, _, offset = line.strip().partition("\t")
    try:
        position = int(offset)
        if not 0 <= position < 2**63:  # larger offsets overflow
            raise ValueError(offset)
        return key_type(key), position
    except (ValueError, TypeError) as error:
        raise FileFormatError(
            f"{path}: line {number}: {line.strip()[:60]!r} is not key, tab and byte offset; if the file is not "
            "an index, delete it, and it is rebuilt from the record file"
        ) from error


def _fits(index: Index, file: RecordFile) -> bool:
    """Return True if records begin at the offsets of an index."""
    if not index:
        return file.size == 0
    offsets = [offset for _, offset in index]
    probes = {offsets[0], offsets[len(offsets) // 2], offsets[-1], max(offsets)}
    if min(offsets) < 0:
        return False
    try:
        return all(file.starts_at(offset) for offset in probes)
    except FileFormatError:
        return False


def _store(path: str, index: Index) -> str:
    """Write an index file if possible, and return a text about the result."""
    text = "".join(write_line(key, offset) for key, offset in index)
    try:
        write_atomically(path, text.encode())
    except (FileError, OSError) as error:
        return f"in memory only ({os.strerror(error.errno) if error.errno else error})"
    return f"written to {path}"


_BUFFER = 1 << 16
"""Size of the file buffer in bytes."""


class MXRecordIO(Closing):
    """Read or write a record file sequentially.

    Args:
        uri: path of the file.
        flag: "r" to read, "w" to write a new file.

    Raises:
        ArgumentError: `flag` is neither "r" nor "w".
        FileError: the file cannot be opened.

    Example:
        >>> record = mx.recordio.MXRecordIO("a.rec", "w")
        >>> record.write(b"first")
        >>> record.close()
        >>> mx.recordio.MXRecordIO("a.rec", "r").read()
        b'first'

    Source: MXNet 1.9.1 `MXRecordIO`; the same bytes. An open writer cannot be pickled, since reopening it
    would empty the file.
    """

    def __init__(self, uri: str | os.PathLike[str], flag: str) -> None:
        self.uri = os.fspath(uri)
        self.flag = flag
        self.handle: IO[bytes] | None = None
        self.pid: int | None = None
        self.is_open = False
        self.writable = flag == "w"
        self._at = 0
        self.open()
        if not self.writable and not os.path.getsize(self.uri):
            _logger.warning("%s: %s, it has no records", self.uri, likely_kind(b""))

    def open(self) -> None:
        """Open the file; writing empties it.

        Raises:
            FileError: the file cannot be opened.
        """
        if self.flag not in ("r", "w"):
            raise ArgumentError(f"flag is {self.flag!r}, expected 'r' to read or 'w' to write")
        try:
            opener = regular_file if self.flag == "r" else None
            self.handle = open(self.uri, self.flag + "b", _BUFFER, opener=opener)  # noqa: SIM115 - closed by close
        except OSError as error:
            raise FileError(error.errno, f"record file: {error.strerror}", self.uri) from error
        self.writable = self.flag == "w"
        self.pid = os.getpid()
        self.is_open = True
        self._at = 0

    def close(self) -> None:
        if not self.is_open:
            return
        handle, self.handle = self.handle, None
        self.is_open = False
        if handle is not None and (self.pid == os.getpid() or not self.writable):
            handle.close()
        elif handle is not None:
            _abandon(handle)  # the buffer belongs to the process that wrote it
        self.pid = None

    def reset(self) -> None:
        """Go back to the first record; writing empties the file."""
        self.close()
        self.open()

    @property
    def position(self) -> int:
        """Byte offset at which the next record is read or written."""
        return self._at

    def go_to(self, position: int) -> None:
        """Continue reading at the start of a record.

        Args:
            position: its byte offset, such as an earlier value of `position`.

        Raises:
            StateError: the file is open for writing, or closed.
        """
        handle = self._ready(write=False)
        if position != self._at:
            handle.seek(position)
            self._at = position

    def write(self, buf: bytes) -> None:
        """Write one record.

        Args:
            buf: the record, fewer than 2^29 bytes.

        Raises:
            StateError: the file is open for reading, closed, or was opened in another process.
            ArgumentError: `buf` is not bytes, or too long.
        """
        handle = self._ready(write=True)
        if not isinstance(buf, (bytes, bytearray, memoryview)):
            raise ArgumentError(f"write: buf is {type(buf).__name__}, expected bytes; encode text first")
        data = frame(bytes(buf))
        try:
            handle.write(data)
        except OSError as error:
            raise FileError(error.errno, f"record file: {error.strerror}", self.uri) from error
        self._at += len(data)

    def read(self) -> bytes | None:
        """Return the next record, or None after the last one.

        Raises:
            StateError: the file is open for writing, closed, or was opened in another process.
            FileFormatError: no record begins here; the message names file and byte offset.
        """
        handle = self._ready(write=False)
        record = read_record(handle, self._at, os.fstat(handle.fileno()).st_size, self.uri)
        if record is None:
            return None
        self._at += record[1]
        return record[0]

    def _ready(self, write: bool) -> IO[bytes]:
        """Return the open file, or raise an error that explains why it cannot be used."""
        if self.handle is None:
            raise StateError(f"{self.uri} is closed; call open() or reset() first")
        if self.writable != write:
            state = "writing" if self.writable else "reading"
            raise StateError(f"{self.uri} is open for {state}; make another {type(self).__name__}")
        if not write and self._may_reopen():
            return self._ready(write)
        if self.pid != os.getpid():
            raise StateError(
                f"{self.uri} was opened in process {self.pid}, but this is a forked child; call reset(), or make a "
                f"new {type(self).__name__} here"
            )
        return self.handle

    def _may_reopen(self) -> bool:
        """Reopen the file in a forked process if possible; return True if reopened."""
        return False

    def __del__(self) -> None:
        if getattr(self, "is_open", False):
            self.close()

    def __getstate__(self) -> dict[str, Any]:
        if self.is_open and self.writable:
            raise StateError(f"{self.uri} is open for writing and cannot be pickled; close it first")
        state = dict(self.__dict__)
        state.update(handle=None, pid=None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if state["is_open"]:
            self.is_open = False
            self.open()


def _abandon(handle: IO[bytes]) -> None:
    """Close the descriptor of a file without writing its buffer."""
    raw = handle.detach()  # type: ignore[attr-defined]
    raw.close()


class MXIndexedRecordIO(MXRecordIO):
    """Read or write a record file by key.

    A missing or outdated index is rebuilt, and the rebuild is logged.

    Args:
        idx_path: path of the index file, lines of ``key, tab, byte offset``.
        uri: path of the record file.
        flag: "r" to read, "w" to write new files.
        key_type: function that converts the text of a key.

    Attributes:
        idx: byte offsets by key.
        keys: the keys in the order of the index file.

    Raises:
        ArgumentError: `flag` is neither "r" nor "w".
        FileError: a file cannot be opened.
        FileFormatError: the record file is damaged, or the index file is not an index.

    Example:
        >>> record = mx.recordio.MXIndexedRecordIO("a.idx", "a.rec", "w")
        >>> record.write_idx(7, b"seven")
        >>> record.close()
        >>> mx.recordio.MXIndexedRecordIO("a.idx", "a.rec", "r").read_idx(7)
        b'seven'

    Source: MXNet 1.9.1 `MXIndexedRecordIO`, which fails without an index.
    """

    def __init__(
        self,
        idx_path: str | os.PathLike[str],
        uri: str | os.PathLike[str],
        flag: str,
        key_type: Callable[[Any], Any] = int,
    ) -> None:
        self.idx_path = os.fspath(idx_path)
        self.idx: dict[Any, int] = {}
        self.keys: list[Any] = []
        self.key_type = key_type
        self.fidx: IO[str] | None = None
        super().__init__(uri, flag)

    def open(self) -> None:
        super().open()
        if self.writable:
            self.idx, self.keys = {}, []
            try:
                self.fidx = open(self.idx_path, "w", encoding="utf-8")  # noqa: SIM115 - closed by close
            except OSError as error:
                super().close()
                raise FileError(error.errno, f"index file: {error.strerror}", self.idx_path) from error
        else:
            pairs = load_index(self.idx_path, self.uri, self.key_type)
            self.idx, self.keys = dict(pairs), [key for key, _ in pairs]

    def close(self) -> None:
        if not self.is_open:
            return
        own = self.pid == os.getpid()
        super().close()
        fidx, self.fidx = self.fidx, None
        if fidx is not None:
            if own:
                fidx.close()
            else:
                _abandon(fidx.detach())  # type: ignore[attr-defined]

    def seek(self, idx: Any) -> None:
        """Move to the record of a key.

        Args:
            idx: a key of `keys`.

        Raises:
            StateError: the file is open for writing, or closed.
            UnknownNameError: the index does not have the key; a KeyError.
        """
        self._ready(write=False)
        at = self.idx.get(idx)
        if at is None:
            count = f"among its {len(self.idx)}" if self.idx else f"and no other; {self.uri} has no records"
            raise UnknownNameError(f"{self.idx_path} has no key {idx!r} {count}")
        self.go_to(at)

    def tell(self) -> int:
        """Return the number of bytes written.

        Raises:
            StateError: the file is open for reading, or closed.
        """
        self._ready(write=True)
        return self._at

    def read_idx(self, idx: Any) -> bytes | None:
        """Return the record of a key.

        Args:
            idx: a key of `keys`.

        Raises:
            StateError: the file is open for writing, or closed.
            UnknownNameError: the index does not have the key; a KeyError.
            FileFormatError: no record begins at the offset in the index.
        """
        self.seek(idx)
        return self.read()

    def write_idx(self, idx: Any, buf: bytes) -> None:
        """Write one record under a key.

        Args:
            idx: the key, which `key_type` converts.
            buf: the record, fewer than 2^29 bytes.

        Raises:
            StateError: the file is open for reading, closed, or was opened in another process.
            ArgumentError: `buf` is not bytes, or too long.
        """
        key = self.key_type(idx)
        at = self.tell()
        self.write(buf)
        if self.fidx is not None:
            self.fidx.write(write_line(key, at))
        self.idx[key] = at
        self.keys.append(key)

    def _may_reopen(self) -> bool:
        if self.pid == os.getpid():
            return False
        at = self._at
        handle, self.handle = self.handle, None
        if handle is not None:
            handle.close()
        self.handle = open(self.uri, "rb", buffering=_BUFFER)  # noqa: SIM115 - closed by close
        self.handle.seek(at)
        self.pid = os.getpid()
        return True

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "fidx": None}
