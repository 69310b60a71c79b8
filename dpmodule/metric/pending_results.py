"""Batch results that stay on their devices until they are needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

_PACK_AT = 256


class PendingResults:
    """Small tensors collected without waiting for the device.

    Reading a number from a GPU blocks Python until all queued work is done. Results are therefore kept as tensors,
    which are occasionally packed, and only `drain` copies them to the host.
    """

    __slots__ = ("_packed", "_single")

    def __init__(self) -> None:
        self._single: list[torch.Tensor] = []
        self._packed: list[torch.Tensor] = []

    def add(self, result: torch.Tensor) -> None:
        """Add a result: a 0-d tensor, or a 1-d tensor of constant length."""
        self._single.append(result)
        if len(self._single) >= _PACK_AT:
            self._pack()

    def clear(self) -> None:
        """Discard all results."""
        self._single.clear()
        self._packed.clear()

    def drain(self) -> np.ndarray[Any, Any] | None:
        """Return the results since the last call, one float64 row each, or None."""
        if not self._single and not self._packed:
            return None
        self._pack()
        rows = np.concatenate([part.to("cpu", torch.float64).numpy() for part in self._packed])
        self._packed.clear()
        return rows

    def _pack(self) -> None:
        kinds: dict[Any, list[torch.Tensor]] = {}
        for result in self._single:
            kinds.setdefault((result.device, result.dtype), []).append(result)
        self._packed += [torch.stack(results).reshape(len(results), -1) for results in kinds.values()]
        self._single.clear()

    def __getstate__(self) -> list[torch.Tensor]:
        self._pack()
        return [part.cpu() for part in self._packed]

    def __setstate__(self, packed: list[torch.Tensor]) -> None:
        self._single, self._packed = [], list(packed)


class PendingSum(PendingResults):
    """Sum of tensors, accumulated without waiting for the device; `drain` returns one row."""

    __slots__ = ()

    def add(self, result: torch.Tensor) -> None:
        if self._packed:
            self._packed[0] += result.to(self._packed[0].device)
        else:
            self._packed.append(result.unsqueeze(0).clone())
