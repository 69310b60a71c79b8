"""Storage of parameters, values and gradients, which may share memory with NDArrays and torch parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch

from ..base import DTypeError
from ..ndarray import NDArray
from ..ndarray.tape import variable_of
from .errors import ShapeError, StateError, user_line

Tensor = torch.Tensor

if TYPE_CHECKING:
    from ..ndarray.row_source import RowSource

    class TableFiller(Protocol):
        """Fills a table; such as `initializers.InitialTable`."""

        def fill(self, tensor: Tensor) -> None: ...


def memory_version(tensor: Tensor) -> tuple[int, int]:
    """Return address and version of a tensor, which change if it is modified or replaced.

    Shape:
        tensor: any.
    """
    return tensor.data_ptr(), tensor._version


def shape_of(name: str, tensor: Tensor) -> torch.Size:
    """Return the shape of a parameter's tensor after checking dtype and size.

    Shape:
        tensor: any, of one element or more.
    """
    if not tensor.is_floating_point():
        raise DTypeError(
            f"parameter {name} would be {_name(tensor.dtype)}, expected float32 or float64: training needs"
            f" gradients; pass tensor.float() (at {user_line()})"
        )
    if not tensor.numel():
        raise ShapeError(
            f"parameter {name} would have the shape {tuple(tensor.shape)}, which has no elements"
            f" (at {user_line()})"
        )
    return tensor.shape


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class ParameterStorage:
    """Value and gradient of a parameter.

    Shape:
        tensor, gradient, spare: (*d).

    Args:
        tensor: the value, updated in place, so that an array that shares its memory sees every update.

    Attributes:
        gradient: gradient accumulated since the last update; None means zeros.
        spare: a tensor of zeros for the next gradient, or None.
    """

    __slots__ = ("__weakref__", "gradient", "name", "shape", "spare", "tensor", "updated")

    def __init__(self, name: str, tensor: Tensor) -> None:
        self.name, self.tensor, self.shape = name, tensor, shape_of(name, tensor)
        self.gradient: Tensor | None = None
        self.spare: Tensor | None = None
        self.updated = True

    def check_fits(self, device: torch.device, dtype: torch.dtype) -> None:
        """Check that the value has the device and dtype of a graph."""
        tensor = self.tensor
        if tensor.dtype is not dtype or tensor.device.type != device.type:
            raise DTypeError(
                f"parameter {self.name} is {_name(tensor.dtype)} on {tensor.device}, but this graph uses"
                f" {_name(dtype)} on {device}; call configure(dtype=, device=) before creating parameters"
                f" (at {user_line()})"
            )
        self.check_shape()

    def check_shape(self) -> None:
        """Check that the value still has its original shape."""
        found = self.tensor.shape
        if found != self.shape:
            raise ShapeError(
                f"parameter {self.name} has the shape {tuple(self.shape)}, but its tensor was replaced by one of shape"
                f" {tuple(found)}; use set_value() for other values, and a new parameter for"
                f" another shape (at {user_line()})"
            )

    def whole(self) -> Tensor:
        """Return the value for users.

        Shape:
            returns: (*d).

        Raises:
            StateError: it is not in this process.
        """
        return self.tensor

    def memory_version(self) -> tuple[int, int]:
        """Return the memory version of the value, which changes if it is modified or replaced."""
        return memory_version(self.tensor)

    def add_gradient(self, gradient: Tensor) -> None:
        """Add to the gradient; the tensor is copied.

        Shape:
            gradient: (*d).
        """
        if self.gradient is None:
            self.gradient = gradient.clone() if self.spare is None else self.spare.copy_(gradient)
            self.spare = None
        else:
            self.gradient.add_(gradient)

    def ready(self) -> Tensor:
        """Return a tensor of zeros for the next gradient.

        Shape:
            returns: (*d).
        """
        return torch.zeros_like(self.tensor) if self.spare is None else self.spare

    def opened(self) -> Tensor:
        """Return contiguous memory of the gradient, to which a pass adds.

        Shape:
            returns: (*d).
        """
        if self.gradient is None:
            self.gradient, self.spare = self.ready(), None
        elif not self.gradient.is_contiguous():
            self.gradient = self.gradient.contiguous()
        answer: Tensor = self.gradient  # TorchStorage may return a new view
        return answer

    def set_gradient(self, gradient: Tensor) -> None:
        """Replace the gradient, which must be zero.

        Shape:
            gradient: (*d).
        """
        self.add_gradient(gradient)

    def dense_gradient(self) -> Tensor:
        """Return the gradient, or zeros.

        Shape:
            returns: (*d).
        """
        return torch.zeros_like(self.tensor) if self.gradient is None else self.gradient

    def clear_gradient(self) -> None:
        """Set the gradient to zero."""
        self.gradient = None

    def gradient_is_zero(self) -> None:
        """Record that native code has filled the gradient with zeros."""
        self.spare, self.gradient = self.gradient, None

    def scale_gradient(self, factor: float) -> None:
        """Multiply the gradient."""
        if self.gradient is not None:
            self.gradient.mul_(factor)


def _are_alike(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype is b.dtype and a.device == b.device


def _lazy_zeros(like: Tensor) -> Tensor:
    """Return zeros, which take memory when they are written."""
    if not like.is_cpu or like.dtype is not torch.float32:
        return torch.zeros_like(like)
    return torch.from_numpy(np.zeros(like.shape, np.float32))  # torch.zeros writes them


class LookupStorage(ParameterStorage):
    """A lookup table, whose gradient is limited to the rows that were looked up.

    Shape:
        tensor: (rows, *d).

    Args:
        initial: fills `tensor` when it is first read; None if it has values.

    Attributes:
        memory: `tensor`, which may not have values yet.
        touched: index tensors of the rows with a gradient, which may repeat.
    """

    __slots__ = ("_buffer", "_distinct", "initial", "memory", "touched")

    is_fetched = False

    def __init__(self, name: str, tensor: Tensor, initial: TableFiller | None = None) -> None:
        super().__init__(name, tensor)
        self.memory, self.initial = tensor, initial
        if initial is not None:
            del self.tensor
        self.touched: list[Tensor] = []
        self._buffer: Tensor | None = None
        self._distinct: Tensor | None = None  # sorted, distinct rows

    def __getattr__(self, name: str) -> Tensor:
        if name != "tensor":
            raise AttributeError(f"a table has no {name!r}")
        return self.begin(self.initial)

    def begin(self, initial: TableFiller | None) -> Tensor:
        """Give the table its first values, if it does not have values yet.

        Args:
            initial: fills the table; None if `memory` has been filled.

        Shape:
            returns: (rows, *d).
        """
        if self.initial is not None:
            if initial is not None:
                with torch.no_grad():
                    initial.fill(self.memory)
            self.tensor, self.initial = self.memory, None
        return self.tensor

    def postpone(self, initial: TableFiller) -> None:
        """Replace all values when they are next read."""
        if self.initial is None:
            del self.tensor
        self.initial = initial

    def place(self, row: int, version: int) -> int:
        """Return where in `tensor` a row is.

        Args:
            version: of the graph that looks up the row.
        """
        return row

    def refuse(self, row: int) -> None:
        """Raise an error for a row outside of the table, also in the processes that wait for this one."""

    def sparse_gradient(self) -> tuple[Tensor, Tensor]:
        """Return the rows with a gradient, ascending, and their gradients.

        Shape:
            returns: (n,) int64, (n, *d).
        """
        rows = self.rows()
        return rows, self.ready().index_select(0, rows)

    def add_rows(self, rows: Tensor, gradient: Tensor) -> None:
        """Add the gradients of rows, which may repeat.

        Shape:
            rows: (n,).
            gradient: (n, *d).
        """
        self.ready().index_add_(0, rows, gradient)
        self.touched.append(rows)

    def touch(self, rows: Tensor) -> None:
        """Record sorted, distinct rows whose gradient has been written.

        Shape:
            rows: (n,).
        """
        self.touched.append(rows)
        self._distinct = rows

    def ready(self) -> Tensor:
        if self._buffer is None or not _are_alike(self._buffer, self.tensor):
            self._buffer = _lazy_zeros(self.tensor)
        self.gradient = self._buffer
        return self._buffer

    def opened(self) -> Tensor:
        self.touched.append(torch.arange(len(self.tensor)))
        return self.ready()

    def rows(self) -> Tensor:
        """Return the sorted, distinct rows with a gradient.

        Shape:
            returns: (n,), int64.
        """
        if not self.touched:
            return torch.zeros(0, dtype=torch.int64, device=self.tensor.device)
        if len(self.touched) == 1 and self.touched[0] is self._distinct:
            return self._distinct
        found = torch.unique(torch.cat(self.touched))
        self.touched, self._distinct = [found], found
        answer: Tensor = found
        return answer

    def clear_gradient(self) -> None:
        if self._buffer is not None and self.touched:
            self._buffer.index_fill_(0, self.rows(), 0.0)
        self.touched = []
        self.gradient = None

    def gradient_is_zero(self) -> None:
        self.touched = []
        self.gradient = None

    def add_gradient(self, gradient: Tensor) -> None:
        self.ready().add_(gradient)
        self.touched.append(torch.arange(len(self.tensor), device=self.tensor.device))

    def set_gradient(self, gradient: Tensor) -> None:
        rows = gradient.reshape(len(gradient), -1).any(1).nonzero().flatten()
        self.add_rows(rows, gradient.index_select(0, rows))


class FetchedStorage(LookupStorage):
    """A table whose rows are elsewhere; a graph fetches those that it looks up.

    They are the first rows of `tensor`, in the order in which the graph looks them up first; the others take no memory.

    Args:
        source: looks up rows by their numbers.

    Shape:
        tensor: (rows, *d).
    """

    __slots__ = ("_numbers", "_places", "_version", "source")

    is_fetched = True

    def __init__(self, name: str, source: RowSource) -> None:
        self.name, self.source, self.shape = name, source, torch.Size(source.shape)
        self.memory = source.values.new_empty(source.shape)
        self.initial = self.gradient = self.spare = self._buffer = self._distinct = None
        self.touched, self.updated = [], True
        self._places: dict[int, int] = {}
        self._numbers = torch.empty(0, dtype=torch.int64)  # of the rows in `memory`
        self._version = -1

    def place(self, row: int, version: int) -> int:
        if version != self._version:
            self._places.clear()
            self._numbers, self._version = self._numbers[:0], version
        return self._places.setdefault(row, len(self._places))

    def refuse(self, row: int) -> None:
        self.source.look_up(torch.tensor([row]))

    @property
    def tensor(self) -> Tensor:
        begin = len(self._numbers)
        if len(self._places) > begin:
            numbers = torch.tensor(list(self._places)[begin:])
            # `.data`: rows that are new to the graph do not change those that it has computed with
            self.memory.data[begin : len(self._places)] = self.source.look_up(numbers)
            self._numbers = torch.cat([self._numbers, numbers])
        return self.memory

    @tensor.setter
    def tensor(self, value: Tensor) -> None:
        raise self._not_here()

    def whole(self) -> Tensor:
        raise self._not_here()

    def _not_here(self) -> StateError:
        return StateError(
            f"{self.name}: the rows of this table are spread over processes; read it with get_params() of the module, "
            f"and set it with set_params() (at {user_line()})"
        )

    def dense_gradient(self) -> Tensor:
        raise self._not_here()

    def sparse_gradient(self) -> tuple[Tensor, Tensor]:
        places, values = super().sparse_gradient()
        rows, order = self._numbers[places].sort()
        return rows, values[order]


parameter_attributes: WeakKeyDictionary[ParameterStorage, Mapping[str, str]] = WeakKeyDictionary()
"""Attributes of the symbol node of a parameter, such as ``__init__``."""


class ArrayStorage(ParameterStorage):
    """A parameter that shares value and gradient with an NDArray.

    An array without a gradient gets one attached; `backward` accumulates into it, regardless of `grad_req`, until a
    trainer has used it.
    """

    __slots__ = ("_trained", "array")

    def __init__(self, name: str, array: NDArray) -> None:
        self.name, self.array = name, array  # without super().__init__, which would write the gradient
        self.shape = shape_of(name, array.tensor)
        self._trained, self.spare = True, None
        if variable_of(array) is None:
            array.attach_grad("add")

    @property
    def updated(self) -> bool:
        """True if trainers update the parameter; False if the array's `grad_req` is "null"."""
        marked = variable_of(self.array)
        return self._trained and (marked is None or marked.request != "null")

    @updated.setter
    def updated(self, value: bool) -> None:
        self._trained = value

    @property
    def tensor(self) -> Tensor:
        """The array's memory.

        Shape:
            returns: the array's shape.
        """
        return self.array.tensor

    @tensor.setter
    def tensor(self, value: Tensor) -> None:
        self.array.tensor = value

    @property
    def gradient(self) -> Tensor | None:
        """The array's gradient.

        Shape:
            returns: the array's shape.
        """
        grad = self.array.grad
        return None if grad is None else grad.tensor

    @gradient.setter
    def gradient(self, value: Tensor | None) -> None:
        grad = self.array.grad
        if grad is None or value is grad.tensor:
            return
        if value is None:
            grad.tensor.zero_()
        else:
            grad.tensor.copy_(value)


