"""Methods of arrays that change the shape: views of the same memory, and copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch

from ..base import ArgumentError, DTypeError, NotSupportedForSparseNDArray, ShapeError
from ..ops.array.codes import resolve
from ..ops.shapes import prod
from . import tape
from .convert import integers, wanted_shape
from .faces import face
from .handle import Handle
from .operators import Arithmetic

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Shaping"]

Function = Callable[[torch.Tensor], torch.Tensor]


class Shaping(Arithmetic):
    """The shape-changing methods of NDArray."""

    __slots__ = ()

    def _view(self, tensor: torch.Tensor) -> Self:
        """Return an array over a part of this one's memory; neither may be rebound from now on."""
        self.pinned = True
        return cast("Self", self.result_type(tensor, self.context, True))

    def _derive(self, name: str, function: Function, view: bool) -> Self:
        """Return an array made of a view of this one's tensor: that view, or a copy; recorded if need be.

        Args:
            name: what to call it in a recorded graph.
            function: makes the view.
            view: share memory.

        Raises:
            NotSupportedForSparseNDArray: memory of a sparse array is to be shared.
        """
        if view:
            if self.stype != "default":
                raise NotSupportedForSparseNDArray("views")
            return cast("Self", tape.apply(self, function, name, True))

        def copy(tensor: torch.Tensor) -> torch.Tensor:
            return function(tensor).clone(memory_format=torch.contiguous_format)

        return cast("Self", tape.apply(self, copy, name))

    def reshape(self, *shape: Any, **kwargs: Any) -> Self:
        """Return a view of another shape and equal size.

        Args:
            shape: lengths, as one tuple or one by one; 0 copies a length, -1 is inferred, -2 copies the rest,
                -3 merges two axes, -4 splits one into the next two numbers.
            kwargs: `shape` by name, and `reverse`: True to match the codes from the right.

        Raises:
            ShapeError: the new shape holds another number of elements, or a code does not fit.
            DTypeError: an unknown keyword.
        """
        unknown = set(kwargs) - {"shape", "reverse"}
        if unknown:
            raise DTypeError(f"reshape takes shape and reverse, got {', '.join(sorted(unknown))}")
        wanted = shape[0] if len(shape) == 1 else shape or kwargs.get("shape")
        dims = _target(self.shape, wanted, bool(kwargs.get("reverse", False)))
        # memory from from_torch or from_dlpack may have gaps; then it is copied, as in NumPy
        shares = self.raw.is_contiguous()
        return self._derive("reshape", lambda t: t.reshape(dims), shares)

    def head_view(self, shape: Sequence[int]) -> Self:
        """Return a view of the first elements in another, not greater shape (the data pool of executors).

        Raises:
            ShapeError: `shape` holds more elements than this array, or its memory is not one run.
        """
        dims = wanted_shape(shape)
        count = prod(dims)
        if count > self.size or not self.raw.is_contiguous():
            raise ShapeError(f"a view of shape {dims} does not fit into a {self.describe()}")
        return self._view(self.raw.view(-1)[:count].view(dims))

    @property
    def T(self) -> Self:
        """Copy with the axes in reverse order."""
        axes = tuple(reversed(range(self.ndim)))
        return self._derive("transpose", lambda t: t.permute(axes), False)

    def broadcast_to(self, shape: Sequence[int]) -> Self:
        """Return a copy stretched to `shape`.

        Raises:
            ShapeError: the shapes do not fit.
        """
        dims = wanted_shape(shape)
        offset = len(dims) - self.ndim
        if offset < 0 or any(s not in (1, d) for s, d in zip(self.shape, dims[offset:], strict=True)):
            raise ShapeError(f"cannot broadcast an array of shape {self.shape} to {dims}")
        return self._derive("broadcast_to", lambda t: t.expand(dims), False)

    def broadcast_like(self, other: Handle) -> Self:
        """Return a copy stretched to the shape of `other`."""
        return self.broadcast_to(other.shape)

    def expand_dims(self, axis: int, inplace: bool = False) -> Self:
        """Insert an axis of length 1; a view if `inplace`, else a copy."""
        if not -self.ndim - 1 <= axis <= self.ndim:
            raise ShapeError(f"axis is {axis}, expected {-self.ndim - 1} to {self.ndim}")
        return self._derive("expand_dims", lambda t: t.unsqueeze(axis), inplace)

    def flatten(self, inplace: bool = False) -> Self:
        """Merge all axes but the first; a view if `inplace`, else a copy."""
        rows = self.shape[0] if self.ndim else 1
        dims = rows, prod(self.shape[1:])
        return self._derive("flatten", lambda t: t.reshape(dims), inplace)

    def squeeze(self, axis: int | tuple[int, ...] | None = None, inplace: bool = False) -> Self:
        """Remove axes of length 1, all of them if `axis` is None; a view if `inplace`, else a copy.

        Raises:
            ShapeError: an axis is longer than 1 or does not exist.
        """
        axes = (axis,) if isinstance(axis, int) else axis
        for i in axes or ():
            if not -self.ndim <= i < self.ndim or self.shape[i] != 1:
                raise ShapeError(f"cannot squeeze axis {i} of an array of shape {self.shape}")
        chosen = (
            {i % self.ndim for i in axes}
            if axes is not None
            else {i for i, s in enumerate(self.shape) if s == 1}
        )
        left = tuple(s for i, s in enumerate(self.shape) if i not in chosen)
        if not left and self.ndim:
            left = (1,)
        return self._derive("squeeze", lambda t: t.reshape(left), inplace)

    def split_v2(
        self, indices_or_sections: int | tuple[int, ...], axis: int = 0, squeeze_axis: bool = False
    ) -> Self | list[Self]:
        """Cut into equal parts, or before the given indices.

        Args:
            indices_or_sections: number of equal parts, or a tuple of positions to cut at.
            axis: the axis to cut.
            squeeze_axis: drop the axis where a part has length 1 along it.

        Returns:
            The parts, copies; a single one not in a list.

        Raises:
            ArgumentError: `indices_or_sections` is neither.
            ShapeError: there is no such axis, or it cannot be cut into that many equal parts.
        """
        if not -self.ndim <= axis < self.ndim:
            raise ShapeError(f"axis is {axis}, expected {-self.ndim} to {self.ndim - 1}")
        bounds = _bounds(self.shape[axis], indices_or_sections)
        parts = [
            self._derive("split_v2", _slicer(axis, begin, max(end - begin, 0), squeeze_axis), False)
            for begin, end in zip(bounds[:-1], bounds[1:], strict=True)
        ]
        return parts[0] if len(parts) == 1 else parts

    def diag(self, k: int = 0, **kwargs: Any) -> Any:
        """Return a diagonal of a matrix, or make a matrix of a diagonal (operator `diag`)."""
        return face("diag")(self, k=k, **kwargs)


