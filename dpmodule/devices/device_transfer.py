"""Copies of a batch to a GPU that nobody waits for.

A plain copy from ordinary memory makes Python wait until the GPU has done everything it was asked to do before, so that
it stands idle while the next batch is prepared. Here the batch is first copied into page-locked memory, which takes the
host microseconds, and from there the GPU fetches it itself, in its stream. The caller may change the batch at once, as
MXNet's engine promises. torch lends the page-locked block out again only when the GPU has read it.
"""

from __future__ import annotations

from typing import Any

import torch

from ..context import is_gpu


def _locked(source: torch.Tensor) -> torch.Tensor:
    """Return a copy in page-locked memory, also of what is in such memory: its owner may write it too early."""
    return torch.empty(source.shape, dtype=source.dtype, pin_memory=True).copy_(source)


def _crosses(source: torch.Tensor, device: torch.device) -> bool:
    return is_gpu(device) and source.is_cpu


def on_device(source: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor on a device; one of the host may be changed as soon as this returns."""
    return _locked(source).to(device, non_blocking=True) if _crosses(source, device) else source.to(device)


def send(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy a tensor into another of its shape, which may lie on another device and be of another type.

    Args:
        source: may be changed as soon as this returns. Its own type crosses to a GPU, so bytes of pictures stay bytes
            on the way.
    """
    if not _crosses(source, target.device):
        target.copy_(source)
    elif source.dtype == target.dtype:
        target.copy_(_locked(source), non_blocking=True)
    else:
        target.copy_(on_device(source, target.device))


def beside(like: torch.Tensor, values: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return numbers of the host as a tensor on the device of another one, without waiting for that device.

    Shape:
        returns: (), or as long as there are numbers.
    """
    made = torch.tensor(values, dtype=dtype or like.dtype)
    return made if like.is_cpu else on_device(made, like.device)


def extremes(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the least and the greatest of some integers, reading from their device once.

    Shape:
        tensor: any, but not empty.
    """
    least, greatest = torch.aminmax(tensor)
    if tensor.is_cpu:
        return int(least), int(greatest)
    found = torch.stack((least, greatest)).tolist()
    return found[0], found[1]
