"""Batch results that stay on their devices until somebody asks for the number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..base import ShapeError
from ..ndarray import NDArray
from ..staging import on_device

__all__ = ["Tally", "aligned", "pairs", "tensor_of"]

_PACK_AT = 256


class Tally:
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


def tensor_of(value: Any) -> torch.Tensor:
    """Return the tensor of an NDArray, a torch tensor, or anything that NumPy takes; without copying the first two."""
    if isinstance(value, NDArray):
        return value.raw
    if isinstance(value, torch.Tensor):
        return value.detach()
    array = np.asarray(value)
    return torch.from_numpy(np.array(array) if not array.flags.writeable else array)


def pairs(labels: Any, preds: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return (label, prediction) tensors of one batch, on the predictions' devices.

    Args:
        labels: a list of arrays, or one array.
        preds: a list of as many arrays, or one array.

    Raises:
        ShapeError: the lists differ in length.
    """
    found_labels, found_preds = _listed(labels), _listed(preds)
    if len(found_labels) != len(found_preds):
        hint = "" if found_labels else "; the batches have no labels: give the iterator or loader some"
        raise ShapeError(f"got {len(found_labels)} labels for {len(found_preds)} predictions{hint}")
    found = []
    for label, pred in zip(found_labels, found_preds):
        target, guess = tensor_of(label), tensor_of(pred)
        found.append((target if target.device == guess.device else on_device(target, guess.device), guess))
    return found


def _listed(values: Any) -> Sequence[Any]:
    return values if isinstance(values, (list, tuple)) else [values]


def aligned(metric: str, label: torch.Tensor, pred: torch.Tensor) -> None:
    """Check that there are as many labels as predictions.

    Raises:
        ShapeError: there are not.
    """
    if label.numel() != pred.numel():
        raise ShapeError(
            f"{metric}: label of shape {tuple(label.shape)} does not match predictions of shape {tuple(pred.shape)}"
        )
