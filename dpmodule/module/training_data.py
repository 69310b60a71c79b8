"""What `fit`, `score` and `predict` are given to read: iterators of it, whether it has labels, and its types."""

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
    """Return data as an iterator of batches, with the module's names where it has none of its own."""
    if hasattr(data, "provide_data") and hasattr(data, "reset"):
        return as_data_iter(data)
    label_names = getattr(module, "label_names", ["softmax_label"])
    return as_data_iter(data, data_names=module.data_names, label_names=label_names)


def labelled_iter(module: Trainable, data: DataLike, task: str) -> Any:
    """Return data as an iterator of batches that have labels if the network takes some."""
    found = as_iter(module, data)
    symbol = None if getattr(found, "provide_label", True) else _symbol(module)
    if symbol is not None:
        given = {desc[0] for desc in found.provide_data or ()}
        taken = {*_label_names(module)} & {*symbol.list_arguments()} - given
        if taken:
            raise ArgumentError(
                f"{task}: {type(data).__name__} gives no labels, and the network takes {', '.join(sorted(taken))}; "
                "let it give pairs (data, label), or an NDArrayIter label="
            )
    return found


def named_batches(module: Trainable, data: Any) -> Iterator[Any]:
    """Return an iterator over batches; they name their arrays where the module is bound to another order.

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
        given = [desc[0] for descs in provided for desc in descs or ()]
        raise ArgumentError(
            f"{type(module).__name__} is bound to {', '.join(chain(*bound))}, but {type(data).__name__} gives "
            f"{', '.join(given)}; bind the module to the iterator's provide_data and provide_label, or give the "
            "iterator the module's order"
        )
    return (_described(batch, *provided) for batch in data)


def _described(batch: Any, data: Sequence[Any] | None, label: Sequence[Any] | None) -> Any:
    """Name the arrays of a batch that does not name them itself."""
    if isinstance(batch, list):  # of one batch per context
        return batch
    if isinstance(batch, tuple):  # a named tuple
        batch = DataBatch(
            getattr(batch, "data", None), getattr(batch, "label", None), getattr(batch, "pad", None)
        )
    for part, descs in (("data", data), ("label", label)):
        arrays = getattr(batch, part, None)
        if descs and arrays and not getattr(batch, f"provide_{part}", None):
            own = [
                desc._replace(shape=tuple(getattr(array, "shape", desc.shape)))
                for desc, array in zip(describe(descs), arrays)
            ]
            setattr(batch, f"provide_{part}", own)
    return batch


def bindable(module: Trainable, descs: Sequence[Any] | None) -> Any:
    """Return descriptions of data with float32 in place of integers that would make parameters integers.

    Bytes of an image, and whole numbers in a table, are to be computed with; numbers of words, which are looked up,
    stay as they are.
    """
    doubtful = [desc for desc in descs or () if _is_integer(getattr(desc, "dtype", None))]
    symbol = _symbol(module) if doubtful else None
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

    return [bound(desc) if desc in doubtful else desc for desc in descs]


def _symbol(module: Trainable) -> Symbol | None:
    """Return the symbol of a module that is made of one; a bucketing module has none before it is bound."""
    try:
        found = module.symbol
    except (MXNetError, AttributeError):
        return None
    return found if isinstance(found, Symbol) else None


def _label_names(module: Trainable) -> Sequence[str]:
    return getattr(module, "label_names", None) or ()


def _is_integer(dtype: Any) -> bool:
    return dtype is not None and dtype != "bfloat16" and np.dtype(dtype).kind in "iub"


def _types(symbol: Symbol, types: dict[str, Any]) -> dict[str, Any]:
    """Return the types of a symbol's arguments that follow from those of some inputs."""
    names = symbol.list_arguments()
    found, _, _ = symbol.infer_type_partial(**{name: dtype for name, dtype in types.items() if name in names})
    return dict(zip(names, found or ()))


def sample_numbers(batch: BatchLike, data: object) -> list[int] | None:
    """Return the numbers that an iterator gives the samples of a batch, None where it gives none."""
    index = getattr(batch, "index", None)
    if index is None and hasattr(data, "getindex"):
        index = data.getindex()
    return None if index is None else [int(each) for each in index]


def samples_in(module: Trainable, batch: BatchLike, data: object) -> str:
    """Return words about the samples of a batch, by the numbers that its iterator gives them; "" where it gives none.

    Args:
        module: what was run on it; samples whose outputs are NaN are named alone, if there are some.
    """
    numbers = sample_numbers(batch, data)
    if numbers is None:
        return ""
    bad, rows = module.nan_rows()
    numbers = [numbers[row] for row in bad] if bad and rows == len(numbers) else numbers
    shown = ", ".join(map(str, numbers[:_SHOWN_SAMPLES]))
    more = len(numbers) - _SHOWN_SAMPLES
    return f" (samples {shown}{f' and {more} more' if more > 0 else ''})"
