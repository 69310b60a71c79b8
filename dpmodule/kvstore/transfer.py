"""How gradients travel between devices and processes: in buckets, from early on, and in two bits an element."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..base import ArgumentError, DTypeError
from ..context import cpu
from ..ndarray import NDArray
from .base import Key

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


def plan_buckets(tensors: Sequence[torch.Tensor], limit: int = BYTES) -> list[list[int]]:
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


def to_buckets(tensors: Sequence[torch.Tensor]) -> list[Bucket]:
    """Lay tensors into buckets: each of one type and device, and not much larger than need be."""
    return [Bucket([tensors[i] for i in places], places) for places in plan_buckets(tensors)]


def from_buckets(buckets: Sequence[Bucket], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors, of which those in buckets are as they are there; these share memory with them."""
    found = list(tensors)
    for bucket in buckets:
        for place, part in zip(bucket.places, bucket.parts()):
            found[place] = part
    return found


def _differ(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Say whether two kinds of tensors cannot be in one bucket."""
    return one[1:] != other[1:]


class BucketReducer:
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
        plan = [[order[i] for i in places] for places in plan_buckets([tensors[i] for i in order], limit)]
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
        return from_buckets([bucket for bucket, _ in sent], tensors)


# two bits for each element, with what is lost carried over to the next round

_KEYS = ("type", "threshold")


def quantize(gradient: torch.Tensor, residual: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return a gradient rounded to -threshold, 0 or threshold, each of which fits into two bits.

    An element takes the value of the threshold that it and its residual reach together; what is left over, be it
    ever so much, stays in the residual.

    Shape:
        gradient: any, of a floating type.
        residual: the same; written to.
        returns: the same.

    Args:
        threshold: a positive number.
    Source: Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing", 2015, as in MXNet
        1.9.1. Between processes `pack` makes two bits of each.
    """
    residual += gradient
    sent = (residual >= threshold).to(residual.dtype).sub_((residual <= -threshold).to(residual.dtype))
    sent *= threshold
    residual -= sent
    return sent


def pack(sent: torch.Tensor) -> torch.Tensor:
    """Return what `quantize` returned in two bits for each number: 0 for zero, 1 above and 2 below.

    Shape:
        sent: any.
        returns: (number of elements / 4, rounded up), of uint8.
    """
    flat = sent.reshape(-1)
    codes = (flat > 0).to(torch.uint8) + 2 * (flat < 0).to(torch.uint8)
    codes = torch.cat([codes, codes.new_zeros(-codes.numel() % 4)]).view(-1, 4)
    return codes[:, 0] | codes[:, 1] << 2 | codes[:, 2] << 4 | codes[:, 3] << 6


def unpack(packed: torch.Tensor, like: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return what `pack` packed.

    Args:
        like: a tensor of the shape and type that it had.
    """
    codes = torch.stack([packed >> shift & 3 for shift in (0, 2, 4, 6)], 1).view(-1)[: like.numel()]
    values = (codes == 1).to(like.dtype) - (codes == 2).to(like.dtype)
    return (values * threshold).view(like.shape)


class Compression:
    """How gradients are compressed on their way to where they are added up, and what each device still owes.

    Args:
        params: ``{"type": "2bit"}``, and optionally `threshold`, a positive number, 0.5 by default.

    Raises:
        ArgumentError: the type is missing or unknown, the threshold is no positive number, or there is another key.
    """

    def __init__(self, params: Mapping[str, Any]) -> None:
        if not isinstance(params, Mapping) or "type" not in params:
            raise ArgumentError(
                f"compression_params is {params!r}, expected a dict such as {{'type': '2bit', 'threshold': 0.5}}"
            )
        unknown = [key for key in params if key not in _KEYS]
        if unknown:
            raise ArgumentError(f"compression_params has {unknown}, expected only {' and '.join(_KEYS)}")
        if params["type"] != "2bit":
            raise ArgumentError(f"gradient compression {params['type']!r} is unknown; expected '2bit'")
        self.type = "2bit"
        self.threshold = _positive(params.get("threshold", 0.5))
        self._residuals: dict[tuple[Any, int], torch.Tensor] = {}

    def compressed(self, key: Key, arrays: Sequence[NDArray]) -> list[NDArray]:
        """Return what arrives of the arrays of a key, and keep what does not for the next call.

        Args:
            arrays: one for each device, in the same order each time. Row-sparse ones are left alone, as in MXNet.

        Raises:
            DTypeError: an array is of no floating type.
        """
        if any(array.stype != "default" for array in arrays):
            return list(arrays)
        return [
            NDArray(quantize(array.raw, self._residual(key, position, array), self.threshold), array.context)
            for position, array in enumerate(arrays)
        ]

    def state_dict(self) -> dict[str, list[Any]]:
        """Return what is still owed, by key and number of the device."""
        return {
            f"{key}@{position}": [key, position, NDArray(owed.cpu(), cpu())]
            for (key, position), owed in self._residuals.items()
        }

    def load_state_dict(self, state: Mapping[str, list[Any]]) -> None:
        """Owe what `state_dict` returned.

        Args:
            state: residuals, each with its key and the number of its device.
        """
        self._residuals = {(key, position): owed.raw.clone() for key, position, owed in state.values()}

    def _residual(self, key: Key, position: int, array: NDArray) -> torch.Tensor:
        like = array.raw
        if not like.is_floating_point():
            raise DTypeError(f"kvstore: key {key!r}: only floats are compressed, got {array.describe()}")
        known = self._residuals.get((key, position))
        if known is None or known.shape != like.shape or known.dtype != like.dtype:
            known = self._residuals[key, position] = torch.zeros_like(like)
        elif known.device != like.device:
            known = self._residuals[key, position] = known.to(like.device)
        return known


def _positive(given: Any) -> float:
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = 0.0
    if not 0.0 < number < float("inf"):
        raise ArgumentError(f"compression_params: threshold is {given!r}, expected a positive number")
    return number
