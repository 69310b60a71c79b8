"""Selection of elements, ranges and minibatch elements, and indexing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..arguments import TOO_LARGE, as_integer
from ..errors import ArgumentError, BoundsError, ForeignValueError, user_line
from .native_kernels import LAST_AXIS, OP, Attrs, NodeEngine, Nodes
from .spec import BatchCall, Dim, Dims, Grads, Operation, declare, fail, format_dim, zeros_for

Tensor = torch.Tensor


def without(d: tuple[int, ...], axes: Sequence[int]) -> tuple[int, ...]:
    """Remove dimensions; return (1,) if none remains."""
    return tuple(size for axis, size in enumerate(d) if axis not in axes) or (1,)


def _pick_shape(attrs: Attrs, dims: Dims) -> Dim:
    dim = dims[0]
    if not 0 <= attrs[0] < len(dim.d):
        fail("pick", dims, f"there is no dimension {attrs[0]}")
    return Dim(without(dim.d, (attrs[0],)), dim.batch)


def _index(call: BatchCall, x: Tensor) -> Tensor:
    """Expand the index of every node over the other axes."""
    axis = call.attrs[0] + 2
    shape = [*x.shape]
    shape[axis] = 1
    if call.aux.dim() == 2:  # one index per minibatch element
        spread = (call.count, -1, *[1] * (x.dim() - 2))
        shape[1] = call.out.batch
    else:
        spread = (-1, *[1] * (x.dim() - 1))
    answer: Tensor = call.aux.view(spread).expand(call.count, *shape[1:])
    return answer


def _pick(call: BatchCall, x: Tensor) -> Tensor:
    index = _index(call, x)
    found = x.expand(-1, index.shape[1], *x.shape[2:]).gather(call.attrs[0] + 2, index)
    return found.reshape(call.count, call.out.batch, *call.out.d)


def _pick_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    index = _index(call, x)
    found = torch.zeros(call.count, index.shape[1], *x.shape[2:], dtype=g.dtype, device=g.device)
    found.scatter_(call.attrs[0] + 2, index, g.reshape(index.shape))
    return [found.sum(1, keepdim=True) if x.shape[1] != index.shape[1] else found]


def _pick_many_shape(attrs: Attrs, dims: Dims) -> Dim:
    axis, batch = attrs
    found = _pick_shape((axis,), dims)
    if found.batch not in (1, batch):
        fail("pick_batch", dims, f"{batch} indices for a minibatch of {found.batch}")
    return Dim(found.d, batch)


def _range_shape(attrs: Attrs, dims: Dims) -> Dim:
    axis, start, stop = attrs
    d = dims[0].d
    if not 0 <= axis < len(d) or not 0 <= start < stop <= d[axis]:
        what = f"range({start}, {stop}) with dim={axis}"
        fail("pick_range", dims, f"Bad input dimensions or range in PickRange: {what}")
    return Dim((*d[:axis], stop - start, *d[axis + 1 :]), dims[0].batch)


def _range(call: BatchCall, x: Tensor) -> Tensor:
    axis, start, stop = call.attrs
    return x.narrow(axis + 2, start, stop - start)


def _range_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    axis, start, stop = call.attrs
    found = zeros_for(g, x)
    found.narrow(axis + 2, start, stop - start).copy_(g)
    return [found]


def _strided_shape(attrs: Attrs, dims: Dims) -> Dim:
    steps, starts, stops = attrs
    dim = dims[0]
    sizes = [*dim.d, dim.batch]
    result = list(sizes)
    for axis, size in enumerate(sizes[: max(map(len, attrs))]):
        step, start = _at(steps, axis, 1), _at(starts, axis, 0)
        stop = _at(stops, axis, size)
        if step < 1 or not 0 <= start < stop or stop > size:
            raise BoundsError(
                f"strided_select: {start}:{stop}:{step} of a dimension of {size} in {format_dim(dim)}"
                f" (at {user_line()})"
            )
        result[axis] = -(-(stop - start) // step)
    return Dim(tuple(result[:-1]), result[-1])


def _at(values: Sequence[int], axis: int, default: int) -> int:
    return values[axis] if axis < len(values) else default


def _strided(call: BatchCall, x: Tensor) -> Tensor:
    return x[_selection(call, x)]


def _selection(call: BatchCall, x: Tensor) -> tuple[slice, ...]:
    steps, starts, stops = call.attrs
    rank = len(call.dims[0].d)
    sizes = [*call.dims[0].d, call.dims[0].batch]
    cuts = [slice(_at(starts, a, 0), _at(stops, a, sizes[a]), _at(steps, a, 1)) for a in range(rank + 1)]
    return (slice(None), cuts[rank], *cuts[:rank])


def _strided_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    found = zeros_for(g, x)
    found[_selection(call, x)] = g
    return [found]


def _elements_shape(attrs: Attrs, dims: Dims) -> Dim:
    _, indices = attrs
    for index in indices:
        if not 0 <= index < dims[0].batch:
            raise BoundsError(
                f"pick_batch_elems: requested element {index} from a batch size of {dims[0].batch} (at {user_line()})"
            )
    return Dim(dims[0].d, len(indices))


def _select_shape(attrs: Attrs, dims: Dims) -> Dim:
    axis, indices = attrs
    name = "select_cols" if axis else "select_rows"
    d = dims[0].d
    if len(d) > 2 or axis >= len(d):
        fail(name, dims, "a matrix is needed")
    for index in indices:
        if not 0 <= index < d[axis]:
            raise BoundsError(f"{name}: {index} is out of range for {format_dim(dims[0])} (at {user_line()})")
    return Dim((*d[:axis], len(indices), *d[axis + 1 :]), dims[0].batch)


def _select(call: BatchCall, x: Tensor) -> Tensor:
    axis, indices = call.attrs
    return x.index_select(axis + 2, torch.tensor(indices, device=call.device))


def _select_grad(call: BatchCall, g: Tensor, x: Tensor) -> Grads:
    axis, indices = call.attrs
    return [zeros_for(g, x).index_add_(axis + 2, torch.tensor(indices, device=call.device), g)]


def _pick_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    if not 0 <= attrs[0] <= LAST_AXIS or not isinstance(aux, int):
        return -1
    return engine.kernel(OP["view"], 0, args, attrs[0], aux)


def _pick_batch_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    axis = attrs[0]
    return engine.kernel_with_labels(OP["pick_batch"], args[0], axis, aux) if 0 <= axis <= LAST_AXIS else -1


def _range_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    axis, start, stop = attrs
    if not 0 <= axis <= LAST_AXIS or not 0 <= start < stop < TOO_LARGE:
        return -1
    return engine.kernel(OP["view"], stop - start, args, axis, start)


def _strided_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    is_large = any(abs(number) >= TOO_LARGE for each in attrs for number in each)
    return -1 if is_large else engine.strided(args[0], *attrs)


def _elements_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    _, indices = attrs
    return engine.kernel_with_labels(OP["view"], args[0], 0.0, indices) if max(indices) < TOO_LARGE else -1


def _select_kernel(engine: NodeEngine, attrs: Attrs, args: Nodes, aux: Any) -> int:
    axis, chosen = attrs
    dims = engine.dim(args[0])[0]
    if len(dims) > 2 or axis >= len(dims) or max(chosen, default=TOO_LARGE) >= TOO_LARGE:
        return -1
    indices: list[Sequence[int]] = [range(size) for size in (*dims, 1)[:2]]
    indices[axis] = chosen
    return engine.select(args[0], *indices)


PICK = declare("pick", _pick_shape, _pick, _pick_grad, aux="int", expand=True, kernel=_pick_kernel)
PICK_BATCH = declare(
    "pick_batch", _pick_many_shape, _pick, _pick_grad, aux="ints", expand=True, kernel=_pick_batch_kernel
)
PICK_RANGE = declare("pick_range", _range_shape, _range, _range_grad, kernel=_range_kernel)
STRIDED = declare("strided_select", _strided_shape, _strided, _strided_grad, kernel=_strided_kernel)
ELEMENTS = declare("pick_batch_elems", _elements_shape, _select, _select_grad, kernel=_elements_kernel)
SELECT = declare("select", _select_shape, _select, _select_grad, kernel=_select_kernel)


def picked(dim: Dim, index: Any) -> tuple[Operation, tuple[Any, ...], Any]:
    """Return operation, attributes and node argument (`Operation.aux`) of ``x[index]``.

    Args:
        dim: shape of ``x``.
        index: an integer, a slice, or a tuple of slices; an extra slice selects elements of a minibatch.
    """
    if isinstance(index, slice):
        return _slices(dim, (index,))
    if isinstance(index, tuple):
        return _slices(dim, index)
    size = dim.d[0]
    at = as_integer(index, "index of an expression")
    if not -size <= at < size:
        raise BoundsError(f"Index too large: {at} > {size - 1} (at {user_line()})")
    return PICK, (0,), at % size


def _indices(given: slice, size: int) -> tuple[int, int, int]:
    try:
        return given.indices(size)
    except TypeError as failure:
        raise ForeignValueError(f"{given!r}: {failure} (at {user_line()})") from None
    except ValueError as failure:
        raise ArgumentError(f"{given!r}: {failure} (at {user_line()})") from None


def _slices(dim: Dim, index: tuple[Any, ...]) -> tuple[Operation, tuple[Any, ...], Any]:
    sizes = (*dim.d, dim.batch) if len(index) > len(dim.d) else dim.d
    if len(index) > len(sizes):
        raise BoundsError(f"{len(index)} indices for {len(sizes)} dimensions (at {user_line()})")
    steps, starts, stops = [], [], []
    for each, size in zip(index, sizes):
        if not isinstance(each, slice):
            raise ArgumentError(f"{each!r} among slices: index one dimension at a time (at {user_line()})")
        start, stop, step = _indices(each, size)
        if step < 1:
            raise ArgumentError(f"step is {step}, expected 1 or more (at {user_line()})")
        if start >= stop:
            raise BoundsError(
                f"the slice {start}:{stop} of a dimension of {size} is empty (at {user_line()})"
            )
        steps.append(step)
        starts.append(start)
        stops.append(stop)
    if len(index) == 1 and steps[0] == 1:
        return PICK_RANGE, (0, starts[0], stops[0]), None
    return STRIDED, (tuple(steps), tuple(starts), tuple(stops)), None
