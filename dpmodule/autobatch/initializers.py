"""Initializers of parameters, under DyNet's names."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from .._files import regular_file
from ..base import FileError, FileFormatError
from ..ndarray.row_source import parts
from .arguments import file_name, flag, number, number_from, numbers
from .errors import ArgumentError, ShapeError, user_line

Tensor = torch.Tensor


class PyInitializer:
    """Base of all initializers.

    Shape:
        tensor: (*d), or (rows, *d) of a table, for `fill`.

    Source: DyNet's initializers, with their names and arguments.
    """

    def fill(self, tensor: Tensor, generator: torch.Generator | None, is_lookup: bool = False) -> None:
        """Write initial values.

        Shape:
            tensor: (*d), or (rows, *d) of a table.

        Args:
            tensor: the tensor to fill.
            is_lookup: True if the first axis counts rows of a table.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define fill")


class ConstInitializer(PyInitializer):
    """Fill with a constant.

    Args:
        c: the value of every element.

    Raises:
        ForeignValueError: `c` is not a number.
    """

    def __init__(self, c: float) -> None:
        self.c = number(c, "ConstInitializer: c")

    def fill(self, tensor: Tensor, generator: torch.Generator | None, is_lookup: bool = False) -> None:
        tensor.fill_(self.c)


class NormalInitializer(PyInitializer):
    """Draw from a normal distribution.

    Raises:
        ArgumentError: `var` is negative or NaN.
        ForeignValueError: an argument is not a number.
    """

    def __init__(self, mean: float = 0.0, var: float = 1.0) -> None:
        self.mean, self.var = number(mean, "mean"), number_from(var, 0.0, "var")

    def fill(self, tensor: Tensor, generator: torch.Generator | None, is_lookup: bool = False) -> None:
        tensor.normal_(self.mean, math.sqrt(self.var), generator=generator)


class UniformInitializer(PyInitializer):
    """Draw from a uniform distribution from -`scale` to `scale`.

    Raises:
        ArgumentError: `scale` is negative or NaN.
        ForeignValueError: it is not a number.
    """

    def __init__(self, scale: float) -> None:
        self.scale = number_from(scale, 0.0, "scale")

    def fill(self, tensor: Tensor, generator: torch.Generator | None, is_lookup: bool = False) -> None:
        tensor.uniform_(-self.scale, self.scale, generator=generator)


class GlorotInitializer(PyInitializer):
    """Draw from a uniform distribution that preserves the variance of signals.

    The bound is ``gain * sqrt(3 * k) / sqrt(d1 + ... + dk)`` for k dimensions, so ``gain * sqrt(6 / (m + n))`` for a
    matrix; of 4 dimensions (a convolution) ``gain * sqrt(6 / (d1 * d2 * (d3 + d4)))``.

    Args:
        is_lookup: True for a table, whose row number is not a dimension.
        gain: 1 for tanh, 0.5 for rectifiers, 4 for the logistic function.

    Raises:
        ArgumentError: `gain` is negative or NaN.
        ForeignValueError: it is not a number, or `is_lookup` is not a bool.

    Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010, in
    DyNet's version.
    """

    def __init__(self, is_lookup: bool = False, gain: float = 1.0) -> None:
        self.is_lookup, self.gain = flag(is_lookup, "is_lookup"), number_from(gain, 0.0, "gain")

    def fill(self, tensor: Tensor, generator: torch.Generator | None, is_lookup: bool = False) -> None:
        bound = self.bound(tensor.shape)
        tensor.uniform_(-bound, bound, generator=generator)

    def bound(self, shape: Sequence[int]) -> float:
        """Return the largest value in a parameter of a shape."""
        d = shape[1:] if self.is_lookup else shape
        if len(d) == 4:
            return self.gain * math.sqrt(6.0 / (d[0] * d[1] * (d[2] + d[3])))
        return self.gain * math.sqrt(3.0 * max(len(d), 1)) / math.sqrt(sum(d) or 1)


class HeInitializer(PyInitializer):
    """Draw from a normal distribution of variance 1 / (2 * size of the last dimension), as DyNet's "he"."""

    def fill(self, tensor: Tensor, generator: torch.Generator | None, is_lookup: bool = False) -> None:
        tensor.normal_(0.0, math.sqrt(0.5 / tensor.shape[-1]), generator=generator)


class IdentityInitializer(PyInitializer):
    """Fill a square matrix with the identity."""

    def fill(self, tensor: Tensor, generator: torch.Generator | None, is_lookup: bool = False) -> None:
        if tensor.dim() != 2 or tensor.shape[0] != tensor.shape[1]:
            raise ShapeError(f"IdentityInitializer fills square matrices, not {tuple(tensor.shape)}")
        torch.nn.init.eye_(tensor)


class SaxeInitializer(PyInitializer):
    """Fill with a random orthonormal matrix.

    Args:
        scale: factor of all elements.

    Raises:
        ForeignValueError: `scale` is not a number.

    Source: Saxe, McClelland, Ganguli, "Exact solutions to the nonlinear dynamics of learning", 2014.
    """

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = number(scale, "scale")

    def fill(self, tensor: Tensor, generator: torch.Generator | None, is_lookup: bool = False) -> None:
        if tensor.dim() != 2:
            raise ShapeError(f"SaxeInitializer fills matrices, not {tuple(tensor.shape)}")
        torch.nn.init.orthogonal_(tensor, self.scale, generator=generator)