class TorchStorage(ParameterStorage):
    """A parameter that shares value and ``.grad`` with a torch parameter."""

    __slots__ = ("parameter",)

    def __init__(self, name: str, parameter: Tensor) -> None:
        self.name, self.parameter = name, parameter
        self.shape = shape_of(name, self.tensor)
        self.spare = None

    @property
    def updated(self) -> bool:
        """True if trainers update the parameter: its ``requires_grad``."""
        return self.parameter.requires_grad

    @updated.setter
    def updated(self, value: bool) -> None:
        self.parameter.requires_grad_(value)

    @property
    def tensor(self) -> Tensor:
        """The parameter's memory.

        Shape:
            returns: the parameter's shape, (1,) for a scalar.
        """
        found = self.parameter.detach()
        return found if found.dim() else found.view(1)

    @tensor.setter
    def tensor(self, value: Tensor) -> None:
        self.parameter.data = value.view(self.parameter.shape)

    @property
    def gradient(self) -> Tensor | None:
        """The parameter's ``.grad``.

        Shape:
            returns: as `tensor`.
        """
        found = self.parameter.grad
        return found if found is None or found.dim() else found.view(1)

    @gradient.setter
    def gradient(self, value: Tensor | None) -> None:
        self.parameter.grad = None if value is None else value.view(self.parameter.shape)


class StateStorage(ParameterStorage):
    """An auxiliary state, such as a moving average, which is saved like a parameter but never trained.

    Shape:
        tensor: any.
    """

    __slots__ = ()

    def __init__(self, name: str, tensor: Tensor) -> None:
        self.name, self.tensor, self.shape = name, tensor, tensor.shape  # any dtype, since it is not trained
        self.gradient = self.spare = None
        self.updated = False
