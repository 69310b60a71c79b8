"""Gradients in two bits per element, with what is lost carried over to the next round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..base import ArgumentError, DTypeError
from ..context import cpu
from ..ndarray import NDArray

if TYPE_CHECKING:
    from .keys import Key

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