class NumpyInitializer(PyInitializer):
    """Copy values from an array.

    Shape:
        array: the parameter's shape; or flat, in column-major order.

    Raises:
        ForeignValueError: `array` contains anything but numbers.
    """

    def __init__(self, array: ArrayLike) -> None:
        self.array = numbers(array, "array")

    def fill(self, tensor: Tensor, generator: torch.Generator | None, is_lookup: bool = False) -> None:
        array = self.array
        if array.size != tensor.numel():
            raise ShapeError(f"the array {array.shape} does not fit the parameter {tuple(tensor.shape)}")
        if array.shape != tuple(tensor.shape):
            array = array.reshape(tuple(tensor.shape), order="F")
        tensor.copy_(torch.from_numpy(np.ascontiguousarray(array, np.float64)))


class FromFileInitializer(PyInitializer):
    """Read numbers from a text file, in column-major order.

    Raises:
        ArgumentError: `fname` is not a possible file name.
        ForeignValueError: `fname` is not a file name.
    """

    def __init__(self, fname: str | os.PathLike[str]) -> None:
        self.fname = file_name(fname, "FromFileInitializer: fname")

    def fill(self, tensor: Tensor, generator: torch.Generator | None, is_lookup: bool = False) -> None:
        try:
            with open(self.fname, encoding="utf-8", opener=regular_file) as source:
                numbers = np.array(source.read().split(), np.float64)
        except OSError as failure:
            raise FileError(
                failure.errno, f"cannot read initial values: {failure.strerror}", self.fname
            ) from failure
        except ValueError as failure:
            raise FileFormatError(f"{self.fname}: expected numbers: {failure}") from None
        NumpyInitializer(numbers).fill(tensor, generator)


class InitialTable:
    """The initial rows of a table, drawn in parts that do not depend on which process draws them.

    Args:
        initializer: fills the table.
        like: a tensor of the table's shape, type and device, whose values are not read.
        generator: draws the seed.
    """

    def __init__(self, initializer: PyInitializer, like: Tensor, generator: torch.Generator | None) -> None:
        self._like = like
        if type(initializer) is GlorotInitializer:
            initializer = UniformInitializer(initializer.bound(like.shape))
        self._initializer = initializer
        drawn = torch.empty((), dtype=torch.int64, device="cpu" if generator is None else generator.device)
        self.seed = int(drawn.random_(generator=generator))

    @property
    def has_parts(self) -> bool:
        """True if some rows can be drawn without the others."""
        kinds = ConstInitializer, NormalInitializer, UniformInitializer, HeInitializer
        return type(self._initializer) in kinds and self._like.dim() > 1

    def fill(self, tensor: Tensor) -> None:
        """Write all rows.

        Shape:
            tensor: (rows, *d).
        """
        for begin, end in parts(len(tensor)) if self.has_parts else [(0, len(tensor))]:
            self._fill(tensor[begin:end], self.seed, begin)

    def rows(self, seed: int, numbers: Tensor) -> Tensor:
        """Return some rows of one of the `parts`.

        Shape:
            numbers: (n,), ascending.
            returns: (n, *d).
        """
        if not len(numbers):
            return self._like.new_empty((0, *self._like.shape[1:]))
        begin, end = next(bounds for bounds in parts(len(self._like)) if numbers[0] < bounds[1])
        part = self._like.new_empty((end - begin, *self._like.shape[1:]))
        self._fill(part, seed, begin)
        return part[numbers - begin]

    def _fill(self, part: Tensor, seed: int, begin: int) -> None:
        generator = torch.Generator()  # of the CPU, so that all devices draw the same
        generator.manual_seed(int(np.random.SeedSequence([seed, begin]).generate_state(1)[0]))
        drawn = part.cpu()
        self._initializer.fill(drawn, generator, is_lookup=True)
        if drawn is not part:
            part.copy_(drawn)


def initializer_of(
    init: Any, dim: Sequence[int], scale: float = 1.0, mean: float = 0.0, std: float = 1.0
) -> PyInitializer:
    """Return the initializer for DyNet's `init` argument.

    Args:
        init: an initializer; a number; an array; None (Glorot); or "uniform" (needs `scale`), "normal" (with `mean` and
            `std`), "identity", "glorot", "saxe" (times `scale`), "he", or the name of a file.
        dim: the parameter's shape.
    """
    if isinstance(init, PyInitializer):
        return init
    if init is None:
        return GlorotInitializer()
    if isinstance(init, (int, float, np.integer, np.floating)):
        return ConstInitializer(float(init))
    if isinstance(init, np.ndarray):
        if init.shape != tuple(dim):
            raise ShapeError(f"the array {init.shape} does not fit the parameter {tuple(dim)}")
        return NumpyInitializer(init)
    named = {
        "uniform": lambda: UniformInitializer(scale),
        "normal": lambda: NormalInitializer(mean, std * std),
        "identity": IdentityInitializer,
        "glorot": GlorotInitializer,
        "saxe": lambda: SaxeInitializer(scale),
        "he": HeInitializer,
    }
    if isinstance(init, str):
        return named[init]() if init in named else FromFileInitializer(init)
    raise ArgumentError(
        f"init is {init!r}, expected an initializer, a number, an array or one of {', '.join(named)} (at {user_line()})"
    )
