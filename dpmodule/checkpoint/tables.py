"""Tables whose rows are spread over processes, saved in one part for each process, and a manifest.

The manifest ``<prefix>-<epoch>.tables`` is JSON: the names of the parts, and the shape, dtype and storage type of each
table. Part k of n, ``<prefix>-<epoch>.tables.<token>-0000k-of-0000n.safetensors``, holds rows k - 1, k - 1 + n, ... of
each table under its name, and the optimizer's state of these rows. The token differs from save to save: a new save
writes other files, and is valid once its manifest has replaced the old one, together with the rest of its set.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import torch

from .._files import finish_commit, read_committed, write_atomically
from ..base import ArgumentError, BoundsError, FileError, FileFormatError, MXNetError, dtype_name
from ..context import Context, cpu
from ..ndarray import NDArray, safetensors
from ..ndarray.growing_table import GrowingTable, HashedArray
from ..ndarray.handle import Handle
from ..ndarray.row_source import FetchedArray, parts
from ..ops.dtypes import torch_dtype
from ..ops.shapes import HASHED_ROWS

PART = r"[0-9a-f]{8}-\d{5,}-of-\d{5,}\.safetensors"
"""Regular expression of the names of parts, without that of the manifest."""

NO_TABLES = b'{"version": 1, "parts": [], "tables": {}}'
"""Content of a manifest without tables."""

VERSION = 1
"""Version of the manifest; files of other versions are refused."""


class SavedTable:
    """A table in the parts of a save, whose rows are read when they are looked up.

    Args:
        paths: of the parts.
        name: of the array in each part.
        shape: of the whole table.
        dtype: its dtype name.
    """

    context: Context = cpu()

    def __init__(self, paths: list[str], name: str, shape: tuple[int, ...], dtype: str) -> None:
        self._paths, self._name, self.shape = paths, name, shape
        self.values = torch.empty((0, *shape[1:]), dtype=torch_dtype(dtype))

    def look_up(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows by their numbers.

        Args:
            rows: row numbers in any order, (R,) int64.

        Raises:
            FileError: a part is missing.
            FileFormatError: a part is damaged, or belongs to another table.
        """
        found = self.values.new_empty((len(rows), *self.shape[1:]))
        low, high = (int(rows.min()), int(rows.max())) if len(rows) else (0, -1)
        if low < 0 or high >= self.shape[0]:
            raise BoundsError(
                f"{self._name}: row {low if low < 0 else high} of a table with {self.shape[0]} rows; expected 0 to "
                f"{self.shape[0] - 1}"
            )
        count = len(self._paths)
        for begin, end in parts(self.shape[0]):
            if end <= low or begin > high:
                continue
            places = ((rows >= begin) & (rows < end)).nonzero().flatten()
            for k in range(count):
                here = places[rows[places] % count == k]
                if len(here):
                    slots = rows[here] // count
                    first, last = int(slots.min()), int(slots.max())
                    found[here] = self._read(k, first, last + 1)[slots - first]
        return found

    def check(self) -> None:
        """Raise FileFormatError if the parts hold arrays of other shapes."""
        for number, path in enumerate(self._paths):
            found, wanted = safetensors.read_shape(path, self._name), [self._rows_of(number), *self.shape[1:]]
            if found != wanted:
                raise FileFormatError(
                    f"{path}: array {self._name!r} has shape {found}, expected {wanted}; this file belongs to another "
                    "save"
                )

    def _rows_of(self, number: int) -> int:
        return len(range(number, self.shape[0], len(self._paths)))

    def _read(self, number: int, begin: int, end: int) -> torch.Tensor:
        """Return rows of a part."""
        like = self.values.new_empty((1,)).expand(self._rows_of(number), *self.shape[1:])
        return safetensors.read_rows(self._paths[number], self._name, like, begin, end)

    def whole(self) -> torch.Tensor:
        """Return all rows."""
        found = self.values.new_empty(self.shape)
        for begin, end in parts(self.shape[0]):
            found[begin:end] = self.look_up(torch.arange(begin, end))
        return found

    def assign(self, value: Handle) -> None:
        """Raise an error, since a saved table cannot be written."""
        raise ArgumentError(
            f"{self._name} is in files, which cannot be written; make a copy: array.fetched()"
        )


