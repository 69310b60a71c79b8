"""Asynchronous copies between the host and a GPU.

A plain copy from pageable memory blocks Python until the GPU has finished all earlier work, so the GPU is idle while
the next batch is prepared. Here the batch is first copied into page-locked memory, which takes microseconds, and the
GPU fetches it from there in its stream. The caller may change the batch immediately, as MXNet's engine promises. torch
reuses the page-locked block only after the GPU has read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..context import gpu_module, is_gpu


def _locked(source: torch.Tensor) -> torch.Tensor:
    """Return a copy in page-locked memory, even of a tensor in such memory: its owner may write it too early."""
    return torch.empty(source.shape, dtype=source.dtype, pin_memory=True).copy_(source)


def _crosses(source: torch.Tensor, device: torch.device) -> bool:
    return is_gpu(device) and source.is_cpu


def on_device(source: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor on a device; a host tensor may be changed as soon as this returns."""
    return _locked(source).to(device, non_blocking=True) if _crosses(source, device) else source.to(device)


def send(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy a tensor into another of its shape, which may have another device and type.

    Args:
        source: may be changed as soon as this returns. It is converted after the transfer, so images are sent as bytes.
    """
    if not _crosses(source, target.device):
        target.copy_(source)
    elif source.dtype == target.dtype:
        target.copy_(_locked(source), non_blocking=True)
    else:
        target.copy_(on_device(source, target.device))


def tensor_like(like: torch.Tensor, values: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return numbers as a tensor on the device of `like`, without waiting for that device.

    Shape:
        returns: () for one number, else (n,).
    """
    made = torch.tensor(values, dtype=dtype or like.dtype)
    return made if like.is_cpu else on_device(made, like.device)


def extremes(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the least and the greatest integer of a tensor, reading from its device once.

    Shape:
        tensor: any, but not empty.
    """
    least, greatest = torch.aminmax(tensor)
    if tensor.is_cpu:
        return int(least), int(greatest)
    found = torch.stack((least, greatest)).tolist()
    return found[0], found[1]


class HostCopy:
    """A copy of a tensor in host memory that becomes ready when the device reaches it.

    Args:
        source: tensor to copy, as it is after all work already queued on its device.
    """

    __slots__ = ("_event", "_target")

    def __init__(self, source: torch.Tensor) -> None:
        self._event = None
        if not is_gpu(source.device):
            self._target = source.to("cpu", copy=True)
            return
        self._target = _asked_for(source)
        self._event = _event_of(source.device)

    def is_ready(self) -> bool:
        """Return True if `numbers` would return without waiting."""
        return self._event is None or bool(self._event.query())

    def numbers(self) -> list[float]:
        """Return the numbers; wait for them if necessary.

        Shape:
            returns: as long as the source, which has one axis.
        """
        if self._event is not None:
            self._event.synchronize()
        found: list[float] = self._target.tolist()
        return found


def to_host(sources: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return copies of GPU tensors in host memory; wait once for each GPU.

    Shape:
        returns: each as its source.
    """
    found = [_asked_for(source) for source in sources]
    for device in dict.fromkeys(source.device for source in sources):
        _event_of(device).synchronize()
    return found


def _asked_for(source: torch.Tensor) -> torch.Tensor:
    target = torch.empty(source.shape, dtype=source.dtype, pin_memory=True)
    return target.copy_(source, non_blocking=True)


def _event_of(device: torch.device) -> Any:
    """Return an event that completes after all work queued on a device."""
    event = gpu_module().Event()
    event.record(gpu_module().current_stream(device))
    return event
