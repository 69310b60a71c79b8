"""Which rows of equal numbers are to be added up, found natively where the extension is there."""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def groups_of(numbers: Tensor, places: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Sort numbers of the CPU, equal ones in the order in which they come.

    Args:
        numbers: at least one, (T,) int64.
        places: a place for each number, (T,) int64; None = they count from 0.

    Returns:
        The different numbers, ascending, (R,); where each begins among the sorted ones, (R,); and the places in the
        order of the sorted numbers, (T,).
    """
    from ... import native  # loads the extension

    core = native.core
    if core is None:
        return _by_torch(numbers, places)
    numbers = numbers.contiguous()
    given = None if places is None else places.contiguous()
    distinct, starts, ordered = torch.empty(3, len(numbers), dtype=torch.int64)
    count = core.group_numbers(
        numbers.data_ptr(),
        len(numbers),
        0 if given is None else given.data_ptr(),
        distinct.data_ptr(),
        starts.data_ptr(),
        ordered.data_ptr(),
    )
    return distinct[:count].clone(), starts[:count], ordered  # a gradient keeps the first


def _by_torch(numbers: Tensor, places: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    ordered, order = numbers.sort(stable=True)
    is_first = torch.ones(ordered.numel(), dtype=torch.bool)
    torch.ne(ordered[1:], ordered[:-1], out=is_first[1:])
    starts = is_first.nonzero().view(-1)
    return ordered[starts], starts, order if places is None else places.index_select(0, order)
