"""`LoDTensor`: an array, or sequences, with the methods of Paddle's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ..base import ArgumentError, ShapeError, StateError
from ..ndarray import NDArray, array
from ..ndarray.ragged import RaggedNDArray, ragged_array


class LoDTensor:
    """A value to feed, or a fetch of `Executor.run` with ``return_numpy=False``.

    `numpy.array` returns its elements. Other attributes are those of `array`.

    Args:
        value: its first value; None: it has none until `set`.

    Example:
        >>> import dpmodule.fluid as fluid
        >>> words = fluid.LoDTensor()
        >>> words.set([[4], [5], [6]], fluid.CPUPlace())
        >>> words.set_lod([[0, 2, 3]])
        >>> words.recursive_sequence_lengths()
        [[2, 1]]

    Source: Paddle 1.8 `LoDTensor`.
    """

    def __init__(self, value: NDArray | None = None) -> None:
        self._array = value

    @property
    def array(self) -> NDArray:
        """The value: an array, or a ragged array of sequences.

        Raises:
            StateError: there is none yet.
        """
        if self._array is None:
            raise StateError("the LoDTensor has no value; call set(array, place) first")
        return self._array

    @property
    def _elements(self) -> NDArray:
        """All elements without the lengths of sequences."""
        return self.array.values if isinstance(self.array, RaggedNDArray) else self.array

    def set(self, value: Any, place: Any = None) -> None:
        """Set the elements, without sequences.

        Args:
            value: an array.
            place: accepted.
        """
        given = np.asarray(value)
        self._array = array(given, dtype=given.dtype)

    def set_lod(self, lod: Sequence[Sequence[int]]) -> None:
        """Set where sequences begin and end among the elements.

        Args:
            lod: a list with the list of offsets, from 0 to the number of elements; empty: no sequences.

        Raises:
            ArgumentError: there are several levels.
            ShapeError: the offsets do not end with the number of elements.
        """
        elements = self._elements
        if len(lod) > 1:
            raise ArgumentError(f"set_lod: got {len(lod)} levels, expected one")
        offsets = [int(each) for each in lod[0]] if lod else []
        if offsets and (offsets[0] != 0 or offsets[-1] != len(elements)):
            raise ShapeError(f"set_lod: the offsets are {offsets}, expected 0 first and {len(elements)} last")
        self._array = ragged_array(elements, offsets, dtype=elements.dtype) if offsets else elements

    def set_recursive_sequence_lengths(self, recursive_sequence_lengths: Sequence[Sequence[int]]) -> None:
        """Set the lengths of sequences; see `set_lod`.

        Args:
            recursive_sequence_lengths: a list with the list of lengths.
        """
        self.set_lod([[0, *accumulate(lengths)] for lengths in recursive_sequence_lengths])

    def lod(self) -> list[list[int]]:
        """Return a list with the list of offsets, empty without sequences."""
        return [self.array.offsets.asnumpy().tolist()] if isinstance(self.array, RaggedNDArray) else []

    def recursive_sequence_lengths(self) -> list[list[int]]:
        """Return a list with the list of lengths, empty without sequences."""
        return [self.array.lengths.asnumpy().tolist()] if isinstance(self.array, RaggedNDArray) else []

    def shape(self) -> list[int]:
        """Return the lengths of all axes of the elements; [0] without a value."""
        return [0] if self._array is None else list(self._elements.shape)

    _get_dims = shape

    def _is_initialized(self) -> bool:
        """Return True if it has a value."""
        return self._array is not None

    def _get_float_element(self, index: int) -> float:
        """Return an element of the flattened array."""
        return float(self._elements.asnumpy().reshape(-1)[index])

    _get_double_element = _get_float_element

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._elements.asnumpy().astype(dtype or self._elements.dtype)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: Any) -> Any:
        return self.array[index]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.array, name)

    def __repr__(self) -> str:
        return "<LoDTensor without a value>" if self._array is None else f"<LoDTensor: {self._array!r}>"


class LoDTensorArray(list[LoDTensor]):
    """A list of `LoDTensor`.

    Source: Paddle 1.8 `LoDTensorArray`.
    """
