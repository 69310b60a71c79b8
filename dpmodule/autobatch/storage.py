"""The memory of parameters, their own or that of NDArrays and torch parameters: values and gradients."""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

import torch

from ..base import DTypeError
from ..ndarray import NDArray
from ..ndarray.tape import variable_of
from .errors import ShapeError, user_line

Tensor = torch.Tensor


def memory_version(tensor: Tensor) -> tuple[int, int]:
    """Return what tells whether somebody has written to a tensor, or taken another one.

    Shape:
        tensor: any.
    """
    return tensor.data_ptr(), tensor._version


def shape_of(name: str, tensor: Tensor) -> torch.Size:
    """Return the shape of what a parameter is made of.

    Shape:
        tensor: any, of one element or more.
    """
    if not tensor.is_floating_point():
        raise DTypeError(
            f"parameter {name} would be {_name(tensor.dtype)}, expected float32 or float64: what is trained needs"
            f" gradients; pass tensor.float() (at {user_line()})"
        )
    if not tensor.numel():
        raise ShapeError(
            f"parameter {name} would have the shape {tuple(tensor.shape)}, which holds no numbers"
            f" (at {user_line()})"
        )
    return tensor.shape


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class ParameterStorage:
    """One parameter: its value and its gradient.

    Shape:
        tensor, gradient, spare: (*d).

    Args:
        tensor: the value; this very memory is read and updated, so an array that shares it sees every update.

    Attributes:
        gradient: what `backward` has added up since the last update; None stands for zeros.
        spare: a tensor of zeros for the next gradient, if there is one.
    """

    __slots__ = ("__weakref__", "gradient", "name", "shape", "spare", "tensor", "updated")

    def __init__(self, name: str, tensor: Tensor) -> None:
        self.name, self.tensor, self.shape = name, tensor, shape_of(name, tensor)
        self.gradient: Tensor | None = None
        self.spare: Tensor | None = None
        self.updated = True

    def check_fits(self, device: torch.device, dtype: torch.dtype) -> None:
        """Check that a graph can read the value."""
        tensor = self.tensor
        if tensor.dtype is not dtype or tensor.device.type != device.type:
            raise DTypeError(
                f"parameter {self.name} is {_name(tensor.dtype)} on {tensor.device}, this graph"
                f" {_name(dtype)} on {device}; call configure(dtype=, device=) before parameters are made"
                f" (at {user_line()})"
            )
        self.check_shape()

    def check_shape(self) -> None:
        """Check that the value still has the shape that the parameter was made with."""
        found = self.tensor.shape
        if found != self.shape:
            raise ShapeError(
                f"parameter {self.name} was made with the shape {tuple(self.shape)}, and a tensor of shape"
                f" {tuple(found)} has been put in its place; set_value() takes other values, another shape needs"
                f" another parameter (at {user_line()})"
            )

    def mark(self) -> tuple[int, int]:
        """Return what tells whether somebody has written to the value, or put another one in its place."""
        return memory_version(self.tensor)

    def add_gradient(self, gradient: Tensor) -> None:
        """Add to the gradient; the tensor stays the caller's.

        Shape:
            gradient: (*d).
        """
        if self.gradient is None:
            self.gradient = gradient.clone() if self.spare is None else self.spare.copy_(gradient)
            self.spare = None
        else:
            self.gradient.add_(gradient)

    def ready(self) -> Tensor:
        """Return memory of zeros for the next gradient.

        Shape:
            returns: (*d).
        """
        return torch.zeros_like(self.tensor) if self.spare is None else self.spare

    def opened(self) -> Tensor:
        """Return the memory of the gradient, side by side, for a pass to add to.

        Shape:
            returns: (*d).
        """
        if self.gradient is None:
            self.gradient, self.spare = self.ready(), None
        elif not self.gradient.is_contiguous():
            self.gradient = self.gradient.contiguous()
        answer: Tensor = self.gradient  # TorchStorage may view it anew
        return answer

    def set_gradient(self, gradient: Tensor) -> None:
        """Replace the gradient, which must be zero.

        Shape:
            gradient: (*d).
        """
        self.add_gradient(gradient)

    def dense_gradient(self) -> Tensor:
        """Return the gradient, zeros if there is none.

        Shape:
            returns: (*d).
        """
        return torch.zeros_like(self.tensor) if self.gradient is None else self.gradient

    def clear_gradient(self) -> None:
        """Make the gradient zero."""
        self.gradient = None

    def gradient_is_zero(self) -> None:
        """Remember that somebody has filled the gradient with zeros."""
        self.spare, self.gradient = self.gradient, None

    def scale_gradient(self, factor: float) -> None:
        """Multiply the gradient."""
        if self.gradient is not None:
            self.gradient.mul_(factor)