class SavedIds:
    """A table of ids in the parts of a save.

    Args:
        about: number of steps that have trained it as "step", and the seed of initial rows as "seed".
        others: arguments as for `SavedTable`.
    """

    context: Context = cpu()

    def __init__(
        self, about: Mapping[str, int], paths: list[str], name: str, shape: tuple[int, ...], dtype: str
    ) -> None:
        self._about, self._paths, self._name, self.shape = about, paths, name, shape
        self.values = torch.empty((0, *shape[1:]), dtype=torch_dtype(dtype))

    def _blocks(self, arrays: Mapping[str, torch.Tensor]) -> Iterator[dict[str, torch.Tensor]]:
        """Yield rows of arrays of the parts by name, with their ids as "ids"; free slots are left out.

        Args:
            arrays: a tensor of the row's shape and dtype for each name in the files.
        """
        ids, used = f"ids:{self._name}", f"used:{self._name}"
        wanted = {ids: _NUMBER, used: torch.tensor(True), **arrays}
        for path in self._paths:
            count = safetensors.read_shape(path, ids)[0]
            for begin, end in parts(count):
                block = {
                    name: safetensors.read_rows(path, name, like.expand(count, *like.shape), begin, end)
                    for name, like in wanted.items()
                }
                is_used = block.pop(used)
                yield {"ids" if name == ids else name: each[is_used] for name, each in block.items()}

    def check(self) -> None:
        """Raise FileFormatError if the parts do not hold the table, or its manifest has no numbers."""
        int(self._about["step"]), int(self._about["seed"])
        for path in self._paths:
            count = safetensors.read_shape(path, f"ids:{self._name}")
            found, wanted = safetensors.read_shape(path, self._name), [*count, *self.shape[1:]]
            if found != wanted or len(count) != 1 or self.shape[0] != HASHED_ROWS:
                raise FileFormatError(
                    f"{path}: the ids {self._name!r} have shape {count}, and their rows {found}; this file belongs to "
                    "another save"
                )

    def load_into(self, rows: GrowingTable, wanted: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Add the rows of ids for which a function returns True, and what belongs to them."""
        last = f"last:{self._name}"
        for block in self._blocks({self._name: self.values.new_empty(self.shape[1:]), last: _NUMBER}):
            own = wanted(block["ids"])
            rows.add(block["ids"][own], block[self._name][own], block[last][own])
        for path in self._paths:
            name = f"waiting:{self._name}"
            count = safetensors.read_shape(path, name)[0]
            waiting = safetensors.read_rows(path, name, _NUMBER.expand(count, 3), 0, count)
            rows.add_waiting(waiting[wanted(waiting[:, 0])])
        rows.step, rows.seed = int(self._about["step"]), int(self._about["seed"])

    def state(self, name: str, dtype: str, rows: GrowingTable) -> torch.Tensor:
        """Return an array of the optimizer's state for the slots of a table that `load_into` has filled."""
        like = torch.empty(self.shape[1:], dtype=torch_dtype(dtype))
        found = like.new_zeros((len(rows.values), *self.shape[1:]))
        for block in self._blocks({name: like}):
            slots = rows.slots_of(block["ids"])
            found[slots[slots >= 0]] = block[name][slots >= 0]
        return found

    def parts(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return all ids, ascending, and their rows."""
        blocks = list(self._blocks({self._name: self.values.new_empty(self.shape[1:])}))
        ids, order = torch.cat([_NUMBER.new_empty(0), *(block["ids"] for block in blocks)]).sort()
        return ids, torch.cat([self.values, *(block[self._name] for block in blocks)])[order]


_NUMBER = torch.tensor(0)


def save(path: str, tables: Mapping[str, Any], with_states: bool, write: Callable[[bytes], None]) -> None:
    """Write the part of this process; rank 0 then switches to the parts of all, and removes older ones.

    All processes must call this at the same point.

    Args:
        path: of the manifest.
        tables: arrays of spread tables by name.
        with_states: True to save the optimizer's states, too.
        write: called in rank 0 with the manifest's content; writes it together with the rest of its set.

    Raises:
        StateError: another process is at another exchange.
        FileError: a process cannot write its part, or not to the folder of rank 0; the former save stays.
    """
    sources = {name: array.source for name, array in tables.items()}
    first = next(iter(sources.values()))
    first.meet()
    exchange = first.exchange
    token = int(exchange.gather(torch.tensor([secrets.randbits(32)]))[0])
    names = [
        f"{os.path.basename(path)}.{token:08x}-{k + 1:05d}-of-{exchange.size:05d}.safetensors"
        for k in range(exchange.size)
    ]
    arrays: dict[str, Handle] = {}
    manifest: dict[str, Any] = {"version": VERSION, "parts": names, "tables": {}}
    for name, source in sources.items():
        for part, tensor in source.saved().items():
            arrays[f"{part}:{name}" if part else name] = NDArray(tensor, source.context)
        manifest["tables"][name] = row = {
            "shape": list(source.shape),
            "dtype": dtype_name(arrays[name].dtype),
            "dense": tables[name].is_dense,
        }
        if isinstance(tables[name], HashedArray):
            row["ids"] = {"step": source.rows.step, "seed": source.rows.seed}
        if with_states:
            row["state"] = _named_state(source.state(), f"state:{name}", arrays)
    paths = [os.path.join(os.path.dirname(path), name) for name in names]
    own = paths[exchange.rank]
    with _in_all(exchange, path, own):
        write_atomically(own, lambda file: safetensors.write(file, arrays))
    with _in_all(exchange, path, own):
        if exchange.rank == 0:
            for rank, part in enumerate(paths):
                if not os.path.exists(part):
                    text = f"rank {rank} saves its rows in another folder; all processes must share one"
                    raise FileError(errno.ENOENT, text, part)
            write(json.dumps(manifest).encode())
            remove_parts(path, kept=names)


def _named_state(state: Any, name: str, arrays: dict[str, Handle]) -> Any:
    """Return an optimizer's state with names in place of its arrays, which are added to `arrays`."""
    if isinstance(state, NDArray):
        arrays[name] = state
        return {"array": name, "dtype": dtype_name(state.dtype)}
    if isinstance(state, (tuple, list)):
        return [_named_state(part, f"{name}.{i}", arrays) for i, part in enumerate(state)]
    if state is not None:
        raise ArgumentError(
            f"{name} is a {type(state).__name__}, expected arrays, which can be saved in parts"
        )
    return None


@contextmanager
def _in_all(exchange: Any, path: str, own: str) -> Iterator[None]:
    """Run a block in all processes; if it fails in one, remove the part of each, and raise an error in all."""
    failure: BaseException | None = None
    try:
        yield
    except Exception as error:
        failure = error
    failed = [
        rank for rank, is_ok in enumerate(exchange.gather(torch.tensor([failure is None]))) if not is_ok
    ]
    if failed:
        with suppress(OSError):
            os.unlink(own)
        raise failure or FileError(
            errno.EIO, f"rank {failed[0]} could not save its rows; see its error", path
        )


def remove(path: str) -> None:
    """Remove a manifest and its parts."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    remove_parts(path)


def remove_parts(path: str, kept: Collection[str] = ()) -> None:
    """Remove the parts of a manifest, as far as possible.

    Args:
        path: of the manifest.
        kept: base names of parts to keep.
    """
    for part in glob.glob(f"{glob.escape(path)}.*"):
        name = os.path.basename(part)
        if name not in kept and re.fullmatch(PART, name.removeprefix(f"{os.path.basename(path)}.")):
            with suppress(OSError):
                os.unlink(part)


def load(path: str) -> dict[str, FetchedArray]:
    """Return the tables of a manifest by name, as arrays that read their rows when they are read.

    Returns:
        The tables; an empty dictionary if the manifest does not exist.

    Raises:
        FileFormatError: the manifest is damaged.
    """
    found: dict[str, FetchedArray] = {}
    with _damage_reported(path):
        for name, (row, make) in _tables(path).items():
            source = make(name, row["dtype"])
            source.check()
            found[name] = HashedArray(source) if "ids" in row else FetchedArray(source, bool(row["dense"]))
    return found


def load_states(path: str, table_rows: Callable[[str, int], Any]) -> dict[str, Any]:
    """Return the optimizer's states of the tables of a manifest by name, with arrays on the CPU.

    Args:
        table_rows: ``(name, number of rows) -> numbers`` of the rows whose states are read, (R,) int64; or the
            `GrowingTable` of a table of ids.

    Raises:
        FileFormatError: the manifest is damaged.
    """

    def read(state: Any, table: Any, make: Any, rows: Any) -> Any:
        if isinstance(state, list):
            return tuple(read(part, table, make, rows) for part in state)
        if state is None:
            return None
        name, dtype = state["array"], state["dtype"]
        is_hashed = isinstance(rows, GrowingTable)
        return NDArray(
            table.state(name, dtype, rows) if is_hashed else make(name, dtype).look_up(rows), cpu()
        )

    with _damage_reported(path):
        return {
            name: read(row["state"], make(name, row["dtype"]), make, table_rows(name, row["shape"][0]))
            for name, (row, make) in _tables(path).items()
            if "state" in row
        }


def _tables(path: str) -> dict[str, tuple[dict[str, Any], Callable[[str, str], Any]]]:
    """Return each table's entry in a manifest, and a function that makes a `SavedTable` of an array of its parts."""
    finish_commit(path)
    if not os.path.exists(path):
        return {}
    with _damage_reported(path):
        content = json.loads(read_committed(path))
        version, folder = content["version"], os.path.dirname(path)
        names = [os.path.basename(str(name)) for name in content["parts"]]
        paths = [os.path.join(folder, name) for name in names]
        tables: dict[str, tuple[dict[str, Any], Callable[[str, str], Any]]] = {
            str(name): (dict(row), partial(_table, paths, tuple(map(int, row["shape"])), row.get("ids")))
            for name, row in content["tables"].items()
        }
    if version != VERSION:
        raise FileFormatError(
            f"{path}: version {version!r} of a manifest; this package reads version {VERSION}"
        )
    if tables and not paths:
        raise FileFormatError(f"{path}: the manifest has tables, but no parts of them")
    return tables


@contextmanager
def _damage_reported(path: str) -> Iterator[None]:
    try:
        yield
    except MXNetError:
        raise
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        RuntimeError,
        OverflowError,
    ) as error:
        raise FileFormatError(f"{path}: the manifest of the tables is damaged: {error!r:.200}") from error


def _table(paths: list[str], shape: tuple[int, ...], ids: Any, name: str, dtype: str) -> Any:
    if ids is not None:
        return SavedIds(ids, paths, name, shape, dtype)
    return SavedTable(paths, name, shape, dtype)
