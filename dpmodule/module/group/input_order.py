"""Order of the arrays in a batch: by name if the batch describes its arrays, else by position."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

from ...base import ArgumentError


def order_of(provided: Iterable[Any] | None, names: Sequence[str], kind: str) -> list[int] | None:
    """Return the positions in a batch of the arrays that a module is bound to.

    Args:
        provided: descriptions of the batch's arrays, or None.

    Returns:
        Position in the batch for each name. None if the order is the same, or if the batch has none of the names: then
        arrays are used by position, as in MXNet.
    """
    batch_names = [desc[0] for desc in provided or ()]
    if (
        batch_names == names
        or not (batch_names and names)
        or any(not isinstance(name, str) for name in batch_names)
    ):
        return None
    if set(names) <= set(batch_names):
        return [batch_names.index(name) for name in names]
    if any(name in names and names.index(name) != i for i, name in enumerate(batch_names)):
        raise ArgumentError(
            f"the module is bound to {kind} {', '.join(names)}, but the batch has {', '.join(batch_names)}; give the "
            "arrays the bound names, in any order"
        )
    return None


def names_bound(module: Any, part: str) -> list[str]:
    """Return the names of the "data" or "label" that a module is bound to; none if it does not define them."""
    try:
        descs = getattr(module, f"{part}_shapes", None)
    except NotImplementedError:
        return []
    return [desc[0] for desc in descs or ()]


def in_order(
    batch: Any,
    data_names: Sequence[str],
    label_names: Sequence[str],
    data: Sequence[Any] | None = None,
    label: Sequence[Any] | None = None,
) -> tuple[Any, list[int] | None]:
    """Return a batch with its arrays in the order that a module is bound to.

    Args:
        batch: a batch; without descriptions of its arrays, or as a list of one per context, it is returned unchanged.
        data: descriptions for a batch that has none.

    Returns:
        The batch or a shallow copy, and the positions of its labels; None if they are in order.
    """
    data = getattr(batch, "provide_data", None) or data
    label = getattr(batch, "provide_label", None) or label
    if data is None and label is None:
        return batch, None
    orders = {}
    for kind, descs, names in (("data", data, data_names), ("label", label, label_names)):
        arrays = getattr(batch, kind, None)
        # a wrong number of arrays is an error when they are loaded
        if descs and arrays and len(arrays) == len(descs):
            order = order_of(descs, names, kind)
            if order is not None:
                orders[kind] = order, [arrays[i] for i in order], [descs[i] for i in order]
    if not orders:
        return batch, None
    batch = copy.copy(batch)
    for kind, (_, arrays, descs) in orders.items():
        setattr(batch, kind, arrays)
        setattr(batch, f"provide_{kind}", descs)
    return batch, orders["label"][0] if "label" in orders else None
