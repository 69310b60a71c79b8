"""Indexing of arrays with NumPy's keys and MXNet's rules about memory.

Basic keys (integers, slices, ``...``, None) that select contiguous memory return a view; other basic keys and
advanced ones (lists, arrays, masks) return a copy, as in MXNet, so that every array stays C-contiguous. Integers
alone return shape (1,), except with `np_shape`.

Departures: an array or list of bools is a mask, as in NumPy (MXNet 1.9.1 interprets its entries as row
numbers 0 and 1); overlapping source and target are copied through a temporary.

Source: NumPy's rules for keys; MXNet 1.9.1's rules for shared memory.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .._core import mode
from ..base import ArgumentError, BoundsError, ShapeError
from .handle import Handle

if TYPE_CHECKING:
    from ..types import IndexLike

Item = int | slice | None | torch.Tensor
_FULL = slice(None)


def read(source: torch.Tensor, key: Handle | IndexLike) -> tuple[torch.Tensor, bool]:
    """Return the part of `source` that `key` selects, and True if it shares memory with `source`."""
    if type(key) is int and source.dim() > 0:
        position = _position(key, 0, source.shape[0])
        keeps = source.dim() == 1 and not mode.is_np_shape()
        view = source[position : position + 1] if keeps else source[position]
        return (view, True) if view.is_contiguous() else (view.contiguous(), False)
    items = _expand(_items(key, source.device), source.shape)
    if any(isinstance(i, torch.Tensor) for i in items):
        return _read_advanced(source, items), False
    view, flips = _basic_view(source, items)
    if view.dim() == 0 and any(isinstance(i, int) for i in items) and not mode.is_np_shape():
        view = view.reshape(1)
    if flips:
        return view.flip(flips).contiguous(), False
    return (view, True) if view.is_contiguous() else (view.contiguous(), False)


def write(target: torch.Tensor, key: Handle | IndexLike, value: torch.Tensor) -> None:
    """Write `value`, broadcast and converted, into the part of `target` that `key` selects."""
    items = _expand(_items(key, target.device), target.shape)
    if value.untyped_storage().data_ptr() == target.untyped_storage().data_ptr():
        value = value.clone()
    if any(isinstance(i, torch.Tensor) for i in items):
        _write_advanced(target, items, value)
        return
    part, flips = _basic_view(target, items)
    fitted = fit(value, part.shape)
    part.copy_(fitted.expand(part.shape).flip(flips) if flips else fitted)


def whole(target: torch.Tensor, key: Handle | IndexLike) -> tuple[int, ...] | None:
    """Return the selected shape if a basic `key` selects all of `target` in its order; else None."""
    items = _expand(_items(key, target.device), target.shape)
    axis = 0
    for item in items:
        if item is None:
            continue
        length = target.shape[axis]
        axis += 1
        if isinstance(item, torch.Tensor) or (isinstance(item, int) and length != 1):
            return None
        if isinstance(item, slice) and range(*item.indices(length)) != range(length):
            return None
    return tuple(_basic_view(target, items)[0].shape)


def _items(key: Handle | IndexLike, device: torch.device) -> list[Any]:
    """Return a key as a list of integers, slices, None, Ellipsis and index tensors."""
    items: list[Any] = []
    for item in key if isinstance(key, tuple) else (key,):
        if item is None or item is Ellipsis:
            items.append(item)
        elif isinstance(item, slice):
            items.append(_plain_slice(item))
        elif isinstance(item, (int, np.integer, np.bool_)):
            items.append(int(item))
        elif isinstance(item, (Handle, np.ndarray, torch.Tensor, Sequence)) and not isinstance(
            item, (str, bytes)
        ):
            items += _index_tensors(item, device)
        else:
            raise ArgumentError(
                f"NDArray does not accept the key {item!r} of type {type(item).__name__}; "
                "expected integers, slices, None, ..., lists, arrays or masks"
            )
    return items


def _plain_slice(given: slice) -> slice:
    """Return a slice with plain Python integers."""
    try:
        return slice(*(None if v is None else _whole(v) for v in (given.start, given.stop, given.step)))
    except (TypeError, ValueError):
        raise ArgumentError(f"slice {given!r} has bounds that are not integers") from None


def _whole(value: object) -> int:
    found: Any = value.raw.item() if isinstance(value, Handle) else value
    return operator.index(found)


def _index_tensors(key: Handle | IndexLike, device: torch.device) -> list[Any]:
    """Return an index array as an integer tensor; a mask becomes one tensor per axis it covers."""
    if isinstance(key, Handle):
        tensor = key.raw
    elif isinstance(key, torch.Tensor):
        tensor = key
    else:
        try:
            array = np.asarray(key)
        except ValueError:
            raise ArgumentError(f"index {key!r} is not a rectangular array") from None
        if array.size == 0:
            array = array.astype(np.int64)
        if array.dtype.kind not in "biuf":
            raise ArgumentError(f"index {key!r} holds {array.dtype}, expected integers or booleans")
        tensor = torch.from_numpy(
            np.array(array, dtype=bool) if array.dtype.kind == "b" else _as_int64(array)
        )
    if tensor.dtype == torch.bool:
        return [_Mask(tensor.to(device))]
    if tensor.is_floating_point() and bool((tensor != tensor.trunc()).any()):
        raise ArgumentError("an index array holds fractions, expected integers")
    if tensor.dim() == 0:
        return [int(tensor)]
    return [tensor.to(device, torch.int64)]


def _as_int64(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return integers, even in floating point, as int64."""
    if array.dtype.kind == "f" and not np.all(array == np.trunc(array)):
        raise ArgumentError("an index array holds fractions, expected integers")
    return np.array(array, dtype=np.int64, order="C")


