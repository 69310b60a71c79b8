"""Parameters and tables of rows, as the native engine reads and differentiates them: by pointer.

They are looked up again before every forward and backward pass, because a tensor may have been replaced.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, TypeVar

import torch

from .base_graph import Marks
from .ops.spec import Dim
from .storage import LookupStorage, ParameterStorage, mark_of

__all__ = ["NativeParameters"]

Tensor = torch.Tensor
S = TypeVar("S", bound=ParameterStorage)


def _here(known: list[tuple[weakref.ref[S], bool]], numbers: Iterable[int]) -> list[tuple[int, S]]:
    return [(each, storage) for each in numbers if (storage := known[each][0]()) is not None]


class NativeParameters:
    """The numbers that parameters have in an engine, and what is remembered of their values and gradients.

    Args:
        machine: the engine.
    """

    def __init__(self, machine: Any) -> None:
        self._machine = machine
        self._numbers: dict[Any, int] = {}
        self._params: list[tuple[weakref.ref[ParameterStorage], bool]] = []
        self._tables: list[tuple[weakref.ref[LookupStorage], bool]] = []
        self._held: list[ParameterStorage | None] = []
        self._seen: list[tuple[int, int]] = []
        self._entries = -1  # when `follow` looked who has entered the graph
        self._watched: list[tuple[int, ParameterStorage]] = []
        self._watched_tables: list[tuple[int, LookupStorage]] = []
        self._places: dict[int, int] = {}  # of tables, the addresses that the engine knows
        self._addresses: dict[int, int] = {}  # of parameters
        self._packed: dict[int, Tensor] = {}  # copies of parameters whose elements do not lie side by side
        self._before: dict[int, Tensor] = {}
        self._rows_before: dict[int, tuple[Tensor, Tensor]] = {}
        self._written: list[int] = []  # tables that the last backward pass has added to
        self._left: dict[int, tuple[int, int]] = {}  # gradients, as the last backward pass has left them

    def renew(self) -> None:
        """Let go what only the last graph needed."""
        self._held.clear()
        self._before.clear()
        self._rows_before.clear()
        self._entries = -1
        self._watched.clear()
        self._watched_tables.clear()

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._params) + len(self._tables)

    def gone(self) -> int:
        """Count the parameters that nobody holds any more."""
        params = sum(reference() is None for reference, _ in self._params)
        return params + sum(reference() is None for reference, _ in self._tables)

    def hold(self, reference: weakref.ref[ParameterStorage]) -> None:
        """Keep a parameter as long as the graph."""
        self._held.append(reference())

    def keep(self, storage: ParameterStorage) -> None:
        """Do what `hold` does."""
        self._held.append(storage)

    def number(self, reference: weakref.ref[ParameterStorage], is_updated: bool) -> int:
        """Return the engine's number of a parameter."""
        key = (reference, is_updated)
        number = self._numbers.get(key)
        if number is None:
            storage = reference()
            number = self._numbers[key] = self._machine.add_parameter(
                tuple(storage.tensor.shape) if storage else ()
            )
            self._params.append((reference, is_updated))
            self._seen.append((0, -1))
        return number

    def dim(self, number: int) -> Dim:
        """Return the shape of a parameter."""
        storage = self._params[number][0]()
        return Dim(tuple(storage.tensor.shape) if storage else ())

    def table_number(self, reference: weakref.ref[LookupStorage], is_updated: bool) -> int:
        """Return the engine's number of a table of rows."""
        key = (reference, is_updated, "rows")
        number = self._numbers.get(key)
        if number is None:
            storage = reference()
            shape = tuple(storage.tensor.shape) if storage else (0,)
            number = self._numbers[key] = self._machine.add_table(shape[0], shape[1:] or (1,))
            self._tables.append((reference, is_updated))
        return number

    def follow(self) -> None:
        """Tell the engine what changed in the values of parameters; little is done where nothing did."""
        entries = self._machine.entries
        if entries != self._entries:
            self._entries = entries
            params, tables = self._machine.used()
            self._watched = _here(self._params, params)
            self._watched_tables = _here(self._tables, tables)
        changed = False
        for number, storage in self._watched:
            before = self._addresses.get(number)
            if self._is_changed(number, storage.tensor):
                changed = True
                if self._addresses[number] != before:
                    self._machine.set_parameter(number, self._addresses[number], 0)
        if changed:
            self._machine.parameters_changed()
        for number, table in self._watched_tables:
            if table.tensor.data_ptr() != self._places.get(number):
                self._refresh_table(number, False)

    def _is_changed(self, number: int, tensor: Tensor) -> bool:
        """Say whether somebody has written to a parameter since it was asked last; note where it lies now."""
        now = tensor.data_ptr(), tensor._version
        if now == self._seen[number]:
            return False
        self._seen[number] = now
        self._packed.pop(number, None)
        if tensor.is_contiguous():
            self._addresses[number] = now[0]
        else:
            self._packed[number] = packed = tensor.contiguous()
            self._addresses[number] = packed.data_ptr()
        return True

    def refresh(self, with_gradients: bool) -> None:
        """Tell the engine where parameters lie now, and that their values changed if they did.

        Args:
            with_gradients: a backward pass follows, that adds to their gradients.
        """
        machine = self._machine
        params, tables = machine.used()
        changed = False
        for number in params:
            reference, is_updated = self._params[number]
            storage = reference()
            if storage is None:
                continue
            changed |= self._is_changed(number, storage.tensor)
            gradient = 0
            if with_gradients and is_updated and storage.updated:
                if storage.gradient is not None:
                    self._before[number] = storage.gradient.clone()
                gradient = self._gradient_of(storage)
                self._left[number] = mark_of(storage.gradient)
            machine.set_parameter(number, self._addresses[number], gradient)
        for number in tables:
            self._refresh_table(number, with_gradients)
        if changed:
            machine.parameters_changed()

    def _refresh_table(self, number: int, with_gradients: bool) -> None:
        reference, is_updated = self._tables[number]
        storage = reference()
        if storage is None:
            return
        gradient = 0
        if with_gradients and is_updated and storage.updated:
            self._written.append(number)
            if storage.touched and storage.gradient is not None:
                rows = storage.rows()
                self._rows_before[number] = rows, storage.gradient.index_select(0, rows)
            gradient = storage.ready().data_ptr()
        self._places[number] = place = storage.tensor.data_ptr()
        self._machine.set_table(number, place, gradient)

    @staticmethod
    def _gradient_of(storage: ParameterStorage) -> int:
        if isinstance(storage, LookupStorage):
            # a table used as one expression: looked-up rows add to the same memory
            buffer = storage.ready()
            storage.touched.append(torch.arange(len(storage.tensor)))
            return buffer.data_ptr()
        if storage.gradient is None:
            storage.gradient = storage.ready()
            storage.spare = None
        elif not storage.gradient.is_contiguous():
            storage.gradient = storage.gradient.contiguous()
        return storage.gradient.data_ptr()

    def begin_pass(self) -> None:
        """Prepare a backward pass."""
        self._before.clear()
        self._rows_before.clear()
        self._written.clear()
        self._left.clear()
        self.refresh(True)

    def take_back(self) -> None:
        """Make the gradients of parameters what they were before a pass that has failed."""
        for number in self._left:
            storage: Any = self._params[number][0]()
            storage.clear_gradient()
            if number in self._before:
                storage.set_gradient(self._before[number])
        self.take_rows()
        for number in self._written:
            table: Any = self._tables[number][0]()
            table.clear_gradient()
            if number in self._rows_before:
                table.add_rows(*self._rows_before[number])

    def take_rows(self) -> None:
        """Remember which rows of tables the pass has written to."""
        for number in self._machine.used()[1]:
            rows = self._machine.touched(number)
            storage = self._tables[number][0]()
            if rows and storage is not None:
                storage.touch(torch.frombuffer(rows, dtype=torch.int64))
                if len(storage.touched) > 16:  # many passes before an update
                    storage.rows()

    def gradient(self, number: int) -> Tensor | None:
        """Return the gradient of the last pass with respect to a parameter, None if it is no longer here.

        Args:
            number: the parameter.
        """
        reference, is_updated = self._params[number]
        storage: Any = reference()  # the graph holds it
        if not is_updated:
            return torch.zeros_like(storage.tensor)
        total: Tensor | None = storage.gradient
        if total is None or mark_of(total) != self._left.get(number):
            return None  # it was updated, scaled, or made zero since
        before = self._before.get(number)
        return total.clone() if before is None else total - before

    def collect(self, number: int) -> Tensor:
        """Let the next backward pass add to memory apart, and return that.

        Args:
            number: the parameter.
        """
        storage: Any = self._params[number][0]()
        found = torch.zeros(storage.tensor.shape)
        self._machine.set_parameter(number, self._addresses[number], found.data_ptr())
        return found

    def marks(self) -> Marks:
        """Return marks of the parameters that the graph reads, by kernels or by calls."""
        params, tables = self._machine.used()
        found = {self._params[each][0]: self._seen[each] for each in params}
        for each in tables:
            reference = self._tables[each][0]
            if (table := reference()) is not None:
                found[reference] = table.mark()
        for storage in self._held:
            if storage is not None and (held := weakref.ref(storage)) not in found:
                found[held] = storage.mark()
        return found
