"""Transfer of gradients between devices and processes: buckets, early sending, and 2-bit compression."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..base import ArgumentError, DTypeError
from ..context import cpu
from ..ndarray import NDArray
from .base import Key

BYTES = 2**20
"""Default size of a bucket."""


class Bucket:
    """Tensors of one type and device in one flat tensor."""

    def __init__(self, tensors: Sequence[torch.Tensor], positions: Sequence[int]) -> None:
        self.flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        self.positions = positions
        self._shapes = [tensor.shape for tensor in tensors]

    def parts(self) -> list[torch.Tensor]:
        """Return the tensors, as views of the flat one."""
        parts = torch.split_with_sizes(self.flat, [shape.numel() for shape in self._shapes])
        return [part.view(shape) for part, shape in zip(parts, self._shapes)]


def plan_buckets(tensors: Sequence[torch.Tensor], limit: int = BYTES) -> list[list[int]]:
    """Return the positions of the tensors of each bucket: of one type and device, of about `limit` bytes.

    Types and devices are in the order of their last tensors, and the tensors of each in their own order.
    """
    kinds: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for position, tensor in enumerate(tensors):
        kinds.setdefault((tensor.dtype, tensor.device), []).append(position)
    plan = []
    for positions in sorted(kinds.values(), key=lambda kind: kind[-1]):
        pending: list[int] = []
        size = 0
        for position in positions:
            if size >= limit:
                plan.append(pending)
                pending, size = [], 0
            pending.append(position)
            size += tensors[position].nbytes
        plan.append(pending)
    return plan


def to_buckets(tensors: Sequence[torch.Tensor]) -> list[Bucket]:
    """Return tensors in buckets of one type and device each."""
    return [Bucket([tensors[i] for i in positions], positions) for positions in plan_buckets(tensors)]


def from_buckets(buckets: Sequence[Bucket], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors, replaced by views of the buckets where these hold them."""
    result = list(tensors)
    for bucket in buckets:
        for position, part in zip(bucket.positions, bucket.parts()):
            result[position] = part
    return result