def _slicer(axis: int, begin: int, length: int, squeeze: bool) -> Function:
    """Return a function that cuts a piece out of an axis, and drops the axis if the piece has length 1."""

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        part = tensor.narrow(axis, begin, length)
        return part.squeeze(axis) if squeeze and length == 1 else part

    return cut


def _target(dims: tuple[int, ...], wanted: Any, reverse: bool) -> tuple[int, ...]:
    """Return the shape that `reshape` was asked for."""
    try:
        codes = integers(wanted)
    except TypeError:
        raise ShapeError(f"reshape: shape is {wanted!r}, expected integers") from None
    found = codes if not codes or min(codes) > 0 else resolve(dims, codes, reverse)
    if prod(found) != prod(dims):
        raise ShapeError(f"cannot reshape an array of shape {dims} and size {prod(dims)} into shape {codes}")
    return found


def _bounds(length: int, given: int | tuple[int, ...]) -> list[int]:
    """Return where `split_v2` cuts an axis, its ends included."""
    if isinstance(given, int):
        if given < 1 or length % given:
            raise ShapeError(f"an axis of length {length} cannot be cut into {given} equal parts")
        return list(range(0, length + 1, length // given)) if length else [0] * (given + 1)
    if isinstance(given, tuple):
        return [0, *(slice(i).indices(length)[1] for i in given), length]
    raise ArgumentError(f"indices_or_sections is {given!r}, expected an integer or a tuple")
