"""Numbers on their way from a GPU to the host, for which nobody waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..context import gpu_module, is_gpu


class HostCopy:
    """A copy of a tensor in the host's memory, which may be read once the device has got there.

    Args:
        source: what is copied, as it is when work that its device has been told before is done.
    """

    __slots__ = ("_event", "_target")

    def __init__(self, source: torch.Tensor) -> None:
        self._event = None
        if not is_gpu(source.device):
            self._target = source.to("cpu", copy=True)
            return
        self._target = _asked_for(source)
        self._event = _event_of(source.device)

    def is_there(self) -> bool:
        """Say whether `numbers` would return at once."""
        return self._event is None or bool(self._event.query())

    def numbers(self) -> list[float]:
        """Return the numbers; waits for them where they are not there.

        Shape:
            returns: as long as the source, which has one axis.
        """
        if self._event is not None:
            self._event.synchronize()
        found: list[float] = self._target.tolist()
        return found


def fetched(sources: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return copies of a GPU's tensors in the host's memory; waits for each GPU once.

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
    """Return an event that comes to pass when a device has done what it has been told."""
    event = gpu_module().Event()
    event.record(gpu_module().current_stream(device))
    return event