def _differ(kind: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Return True if two kinds of tensors cannot share a bucket."""
    return kind[1:] != other[1:]


class BucketReducer:
    """Sums tensors over processes as they become available; each full bucket is sent immediately.

    All processes send buckets in the same order: a full bucket waits for earlier ones. `finish` sends the rest, so that
    a process without tensors sends the same buckets.

    Args:
        tensors: tensors with the shapes, types and devices of those to sum.
        order: their positions in the expected order of arrival. Tensors in another order, or that share a bucket with
            the last one, are only sent later.
        limit: bytes of a full bucket.
        send: starts to sum a tensor over all processes in the background; returns an object to wait for.

    Attributes:
        is_split: True if there are several buckets, so that some can be sent before the last.
    """

    def __init__(
        self,
        tensors: Sequence[torch.Tensor],
        order: Sequence[int],
        limit: int,
        send: Callable[[torch.Tensor], Any],
    ) -> None:
        self._kinds = [(tensor.shape, tensor.dtype, tensor.device) for tensor in tensors]
        plan = [[order[i] for i in bucket] for bucket in plan_buckets([tensors[i] for i in order], limit)]
        if (
            len(plan) > 1
            and len(plan[-1]) == 1
            and not _differ(*(self._kinds[bucket[-1]] for bucket in plan[-2:]))
        ):
            # a separate message for one tensor, often a small one, would cost as much as a small network
            plan[-2:] = [plan[-2] + plan[-1]]
        self._plan = plan
        self._bucket_of = {position: i for i, positions in enumerate(plan) for position in positions}
        self._send = send
        self.is_split = len(plan) > 1
        self._reset()

    def _reset(self) -> None:
        self._received: dict[int, torch.Tensor] = {}
        self._missing = [*map(len, self._plan), 1]  # a sentinel after the last bucket
        self._sent: list[tuple[Bucket, Any]] = []
        self._error: Exception | None = None

    def fits(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Return True if tensors, except the first, have the expected types and devices."""
        return [(tensor.dtype, tensor.device) for tensor in tensors] == [kind[1:] for kind in self._kinds[1:]]

    def put(self, position: int, tensor: torch.Tensor | None) -> None:
        """Add a tensor, and send full buckets; a tensor of an unexpected kind is left to `finish`, as are errors.

        Args:
            tensor: the tensor, which is no longer read once its bucket is sent.
        """
        if tensor is None or (tensor.shape, tensor.dtype, tensor.device) != self._kinds[position]:
            return
        self._received[position] = tensor
        self._missing[self._bucket_of[position]] -= 1
        try:
            while self._error is None and not self._missing[len(self._sent)]:
                self._send_next()
        except (RuntimeError, ValueError) as error:
            self._error = error

    def _send_next(self) -> None:
        positions = self._plan[len(self._sent)]
        bucket = Bucket([self._received.pop(position) for position in positions], positions)
        self._sent.append((bucket, self._send(bucket.flat)))

    def finish(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Send the remaining buckets, wait for all, and return the sums, which may share memory.

        Args:
            tensors: all tensors; those that `put` has sent are not read.
        """
        sent, error = self._sent, self._error
        try:
            if error is not None:
                raise error
            for positions in self._plan[len(sent) :]:
                self._received.update((position, tensors[position]) for position in positions)
                self._send_next()
            for _, work in sent:
                work.wait()
        finally:
            self._reset()
        return from_buckets([bucket for bucket, _ in sent], tensors)


# 2-bit compression, which carries the quantization error over to the next round

_KEYS = ("type", "threshold")


def quantize(gradient: torch.Tensor, residual: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return a gradient rounded to -threshold, 0 or threshold, which two bits encode.

    An element becomes the threshold that its sum with the residual reaches; the residual keeps the whole difference.

    Shape:
        gradient: any, of a floating type.
        residual: the same; written to.
        returns: the same.

    Args:
        threshold: a positive number.
    Source: Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing", 2015, as in MXNet
        1.9.1. Between processes, `pack` encodes each element in two bits.
    """
    residual += gradient
    sent = (residual >= threshold).to(residual.dtype).sub_((residual <= -threshold).to(residual.dtype))
    sent *= threshold
    residual -= sent
    return sent


def pack(sent: torch.Tensor) -> torch.Tensor:
    """Return a result of `quantize` in two bits per element: 0 for zero, 1 for positive, 2 for negative.

    Shape:
        sent: any.
        returns: (number of elements / 4, rounded up), of uint8.
    """
    flat = sent.reshape(-1)
    codes = (flat > 0).to(torch.uint8) + 2 * (flat < 0).to(torch.uint8)
    codes = torch.cat([codes, codes.new_zeros(-codes.numel() % 4)]).view(-1, 4)
    return codes[:, 0] | codes[:, 1] << 2 | codes[:, 2] << 4 | codes[:, 3] << 6


def unpack(packed: torch.Tensor, like: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return the tensor that `pack` encoded.

    Args:
        like: a tensor of the original shape and type.
    """
    codes = torch.stack([packed >> shift & 3 for shift in (0, 2, 4, 6)], 1).view(-1)[: like.numel()]
    values = (codes == 1).to(like.dtype) - (codes == 2).to(like.dtype)
    return (values * threshold).view(like.shape)


class Compression:
    """Compression of gradients before they are summed, with a residual for each device.

    Args:
        params: ``{"type": "2bit"}``, and optionally `threshold`, a positive number, 0.5 by default.

    Raises:
        ArgumentError: the type is missing or unknown, the threshold is not positive, or a key is unknown.
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
        """Return the quantized arrays of a key, and add the errors to the residuals.

        Args:
            arrays: one for each device, in the same order each time. Sparse arrays are not compressed, as in MXNet.

        Raises:
            DTypeError: an array does not have a floating type.
        """
        if any(array.stype != "default" for array in arrays):
            return list(arrays)
        return [
            NDArray(quantize(array.raw, self._residual(key, position, array), self.threshold), array.context)
            for position, array in enumerate(arrays)
        ]

    def state_dict(self) -> dict[str, list[Any]]:
        """Return the residuals by key and number of the device."""
        return {
            f"{key}@{position}": [key, position, NDArray(residual.cpu(), cpu())]
            for (key, position), residual in self._residuals.items()
        }

    def load_state_dict(self, state: Mapping[str, list[Any]]) -> None:
        """Restore a state of `state_dict`.

        Args:
            state: residuals, each with its key and the number of its device.
        """
        self._residuals = {
            (key, position): residual.raw.clone() for key, position, residual in state.values()
        }

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


def _positive(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not 0.0 < number < float("inf"):
        raise ArgumentError(f"compression_params: threshold is {value!r}, expected a positive number")
    return number
