"""`BatchSplitter`: splits a batch into the inputs of several executors, and removes padding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from ..._devices.device_transfer import on_device
from ...base import ArgumentError, ShapeError, dtype_name
from ...context import Context
from ...executor.sparse_arrays import array_of
from ...io import DataDesc
from ...io.iterator import shape_of
from ...ndarray import NDArray
from ...ndarray.csr import CSRNDArray
from ...ndarray.ragged import RaggedNDArray
from ...ops.sparse import Csr, Ragged
from ...ops.write_tracking import expose
from .input_order import in_order

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from ...types import ArrayLike
    from ..types import Batch, BatchLike, ShapesLike


def describe(shapes: Iterable[Any] | None) -> list[DataDesc]:
    """Return `DataDesc` records of (name, shape[, dtype[, layout]]) tuples."""
    return [s if isinstance(s, DataDesc) else DataDesc(*s) for s in shapes or ()]


def is_per_context(data_shapes: ShapesLike) -> bool:
    """Return True if shapes are one list per context, as Deformable ConvNets does."""
    first = data_shapes[0] if len(data_shapes) else None
    if isinstance(first, DataDesc):
        return False
    return isinstance(first, (list, tuple)) and bool(first) and not isinstance(first[0], str)


def is_batch_list(batch: BatchLike) -> TypeIs[Sequence[Batch]]:
    """Return True for a list of batches, one per context; a named tuple with a field `data` is one batch."""
    return isinstance(batch, (list, tuple)) and not hasattr(batch, "data")


def redescribe(
    descs: Sequence[DataDesc], arrays: Sequence[Any], provided: Iterable[Any] | None
) -> list[DataDesc]:
    """Return descriptions of the arrays of a batch: its own, or the bound ones with the shapes of the arrays.

    Shape:
        arrays[i]: (N, ...), with as many axes as `descs[i]`.
    """
    if provided:
        return describe(provided)
    if len(descs) != len(arrays):
        raise ArgumentError(
            f"the batch has {len(arrays)} arrays, but bound are {', '.join(d.name for d in descs)}"
        )
    return [d._replace(shape=shape_of(a, d.name)) for d, a in zip(descs, arrays)]


def resized(labels: Sequence[DataDesc], data: DataDesc) -> list[DataDesc]:
    """Return descriptions of labels with the batch size of new data, for a batch without labels.

    Shape:
        labels[i], returns[i]: N samples on the batch axis; N of `returns` is that of `data`.
    """
    axis = DataDesc.get_batch_axis(data.layout)
    descs = []
    for desc in labels:
        shape, own = list(desc.shape), DataDesc.get_batch_axis(desc.layout)
        if axis >= 0 and own >= 0:
            shape[own] = data.shape[axis]
        descs.append(desc._replace(shape=tuple(shape)))
    return descs


def _tensor(array: ArrayLike) -> Any:
    """Return an array of a batch as a tensor, or as the stored parts of a CSR matrix or ragged array."""
    if isinstance(array, (CSRNDArray, RaggedNDArray)):
        return array.stored
    if isinstance(array, NDArray):
        return array.raw
    if isinstance(array, torch.Tensor):
        expose(array)
    return torch.as_tensor(array)


def _on_context(value: torch.Tensor | Csr | Ragged, ctx: Context) -> Any:
    """Return a tensor, or the stored parts of a CSR matrix or ragged array, on the device of a context."""
    return (
        on_device(value, ctx.torch_device) if isinstance(value, torch.Tensor) else value.to(ctx.torch_device)
    )


class BatchSplitter:
    """The present input shapes of a group, and the slices of a batch for each context.

    Args:
        data_shapes: descriptions of the inputs of the whole batch, or a list of such lists, one per context.
        label_shapes: the same for labels, or None.

    Shape:
        data_shapes[i], label_shapes[i]: (N, ...), N samples on the axis that the layout calls "N", the first by
            default.

    Attributes:
        batch_size: samples in a whole batch; number of contexts if `per_context`; None if no input has a batch axis.
    """

    def __init__(
        self, data_shapes: ShapesLike, label_shapes: ShapesLike | None, workload: Sequence[float]
    ) -> None:
        self.per_context = is_per_context(data_shapes)
        self._workload = list(workload)
        contexts = range(len(self._workload))
        self.batch_size: int | None = None
        self.slices: list[slice] = []
        self.active = list(contexts)
        self.data_shapes: Any
        self.label_shapes: Any
        if self.per_context:
            if len(data_shapes) != len(self._workload):
                raise ArgumentError(
                    f"data_shapes has {len(data_shapes)} lists for {len(self._workload)} contexts"
                )
            self.data_shapes = [describe(part) for part in data_shapes]
            self.label_shapes = (
                [describe(part) for part in label_shapes] if label_shapes is not None else None
            )
            data, labels = self.data_shapes[0], (self.label_shapes or [[]])[0]
        else:
            data = self.data_shapes = describe(data_shapes)
            labels = describe(label_shapes)
            self.label_shapes = labels if label_shapes is not None else None
        self.data_names = [d.name for d in data]
        self.label_names = [d.name for d in labels]
        self.data_layouts = [DataDesc.get_batch_axis(d.layout) for d in data]
        self.label_layouts = [DataDesc.get_batch_axis(d.layout) for d in labels]
        if self.per_context:
            self.batch_size = len(data_shapes)
        else:
            self._find_slices([*data, *labels])

    def _find_slices(self, descs: Sequence[DataDesc]) -> None:
        """Find the batch size and each context's share."""
        for desc, axis in zip(descs, (*self.data_layouts, *self.label_layouts)):
            if axis < 0:
                continue
            if axis >= len(desc.shape):
                raise ShapeError(
                    f"{desc.name} has shape {desc.shape}; its layout {desc.layout!r} has N on axis {axis}"
                )
            if not desc.shape[axis]:
                raise ShapeError(
                    f"{desc.name} has shape {tuple(desc.shape)}: the batch is empty, expected at least one sample on "
                    f"axis {axis}"
                )
            if self.batch_size is None:
                self.batch_size = desc.shape[axis]
            elif desc.shape[axis] != self.batch_size:
                raise ShapeError(
                    f"all data must have the same batch size: it is {self.batch_size}, but {desc.name} has shape "
                    f"{desc.shape} with the batch on axis {axis}"
                )
        if self.batch_size is not None:
            self.slices = split_batch(self.batch_size, self._workload)
            self.active = [i for i, part in enumerate(self.slices) if part.stop > part.start]

    @cached_property
    def shapes(self) -> list[list[DataDesc]]:
        """Descriptions of every context's inputs and labels."""
        if self.per_context:
            labels = self.label_shapes or [[]] * len(self.data_shapes)
            return [[*data, *own] for data, own in zip(self.data_shapes, labels)]
        descs = [*self.data_shapes, *(self.label_shapes or ())]
        return [self._sliced(descs, i) for i in range(len(self._workload))]

    def _sliced(self, descs: Sequence[DataDesc], i: int) -> list[DataDesc]:
        sliced = []
        for desc, axis in zip(descs, (*self.data_layouts, *self.label_layouts)):
            shape = list(desc.shape)
            if axis >= 0:
                shape[axis] = self.slices[i].stop - self.slices[i].start
            sliced.append(desc._replace(shape=tuple(shape)))
        return sliced

    @cached_property
    def key(self) -> Any:
        """Key of the executors: feeds with equal keys use the same executors."""
        return tuple(
            tuple((d.name, d.shape, dtype_name(d.dtype), d.stype) for d in descs) for descs in self.shapes
        )

    @cached_property
    def input_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the arrays of a batch, labels last; empty for batches that are lists per context."""
        return (
            ()
            if self.per_context
            else tuple(d.shape for d in (*self.data_shapes, *(self.label_shapes or ())))
        )

    def takes(self, batch: BatchLike) -> bool:
        """Return True if a batch has the shapes of this feed; a list per context is checked when it is loaded."""
        if self.per_context or (isinstance(batch, (list, tuple)) and is_batch_list(batch)):
            return True
        arrays = getattr(batch, "data", None)
        if not isinstance(arrays, (list, tuple)):
            raise ArgumentError(
                f"the batch is of type {type(batch).__name__}, expected a DataBatch([data], [label])"
            )
        if self.label_names:
            arrays = (*arrays, *(getattr(batch, "label", None) or ()))
        shapes = self.input_shapes
        for array, shape in zip(arrays, shapes):
            if (array.raw.shape if type(array) is NDArray else getattr(array, "shape", None)) != shape:
                break
        else:
            return len(arrays) <= len(shapes)
        ordered, _ = in_order(batch, self.data_names, self.label_names)
        return ordered is not batch and self.takes(ordered)

    # splitting

    def whole(self, batch: BatchLike, needs_label: bool) -> dict[str, torch.Tensor] | None:
        """Return the dense arrays of a batch by name if one context takes all of them as they are, else None.

        Args:
            needs_label: as in `split`.

        Shape:
            returns: any; this function does not compare shapes.
        """
        arrays, label = getattr(batch, "data", None), getattr(batch, "label", None)
        if len(self._workload) > 1 or self.per_context or not isinstance(arrays, (list, tuple)):
            return None
        names, provided = self.data_names, getattr(batch, "provide_data", None)
        if provided and [desc[0] for desc in provided] != names:
            return None
        if self.label_names and (needs_label or label):
            provided = getattr(batch, "provide_label", None)
            if provided and [desc[0] for desc in provided] != self.label_names:
                return None
            names, arrays = [*names, *self.label_names], [*arrays, *(label or ())]
        if len(arrays) != len(names):
            return None
        found = {}
        for name, array in zip(names, arrays):
            if type(array) is not NDArray:
                return None
            found[name] = array.raw
        return found

    def split(self, batch: BatchLike, needs_label: bool) -> list[dict[str, Any]]:
        """Return the inputs of every active context by name.

        Args:
            batch: anything with `data` and `label`, or a list of one per context.
            needs_label: whether a batch without label is an error.

        Shape:
            batch.data[i], batch.label[i]: those of `data_shapes` and `label_shapes`.
            returns[k][name]: (n, ...), the samples of active context k.
        """
        data: Any
        label: Any
        if is_batch_list(batch):
            parts: Any = batch
            data, label, is_split = [b.data for b in parts], [b.label for b in parts], True
            has_label = bool(parts) and bool(parts[0].label)
        else:
            data, label, is_split = batch.data, getattr(batch, "label", None), self.per_context
            has_label = label is not None and len(label) > 0
        if needs_label and self.label_names and not has_label:
            raise ArgumentError(
                f"the batch has no label, but {', '.join(self.label_names)} is needed in training; "
                "give DataBatch(label=[...]) or run forward(is_train=False)"
            )
        inputs: list[dict[str, Any]] = [{} for _ in self.active] if len(self._workload) > 1 else [{}]
        self._fill(inputs, data, self.data_names, self.data_layouts, "data", is_split)
        if has_label and self.label_names:
            self._fill(inputs, label, self.label_names, self.label_layouts, "label", is_split)
        return inputs

    def _fill(
        self,
        inputs: list[dict[str, Any]],
        arrays: Sequence[Any],
        names: Sequence[str],
        axes: Sequence[int],
        kind: str,
        is_split: bool,
    ) -> None:
        """Add the slices of arrays to the inputs of every active context."""
        if not is_split and len(arrays) == len(names) and len(self._workload) == 1:
            own = inputs[0]
            for name, array in zip(names, arrays):
                own[name] = array.raw if type(array) is NDArray else _tensor(array)
            return
        for own, more in zip(inputs, self._parts(arrays, names, axes, kind, is_split)):
            own.update(more)

    def _parts(
        self, arrays: Sequence[Any], names: Sequence[str], axes: Sequence[int], kind: str, is_split: bool
    ) -> list[dict[str, Any]]:
        if not is_split:
            self._check_count(arrays, names, f"the batch has {len(arrays)} {kind} arrays")
            columns = [self._narrow(_tensor(a), axis, name) for a, name, axis in zip(arrays, names, axes)]
            return [dict(zip(names, row)) for row in zip(*columns)]
        if len(arrays) != len(self.active):
            raise ArgumentError(
                f"the batch has {kind} for {len(arrays)} contexts, bound were {len(self.active)}"
            )
        parts = []
        for own in arrays:
            group = list(own) if isinstance(own, (list, tuple)) else [own]
            self._check_count(group, names, f"a context's {kind} has {len(group)} arrays")
            parts.append({name: _tensor(array) for name, array in zip(names, group)})
        return parts

    @staticmethod
    def _check_count(arrays: Sequence[Any], names: Sequence[str], what: str) -> None:
        if len(arrays) != len(names):
            raise ArgumentError(f"{what}, bound were {len(names)}: {', '.join(names)}")

    def _narrow(self, tensor: torch.Tensor | Csr | Ragged, axis: int, name: str) -> list[Any]:
        """Return each active context's slice of a tensor."""
        if axis < 0:
            return [tensor] * len(self.active)
        if len(tensor.shape) <= axis or tensor.shape[axis] != self.batch_size:
            shape = tuple(tensor.shape)
            raise ShapeError(f"{name} has shape {shape}, expected {self.batch_size} samples on axis {axis}")
        parts = [self.slices[i] for i in self.active]
        if isinstance(tensor, (Csr, Ragged)):
            return [tensor.range(part.start, part.stop) for part in parts]
        return [tensor.narrow(axis, part.start, part.stop - part.start) for part in parts]

    def split_labels(self, labels: Sequence[Any], k: int, ctx: Context) -> list[NDArray]:
        """Return the `k`-th active context's slice of every label, on that context's device.

        Shape:
            labels[i]: (N, ...).
            returns[i]: (n, ...), the samples of active context `k`.
        """
        own = []
        for label, axis, name in zip(labels, self.label_layouts, self.label_names):
            own.append(array_of(_on_context(self._narrow(_tensor(label), axis, name)[k], ctx), ctx))
        return own

    def split_head(self, grad: NDArray | None, axis: int, k: int, rows: int, ctx: Context) -> NDArray | None:
        """Return the `k`-th active context's slice of an output's gradient.

        Args:
            axis: the output's batch axis, negative without one.
            rows: size of the context's own output on that axis.

        Shape:
            grad: N samples, or a fixed number of rows for each, on `axis`.
            returns: `rows` of these on that axis.
        """
        if grad is None or axis < 0:
            return grad
        part = self.slices[self.active[k]]
        per_sample = rows // (part.stop - part.start)
        if isinstance(grad, RaggedNDArray):
            return array_of(_on_context(grad.stored.range(part.start, part.stop), ctx), ctx)
        tensor = grad.raw.narrow(axis, part.start * per_sample, rows)
        return NDArray(on_device(tensor, ctx.torch_device), ctx)

    # counting

    def size(self, k: int) -> int:
        """Return the number of samples of the `k`-th active context."""
        part = self.slices[self.active[k]]
        return int(part.stop - part.start)

    def valid(self, k: int, pad: int) -> int:
        """Return the number of samples of the `k`-th active context without padding."""
        part = self.slices[self.active[k]]
        return int(max(0, min((self.batch_size or 0) - pad, part.stop) - part.start))

    def without_padding(
        self, arrays: Mapping[str, NDArray], axes: Sequence[int], k: int, pad: int
    ) -> dict[str, NDArray]:
        """Remove padding from arrays with one row, or a fixed number of rows, per sample on the batch axis.

        Shape:
            arrays[name]: (n, ...), or a multiple of n rows, on its batch axis.
            returns[name]: the same without padding rows.
        """
        size, valid = self.size(k), self.valid(k, pad)
        cut = {}
        for (name, array), axis in zip(arrays.items(), axes):
            rows = array.shape[axis] if 0 <= axis < array.ndim else 0
            if isinstance(array, RaggedNDArray):
                array = array[:valid]
            elif rows and rows % size == 0 and valid < size:
                array = NDArray(array.raw.narrow(axis, 0, rows // size * valid), array.context)
            cut[name] = array
        return cut


# shares of the devices


def _check_workload(batch_size: int, workload: Sequence[float]) -> float:
    if not workload or any(not w > 0 for w in workload):
        raise ArgumentError(f"workload is {list(workload)}, expected a positive number for every context")
    if batch_size < 0:
        raise ArgumentError(f"batch_size is {batch_size}, expected a number from 0")
    return float(sum(workload))


def split_input_slice(batch_size: int, work_load_list: Sequence[float]) -> list[slice]:
    """Split a batch as MXNet does: shares are rounded, and the last device receives the rest.

    Args:
        batch_size: number of samples.
    """
    total = _check_workload(batch_size, work_load_list)
    shares = [round(w * batch_size / total) for w in work_load_list]
    missing = batch_size - sum(shares)
    if missing > 0:
        shares[-1] += missing
    slices, end = [], 0
    for share in shares:
        begin = min(end, batch_size)
        end = min(begin + share, batch_size)
        if begin >= end:
            raise ArgumentError(
                f"Too many slices. Some splits are empty: {batch_size} samples over the workload {list(work_load_list)}"
            )
        slices.append(slice(begin, end))
    return slices


def split_batch(batch_size: int, workload: Sequence[float]) -> list[slice]:
    """Split a batch so that every share is the exact quota rounded up or down; shares may be empty.

    MXNet's own split is used if it is as fair, so that results agree; for many devices and small batches it is not (of
    10 samples over six devices, the last gets five). Then the largest remainders get the remaining samples, later
    devices first.

    Args:
        batch_size: number of samples.
    """
    total = _check_workload(batch_size, workload)
    quotas = [w * batch_size / total for w in workload]
    try:
        slices = split_input_slice(batch_size, workload)
        if all(abs(s.stop - s.start - q) < 1 for s, q in zip(slices, quotas)):
            return slices
    except ArgumentError:
        pass
    shares = [int(q) for q in quotas]
    order = sorted(range(len(quotas)), key=lambda i: (quotas[i] - shares[i], i), reverse=True)
    for i in order[: batch_size - sum(shares)]:
        shares[i] += 1
    bounds = [0]
    for share in shares:
        bounds.append(bounds[-1] + share)
    return [slice(a, b) for a, b in zip(bounds, bounds[1:])]
