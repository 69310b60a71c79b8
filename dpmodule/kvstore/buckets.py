"""Many tensors as few, so that a group of processes adds them up in one go: `Bucket`, and `Sums` that begin early."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

BYTES = 2**20
"""Size from which on a bucket is sent by itself, unless told otherwise."""


class Bucket:
    """Tensors of one type and device, laid one behind the other."""

    def __init__(self, tensors: Sequence[torch.Tensor], places: Sequence[int]) -> None:
        self.flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        self.places = places
        self._shapes = [tensor.shape for tensor in tensors]

    def parts(self) -> list[torch.Tensor]:
        """Return the tensors, as views of the flat one."""
        parts = torch.split_with_sizes(self.flat, [shape.numel() for shape in self._shapes])
        return [part.view(shape) for part, shape in zip(parts, self._shapes)]


def planned(tensors: Sequence[torch.Tensor], limit: int = BYTES) -> list[list[int]]:
    """Return the places of tensors that go together: of one type and device, and not many more bytes than a limit.

    Types and devices come in the order of their last tensors; of each, tensors come in theirs.
    """
    kinds: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for place, tensor in enumerate(tensors):
        kinds.setdefault((tensor.dtype, tensor.device), []).append(place)
    found = []
    for places in sorted(kinds.values(), key=lambda each: each[-1]):
        pending: list[int] = []
        size = 0
        for place in places:
            if size >= limit:
                found.append(pending)
                pending, size = [], 0
            pending.append(place)
            size += tensors[place].nbytes
        found.append(pending)
    return found


def buckets_of(tensors: Sequence[torch.Tensor]) -> list[Bucket]:
    """Lay tensors into buckets: each of one type and device, and not much larger than need be."""
    return [Bucket([tensors[i] for i in places], places) for places in planned(tensors)]


def _differ(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Say whether two kinds of tensors cannot be in one bucket."""
    return one[1:] != other[1:]


class Sums:
    """The sums over processes of tensors that come one by one: a bucket of them goes as soon as it is full.

    Buckets go in one order in all processes: one that is full waits for those before it. What has not come when the
    sums are asked for goes then, so that processes in which nothing has come send the same buckets.

    Args:
        tensors: of the shapes, types and devices of those that will come.
        order: their places in the order in which they are likely to come. Some that share a bucket with the last one,
            or come in another order, only go later.
        limit: bytes from which on a bucket is full.
        send: adds a tensor up over all processes in the background; returns what to wait for.

    Attributes:
        is_split: whether there are several buckets, so that some can go before the last.
    """

    def __init__(
        self,
        tensors: Sequence[torch.Tensor],
        order: Sequence[int],
        limit: int,
        send: Callable[[torch.Tensor], Any],
    ) -> None:
        self._kinds = [(tensor.shape, tensor.dtype, tensor.device) for tensor in tensors]
        plan = [[order[i] for i in places] for places in planned([tensors[i] for i in order], limit)]
        if (
            len(plan) > 1
            and len(plan[-1]) == 1
            and not _differ(*(self._kinds[each[-1]] for each in plan[-2:]))
        ):
            plan[-2:] = [
                plan[-2] + plan[-1]
            ]  # one tensor, often a small one, costs as much as a small network
        self._plan = plan
        self._bucket_of = {place: i for i, places in enumerate(plan) for place in places}
        self._send = send
        self.is_split = len(plan) > 1
        self._begin()

    def _begin(self) -> None:
        self._found: dict[int, torch.Tensor] = {}
        self._missing = [*map(len, self._plan), 1]  # nothing goes behind the last
        self._sent: list[tuple[Bucket, Any]] = []
        self._error: Exception | None = None

    def fits(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Say whether tensors, without the first, are of the kinds of those that were announced."""
        return [(tensor.dtype, tensor.device) for tensor in tensors] == [kind[1:] for kind in self._kinds[1:]]

    def put(self, place: int, tensor: torch.Tensor | None) -> None:
        """Take a tensor, and send what is full; one that is not as it was said to be is left to `finish`.

        What goes wrong is told by `finish`, too.

        Args:
            tensor: the tensor; it is not read any more once its bucket has gone.
        """
        if tensor is None or (tensor.shape, tensor.dtype, tensor.device) != self._kinds[place]:
            return
        self._found[place] = tensor
        self._missing[self._bucket_of[place]] -= 1
        try:
            while self._error is None and not self._missing[len(self._sent)]:
                self._go()
        except (RuntimeError, ValueError) as error:
            self._error = error

    def _go(self) -> None:
        places = self._plan[len(self._sent)]
        bucket = Bucket([self._found.pop(place) for place in places], places)
        self._sent.append((bucket, self._send(bucket.flat)))

    def finish(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Send what has not gone, wait for all, and return the sums, which may share memory.

        Args:
            tensors: all of them; those that `put` has sent are not read.
        """
        sent, error = self._sent, self._error
        try:
            if error is not None:
                raise error
            for places in self._plan[len(sent) :]:
                self._found.update((place, tensors[place]) for place in places)
                self._go()
            for _, work in sent:
                work.wait()
        finally:
            self._begin()
        sums = list(tensors)
        for bucket, _ in sent:
            for place, part in zip(bucket.places, bucket.parts()):
                sums[place] = part
        return sums
