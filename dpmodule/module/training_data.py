"""Data of `fit`, `score` and `predict`: conversion to iterators, labels and types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base import ArgumentError, MXNetError
from ..io import DataBatch, DataDesc, as_data_iter
from ..symbol import Symbol
from .group.batch_splitter import describe
from .group.input_order import names_bound, order_of
from .protocol import Trainable

if TYPE_CHECKING:
    from .types import BatchLike, DataLike

_SHOWN_SAMPLES = 8


def as_iter(module: Trainable, data: DataLike) -> Any:
    """Return data as an iterator of batches, with the module's names if it has none."""
    if hasattr(data, "provide_data") and hasattr(data, "reset"):
        return as_data_iter(data)
    label_names = getattr(module, "label_names", ["softmax_label"])
    return as_data_iter(data, data_names=module.data_names, label_names=label_names)


def labelled_iter(module: Trainable, data: DataLike, task: str) -> Any:
    """Return data as an iterator of batches; raise ArgumentError if labels are missing."""
    iterator = as_iter(module, data)
    symbol = None if getattr(iterator, "provide_label", True) else _symbol(module)
    if symbol is not None:
        provided = {desc[0] for desc in iterator.provide_data or ()}
        missing = {*_label_names(module)} & {*symbol.list_arguments()} - provided
        if missing:
            raise ArgumentError(
                f"{task}: {type(data).__name__} gives no labels, and the network takes {', '.join(sorted(missing))}; "
                "let it give pairs (data, label), or an NDArrayIter label="
            )
    return iterator


def named_batches(module: Trainable, data: Any) -> Iterator[Any]:
    """Return an iterator over batches, which name their arrays if the module is bound to another order.

    The order is compared once, so that batches of the usual order cost nothing.
    """
    bound = [names_bound(module, part) for part in ("data", "label")]
    provided = data.provide_data, getattr(data, "provide_label", None)
    orders = [order_of(descs, names, kind) for descs, names, kind in zip(provided, bound, ("data", "label"))]
    if orders == [None, None]:
        return iter(data)
    if not getattr(module, "matches_by_name", False):
        if all(order in (None, [*range(len(order or ()))]) for order in orders):  # more arrays than it reads
            return iter(data)
        names = [desc[0] for descs in provided for desc in descs or ()]
        raise ArgumentError(
            f"{type(module).__name__} is bound to {', '.join(chain(*bound))}, but {type(data).__name__} gives "
            f"{', '.join(names)}; bind the module to the iterator's provide_data and provide_label, or give the "
            "iterator the module's order"
        )
    return (_described(batch, *provided) for batch in data)


def _described(batch: Any, data: Sequence[Any] | None, label: Sequence[Any] | None) -> Any:
    """Add descriptions to a batch without descriptions of its arrays."""
    if isinstance(batch, list):  # one batch per context
        return batch
    if isinstance(batch, tuple):  # a named tuple
        batch = DataBatch(
            getattr(batch, "data", None), getattr(batch, "label", None), getattr(batch, "pad", None)
        )
    for kind, descs in (("data", data), ("label", label)):
        arrays = getattr(batch, kind, None)
        if descs and arrays and not getattr(batch, f"provide_{kind}", None):
            own = [
                desc._replace(shape=tuple(getattr(array, "shape", desc.shape)))
                for desc, array in zip(describe(descs), arrays)
            ]
            setattr(batch, f"provide_{kind}", own)
    return batch


def bindable(module: Trainable, descs: Sequence[Any] | None) -> Any:
    """Return descriptions of data with float32 instead of integers that would make parameters integers.

    Image bytes and integers in a table become float32; word indices of an Embedding stay integers.
    """
    integers = [desc for desc in descs or () if _is_integer(getattr(desc, "dtype", None))]
    symbol = _symbol(module) if integers else None
    if symbol is None or descs is None:
        return descs
    names = [desc[0] for desc in descs]
    inputs = {*names, *_label_names(module)}

    def bound(desc: Any) -> Any:
        types = dict.fromkeys(names, np.float32) | {desc[0]: desc.dtype}
        if not any(_is_integer(dtype) for name, dtype in _types(symbol, types).items() if name not in inputs):
            return desc
        return DataDesc(
            desc[0], desc[1], np.float32, getattr(desc, "layout", "NCHW"), getattr(desc, "stype", "default")
        )

    return [bound(desc) if desc in integers else desc for desc in descs]


def _symbol(module: Trainable) -> Symbol | None:
    """Return the symbol of a module, None without one; a bucketing module has none before `bind`."""
    try:
        symbol = module.symbol
    except (MXNetError, AttributeError):
        return None
    return symbol if isinstance(symbol, Symbol) else None


def _label_names(module: Trainable) -> Sequence[str]:
    return getattr(module, "label_names", None) or ()


def _is_integer(dtype: Any) -> bool:
    return dtype is not None and dtype != "bfloat16" and np.dtype(dtype).kind in "iub"


def _types(symbol: Symbol, types: dict[str, Any]) -> dict[str, Any]:
    """Return the types of a symbol's arguments, inferred from types of inputs."""
    names = symbol.list_arguments()
    inferred, _, _ = symbol.infer_type_partial(
        **{name: dtype for name, dtype in types.items() if name in names}
    )
    return dict(zip(names, inferred or ()))


def sample_numbers(batch: BatchLike, data: object) -> list[int] | None:
    """Return the sample indices of a batch from its iterator, None if it has none."""
    index = getattr(batch, "index", None)
    if index is None and hasattr(data, "getindex"):
        index = data.getindex()
    return None if index is None else [int(i) for i in index]


def samples_in(module: Trainable, batch: BatchLike, data: object) -> str:
    """Return a text with the sample indices of a batch; "" if its iterator has none.

    Args:
        module: the module that ran the batch; if outputs are NaN, only those samples are named.
    """
    numbers = sample_numbers(batch, data)
    if numbers is None:
        return ""
    bad, rows = module.nan_rows()
    numbers = [numbers[row] for row in bad] if bad and rows == len(numbers) else numbers
    shown = ", ".join(map(str, numbers[:_SHOWN_SAMPLES]))
    more = len(numbers) - _SHOWN_SAMPLES
    return f" (samples {shown}{f' and {more} more' if more > 0 else ''})"
