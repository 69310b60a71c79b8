"""Splitting a batch over devices by workload."""

from __future__ import annotations

from collections.abc import Sequence

from .base import ArgumentError


def _check(batch_size: int, workload: Sequence[float]) -> float:
    if not workload or any(not w > 0 for w in workload):
        raise ArgumentError(f"workload is {list(workload)}, expected a positive number for every context")
    if batch_size < 0:
        raise ArgumentError(f"batch_size is {batch_size}, expected a number from 0")
    return float(sum(workload))


def split_input_slice(batch_size: int, work_load_list: Sequence[float]) -> list[slice]:
    """Split a batch as MXNet does: rounded shares, the last device takes what is missing.

    Args:
        batch_size: number of samples.
    """
    total = _check(batch_size, work_load_list)
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

    MXNet's own split is kept wherever it is as fair as that, so that results agree with it; it is not for many
    devices and small batches (10 samples over six devices leave five for the last). There, the largest remainders
    get the samples left over, later devices first.

    Args:
        batch_size: number of samples.
    """
    total = _check(batch_size, workload)
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
