"""Parameters and tables of rows, as the native engine reads and differentiates them: by pointer.

The engine looks where they lie before every forward and backward pass, because a tensor may have been replaced.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from ..ops.spec import Dim
from ..storage import LookupStorage, ParameterStorage, mark_of

Tensor = torch.Tensor


def _tensor(numbers: bytearray, storage: ParameterStorage) -> Tensor:
    """Return what the engine has copied of a gradient."""
    return torch.frombuffer(numbers, dtype=torch.float32).view(storage.tensor.shape)


class NativeParameters:
    """The numbers that parameters have in an engine, and what is remembered of their gradients."""

    def __init__(self, machine: Any) -> None:
        self._machine = machine
        self._numbers: dict[Any, int] = {}
        self._params: list[tuple[weakref.ref[ParameterStorage], bool]] = []
        self._tables: list[tuple[weakref.ref[LookupStorage], bool]] = []
        self._rows_before: dict[int, tuple[Tensor, Tensor]] = {}
        self._written: list[int] = []  # tables that the last backward pass has added to

    def renew(self) -> None:
        """Let go what only the last graph needed."""
        self._rows_before.clear()

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._params) + len(self._tables)

    def gone(self) -> int:
        """Count the parameters that nobody holds any more."""
        params = sum(reference() is None for reference, _ in self._params)
        return params + sum(reference() is None for reference, _ in self._tables)

    def number(self, reference: weakref.ref[ParameterStorage], is_updated: bool) -> int:
        """Return the engine's number of a parameter."""
        key = (reference, is_updated)
        number = self._numbers.get(key)
        if number is None:
            storage = reference()
            shape = tuple(storage.tensor.shape) if storage else ()
            number = self._numbers[key] = self._machine.add_parameter(shape, reference, is_updated)
            self._params.append((reference, is_updated))
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
            number = self._numbers[key] = self._machine.add_table(shape, reference)
            self._tables.append((reference, is_updated))
        return number

    def begin_pass(self) -> None:
        """Prepare a backward pass."""
        self._rows_before.clear()
        self._written.clear()
        self._machine.begin_pass()
        for number in self._machine.used_tables():
            self._begin_table(number)

    def _begin_table(self, number: int) -> None:
        reference, is_updated = self._tables[number]
        storage: Any = reference()  # the graph holds it
        gradient = 0
        if is_updated and storage.updated:
            self._written.append(number)
            if storage.touched and storage.gradient is not None:
                rows = storage.rows()
                self._rows_before[number] = rows, storage.gradient.index_select(0, rows)
            gradient = storage.ready().data_ptr()
        self._machine.set_table_gradient(number, gradient)

    def take_back(self) -> None:
        """Make the gradients of parameters what they were before a pass that has failed."""
        for number in self._machine.used_parameters():
            passed = self._machine.passed(number)
            if passed is not None:
                storage: Any = self._params[number][0]()
                storage.clear_gradient()
                if passed[0] is not None:
                    storage.set_gradient(_tensor(passed[0], storage))
        self.take_rows()
        for number in self._written:
            table: Any = self._tables[number][0]()
            table.clear_gradient()
            if number in self._rows_before:
                table.add_rows(*self._rows_before[number])

    def take_rows(self) -> None:
        """Remember which rows of tables the pass has written to."""
        for number in self._machine.used_tables():
            rows = self._machine.touched(number)
            storage = self._tables[number][0]()
            if rows and storage is not None:
                storage.touch(torch.frombuffer(rows, dtype=torch.int64))
                if len(storage.touched) > 16:  # many passes before an update
                    storage.rows()

    def gradient(self, number: int) -> Tensor | None:
        """Return the gradient of the last pass with respect to a parameter, None if it is no longer here.

        Shape:
            returns: the parameter's.
        """
        reference, is_updated = self._params[number]
        storage: Any = reference()  # the graph holds it
        if not is_updated:
            return torch.zeros_like(storage.tensor)
        total: Tensor | None = storage.gradient
        before, left = self._machine.passed(number) or (None, None)
        if total is None or mark_of(total) != left:
            return None  # it was updated, scaled, or made zero since
        return total.clone() if before is None else total - _tensor(before, storage)

    def collect(self, number: int) -> Tensor:
        """Let the next backward pass add to memory apart, and return that.

        Shape:
            returns: the parameter's.
        """
        storage: Any = self._params[number][0]()
        found = torch.zeros(storage.tensor.shape)
        self._machine.set_gradient(number, found.data_ptr())
        return found
