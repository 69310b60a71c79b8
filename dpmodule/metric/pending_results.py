"""Batch results that stay on their devices until somebody asks for the number."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

_PACK_AT = 256


class PendingResults:
    """Small tensors, one or a few numbers each, collected without waiting for the device.

    Reading one number from a GPU stops Python until all queued work is done; so results are kept as they are, packed
    now and then into fewer tensors, and copied to the host by `drain` only.
    """

    __slots__ = ("_packed", "_single")

    def __init__(self) -> None:
        self._single: list[torch.Tensor] = []
        self._packed: list[torch.Tensor] = []

    def add(self, result: torch.Tensor) -> None:
        """Keep a result: a tensor without axes, or with one axis that is equally long every time."""
        self._single.append(result)
        if len(self._single) >= _PACK_AT:
            self._pack()

    def clear(self) -> None:
        """Forget what was added."""
        self._single.clear()
        self._packed.clear()

    def drain(self) -> np.ndarray[Any, Any] | None:
        """Return what was added since the last call, one float64 row per result, or None without any."""
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
        self._packed += [torch.stack(alike).reshape(len(alike), -1) for alike in kinds.values()]
        self._single.clear()

    def __getstate__(self) -> list[torch.Tensor]:
        self._pack()
        return [part.cpu() for part in self._packed]

    def __setstate__(self, packed: list[torch.Tensor]) -> None:
        self._single, self._packed = [], list(packed)


class PendingSum(PendingResults):
    """Tensors of many counts, added up without waiting for the device; `drain` gives one row, their sum."""

    __slots__ = ()

    def add(self, result: torch.Tensor) -> None:
        if self._packed:
            self._packed[0] += result.to(self._packed[0].device)
        else:
            self._packed.append(result.unsqueeze(0).clone())
