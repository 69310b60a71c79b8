"""`Bucket`: many tensors as one, so that a group of processes adds them up in one go."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["Bucket", "buckets_of"]

_BYTES = 25 * 2**20
"""Size from which on a bucket is sent by itself."""


class Bucket:
    """Tensors of one type and device, laid one behind the other.

    Args:
        tensors: the tensors.
        places: their places in a list of more of them.

    Attributes:
        flat: all numbers, in memory of the bucket's own.
        places: as given.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], places: Sequence[int]) -> None:
        self.flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        self.places = places
        self._shapes = [tensor.shape for tensor in tensors]

    def parts(self) -> list[torch.Tensor]:
        """Return the tensors, as views of the flat one."""
        parts = torch.split_with_sizes(self.flat, [shape.numel() for shape in self._shapes])
        return [part.view(shape) for part, shape in zip(parts, self._shapes)]


def buckets_of(tensors: Sequence[torch.Tensor]) -> list[Bucket]:
    """Lay tensors into buckets: each of one type and device, and of some 25 MB at most."""
    kinds: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for place, tensor in enumerate(tensors):
        kinds.setdefault((tensor.dtype, tensor.device), []).append(place)
    found = []
    for places in kinds.values():
        pending: list[int] = []
        size = 0
        for place in places:
            pending.append(place)
            size += tensors[place].nbytes
            if size >= _BYTES:
                found.append(Bucket([tensors[i] for i in pending], pending))
                pending, size = [], 0
        if pending:
            found.append(Bucket([tensors[i] for i in pending], pending))
    return found