class _Mask:
    """A boolean index whose axes are not known yet."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def resolve(self, shape: Sequence[int]) -> list[torch.Tensor]:
        """Return the positions of True, one tensor per axis."""
        if tuple(self.tensor.shape) != tuple(shape):
            raise BoundsError(
                f"a mask of shape {tuple(self.tensor.shape)} does not fit axes of lengths {tuple(shape)}"
            )
        return list(self.tensor.nonzero(as_tuple=True))


def _covered(item: Any) -> int:
    """Return the number of axes that an item indexes."""
    if item is None or item is Ellipsis:
        return 0
    return item.tensor.dim() if isinstance(item, _Mask) else 1


def _expand(items: list[Any], shape: Sequence[int]) -> list[Item]:
    """Add the axes that a key omits, resolve masks and check bounds."""
    used = sum(map(_covered, items))
    if used > len(shape):
        raise BoundsError(f"too many indices ({used}) for an array of {len(shape)} axes")
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise BoundsError("an index holds more than one ellipsis ('...')")
    at = dots[0] if dots else len(items)
    items = [*items[:at], *[_FULL] * (len(shape) - used), *items[at + len(dots) :]]
    expanded: list[Item] = []
    axis = 0
    for item in items:
        covered = _covered(item)
        if isinstance(item, _Mask):
            expanded += item.resolve(shape[axis : axis + covered])
        elif isinstance(item, int):
            expanded.append(_position(item, axis, shape[axis]))
        elif isinstance(item, torch.Tensor):
            expanded.append(_positions(item, axis, shape[axis]))
        else:
            expanded.append(item)
        axis += covered
    return expanded


def _position(index: int, axis: int, length: int) -> int:
    """Return an index counted from the start."""
    if not -length <= index < length:
        raise BoundsError(f"index {index} is out of bounds for axis {axis} with size {length}")
    return index % length


def _positions(index: torch.Tensor, axis: int, length: int) -> torch.Tensor:
    """Return an index tensor after a bounds check: a GPU would abort, and a write on the CPU would stop halfway."""
    if index.numel():
        low, high = (int(v) for v in index.aminmax())
        if low < -length or high >= length:
            bad = low if low < -length else high
            raise BoundsError(f"index {bad} is out of bounds for axis {axis} with size {length}")
        if low < 0:
            index = torch.where(index < 0, index + length, index)
    return index


def _basic_view(tensor: torch.Tensor, items: list[Item]) -> tuple[torch.Tensor, list[int]]:
    """Apply integers, slices and None; also return the axes of the result that must still be reversed.

    torch has no negative steps: such a slice becomes an ascending one over the same elements.
    """
    keys: list[Any] = []
    flips: list[int] = []
    axis = out_axis = 0
    for item in items:
        if item is None:
            keys.append(None)
            out_axis += 1
            continue
        if isinstance(item, slice):
            chosen = range(*item.indices(tensor.shape[axis]))
            if chosen.step < 0:
                if len(chosen) > 1:
                    flips.append(out_axis)
                chosen = chosen[::-1]
            # an empty range may start past the end, which torch refuses
            keys.append(slice(chosen.start, chosen.stop, chosen.step) if len(chosen) else slice(0, 0))
            out_axis += 1
        else:
            keys.append(item)
        axis += 1
    return tensor[tuple(keys)], flips


def _block(items: list[Item]) -> tuple[list[Item], tuple[int, ...]]:
    """Broadcast all index tensors, and integers next to them, to one shape.

    NumPy treats an integer next to an index array as an index array; torch does not.
    """
    tensors = [i for i in items if isinstance(i, torch.Tensor)]
    try:
        shape = torch.broadcast_tensors(*tensors)[0].shape  # type: ignore[no-untyped-call]
    except RuntimeError:
        raise BoundsError(
            f"index arrays of shapes {[tuple(t.shape) for t in tensors]} do not broadcast"
        ) from None
    device = tensors[0].device
    block: list[Item] = []
    for item in items:
        if isinstance(item, int):
            block.append(torch.full(shape, item, dtype=torch.int64, device=device))
        else:
            block.append(item.expand(shape) if isinstance(item, torch.Tensor) else item)
    return block, tuple(shape)


def _split(items: list[Item]) -> tuple[list[Item], list[Any]]:
    """Split a key into its slices and its index arrays, each with full slices in place of the other."""
    basic: list[Item] = [_FULL if isinstance(i, torch.Tensor) else i for i in items]
    advanced = [i if isinstance(i, torch.Tensor) else _FULL for i in items]
    return basic, advanced


def _read_advanced(source: torch.Tensor, items: list[Item]) -> torch.Tensor:
    basic, advanced = _split(_block(items)[0])
    part, flips = _basic_view(source, basic)
    if flips:
        part = part.flip(flips)
    return part[tuple(advanced)].contiguous()


def _write_advanced(target: torch.Tensor, items: list[Item], value: torch.Tensor) -> None:
    block, block_shape = _block(items)
    basic, advanced = _split(block)
    view, flips = _basic_view(target, basic)
    value = fit(value, _selected_shape(view.shape, advanced, block_shape)).to(view.dtype)
    if flips:  # rare: reverse a copy, write to it and write it back
        turned = view.flip(flips)
        turned[tuple(advanced)] = value
        view.copy_(turned.flip(flips))
    else:
        view[tuple(advanced)] = value


def _selected_shape(shape: Sequence[int], advanced: list[Any], block: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a selection: the arrays' block replaces them, or comes first if they are not adjacent."""
    places = [i for i, item in enumerate(advanced) if isinstance(item, torch.Tensor)]
    rest = tuple(s for i, s in enumerate(shape) if i not in places)
    together = places[-1] - places[0] + 1 == len(places)
    at = places[0] if together else 0
    return rest[:at] + block + rest[at:]


def fit(value: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Drop leading axes of length 1 that `shape` lacks, and check that the rest broadcasts."""
    value_shape = tuple(value.shape)
    while value.dim() > len(shape) and value.shape[0] == 1:
        value = value[0]
    tail = tuple(shape)[len(shape) - value.dim() :] if value.dim() <= len(shape) else None
    if tail is None or any(v not in (1, s) for v, s in zip(value.shape, tail, strict=True)):
        raise ShapeError(f"cannot write an array of shape {value_shape} to a part of shape {tuple(shape)}")
    return value