def _are_alike(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype is b.dtype and a.device == b.device


class LookupStorage(ParameterStorage):
    """A table of parameters; its gradient is kept for the rows that were looked up.

    Shape:
        tensor: (rows, *d).

    Attributes:
        touched: index tensors of the rows whose gradient is not zero, with repetitions.
    """

    __slots__ = ("_buffer", "_distinct", "touched")

    def __init__(self, name: str, tensor: Tensor) -> None:
        super().__init__(name, tensor)
        self.touched: list[Tensor] = []
        self._buffer: Tensor | None = None
        self._distinct: Tensor | None = None  # whose rows come once, sorted

    def add_rows(self, rows: Tensor, gradient: Tensor) -> None:
        """Add the gradients of rows; a row may come several times.

        Shape:
            rows: (n,).
            gradient: (n, *d).
        """
        self.ready().index_add_(0, rows, gradient)
        self.touched.append(rows)

    def touch(self, rows: Tensor) -> None:
        """Remember rows whose gradient has been written, each once, sorted.

        Shape:
            rows: (n,).
        """
        self.touched.append(rows)
        self._distinct = rows

    def ready(self) -> Tensor:
        if self._buffer is None or not _are_alike(self._buffer, self.tensor):
            self._buffer = torch.zeros_like(self.tensor)
        self.gradient = self._buffer
        return self._buffer

    def opened(self) -> Tensor:
        self.touched.append(torch.arange(len(self.tensor)))
        return self.ready()

    def rows(self) -> Tensor:
        """Return the rows with a gradient, each once, sorted.

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


parameter_attributes: WeakKeyDictionary[ParameterStorage, Mapping[str, str]] = WeakKeyDictionary()
"""Attributes of the symbol's node that a parameter was made for, such as ``__init__``."""


class ArrayStorage(ParameterStorage):
    """A parameter whose value is an NDArray, and whose gradient is the array's own.

    An array without a gradient gets one attached; `backward` adds to it, whatever its `grad_req` says, until a trainer
    has used it.
    """

    __slots__ = ("_trained", "array")

    def __init__(self, name: str, array: NDArray) -> None:
        self.name, self.array = name, array  # the base would write the gradient
        self.shape = shape_of(name, array.tensor)
        self._trained, self.spare = True, None
        if variable_of(array) is None:
            array.attach_grad("add")

    @property
    def updated(self) -> bool:
        """Whether trainers change it: not where the array's `grad_req` is "null"."""
        marked = variable_of(self.array)
        return self._trained and (marked is None or marked.request != "null")

    @updated.setter
    def updated(self, value: bool) -> None:
        self._trained = value

    @property
    def tensor(self) -> Tensor:
        """The array's memory.

        Shape:
            returns: the array's.
        """
        return self.array.tensor

    @tensor.setter
    def tensor(self, value: Tensor) -> None:
        self.array.tensor = value

    @property
    def gradient(self) -> Tensor | None:
        """The array's gradient.

        Shape:
            returns: the array's.
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
    """A parameter whose value is a torch parameter, and whose gradient is in its ``.grad``."""

    __slots__ = ("parameter",)

    def __init__(self, name: str, parameter: Tensor) -> None:
        self.name, self.parameter = name, parameter
        self.shape = shape_of(name, self.tensor)
        self.spare = None

    @property
    def updated(self) -> bool:
        """Whether trainers change it: the parameter's ``requires_grad``."""
        return self.parameter.requires_grad

    @updated.setter
    def updated(self, value: bool) -> None:
        self.parameter.requires_grad_(value)

    @property
    def tensor(self) -> Tensor:
        """The parameter's memory.

        Shape:
            returns: the parameter's, (1,) of a single number.
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
    """An auxiliary state, such as a moving average: kept and saved like a parameter, never trained.

    Shape:
        tensor: any.
    """

    __slots__ = ()

    def __init__(self, name: str, tensor: Tensor) -> None:
        self.name, self.tensor, self.shape = name, tensor, tensor.shape  # of any type: nothing trains it
        self.gradient = self.spare = None
        self.updated = False
