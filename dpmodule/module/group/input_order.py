"""Which array of a batch is which input: by name where a batch says so, else by position."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

from ...base import ArgumentError


def order_of(provided: Iterable[Any] | None, names: Sequence[str], kind: str) -> list[int] | None:
    """Return where a batch has the arrays that a module is bound to.

    Args:
        provided: descriptions of the batch's arrays, or None.

    Returns:
        For each name its position in the batch. None if the positions are the same, or if none of the names occurs in
        the batch: then arrays go by position, as in MXNet.
    """
    given = [one[0] for one in provided or ()]
    if given == names or not (given and names) or any(not isinstance(name, str) for name in given):
        return None
    if set(names) <= set(given):
        return [given.index(name) for name in names]
    if any(name in names and names.index(name) != i for i, name in enumerate(given)):
        raise ArgumentError(
            f"the module is bound to {kind} {', '.join(names)}, but the batch has {', '.join(given)}; give the arrays "
            "the names that are bound, in any order"
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
        batch: a batch; one that does not describe its arrays, or a list of one per context, is returned as it is.
        data: descriptions for a batch that has none of its own.

    Returns:
        The batch itself, or a shallow copy, and where it has the labels; None if they are in order.
    """
    data = getattr(batch, "provide_data", None) or data
    label = getattr(batch, "provide_label", None) or label
    if data is None and label is None:
        return batch, None
    orders = {}
    for part, descs, names in (("data", data, data_names), ("label", label, label_names)):
        arrays = getattr(batch, part, None)
        # a wrong number of arrays is an error when they are loaded
        if descs and arrays and len(arrays) == len(descs):
            order = order_of(descs, names, part)
            if order is not None:
                orders[part] = order, [arrays[i] for i in order], [descs[i] for i in order]
    if not orders:
        return batch, None
    batch = copy.copy(batch)
    for part, (_, arrays, descs) in orders.items():
        setattr(batch, part, arrays)
        setattr(batch, f"provide_{part}", descs)
    return batch, orders["label"][0] if "label" in orders else None
