"""Parameters over memory that others own: NDArrays and torch parameters."""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

import torch

from ..ndarray import NDArray
from ..ndarray.tape import variable_of
from .storage import ParameterStorage, shape_of

__all__ = ["ArrayStorage", "HeldCollection", "StateStorage", "TorchStorage", "described", "find"]

Tensor = torch.Tensor

described: WeakKeyDictionary[ParameterStorage, Mapping[str, str]] = WeakKeyDictionary()
"""Attributes of the symbol's node that a parameter was made for, such as ``__init__``."""


class ArrayStorage(ParameterStorage):
    """A parameter whose value is an NDArray, and whose gradient is the array's own.

    An array without a gradient gets one attached; `backward` adds to it, whatever its `grad_req` says, until a trainer
    has used it.

    Args:
        name: its name.
        array: the array.

    Raises:
        DTypeError: the array is of no type that has gradients.
        ShapeError: it holds no numbers.
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
    """A parameter whose value is a torch parameter, and whose gradient is in its ``.grad``.

    Args:
        name: its name.
        parameter: a leaf tensor of torch's autograd.

    Raises:
        DTypeError: the parameter is of no type that has gradients.
        ShapeError: it holds no numbers.
    """

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
