"""Timing of the phases of training, and deterministic algorithms."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.deterministic

from ..base import MXNetError
from ..context import gpu_module, is_gpu

if TYPE_CHECKING:
    from .protocol import Trainable


class PhaseTimer:
    """Context manager that adds up the seconds spent in its blocks."""

    __slots__ = ("_begun", "_devices", "seconds", "times")

    def __init__(self, devices: list[torch.device]) -> None:
        self.seconds = self._begun = 0.0
        self.times = 0
        self._devices = devices

    def __enter__(self) -> None:
        self._begun = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        for device in self._devices:
            gpu_module().synchronize(device)
        self.seconds += time.perf_counter() - self._begun
        self.times += 1


class StepTimer:
    """Measures how long training waits for data, computes (forward and backward), and updates.

    Attributes:
        compute: forward and backward, or a user-defined training step.
    """

    def __init__(self, module: Trainable, active: bool) -> None:
        devices = _gpus(module) if active else []
        self._parts = {name: PhaseTimer(devices) for name in ("data", "compute", "update") if active}
        self.data, self.compute, self.update = (
            self._parts.get(name, nullcontext()) for name in ("data", "compute", "update")
        )

    def lines(self, whole: float) -> list[str]:
        """Return the table of an epoch, empty if nothing was measured, and reset the timers.

        Args:
            whole: seconds of the epoch.
        """
        lines = []
        for name, phase in self._parts.items():
            share = 100 * phase.seconds / whole if whole else 0.0
            each = 1e3 * phase.seconds / phase.times if phase.times else 0.0
            lines.append(
                f"{name:<8}{phase.seconds:10.3f} s {share:6.1f} %{each:12.3f} ms each of {phase.times}"
            )
            phase.seconds, phase.times = 0.0, 0
        return lines


def _gpus(module: Any) -> list[torch.device]:
    """Return the GPUs that a module is on."""
    try:
        contexts = [context for store in module.stores() for context in store.contexts]
    except (MXNetError, AttributeError, NotImplementedError):  # a user-defined module
        return []
    devices = dict.fromkeys(context.torch_device for context in contexts)
    return [device for device in devices if is_gpu(device)]


@contextmanager
def deterministic_algorithms(active: bool) -> Iterator[None]:
    """Use deterministic algorithms within the block."""
    if not active:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it torch refuses products on GPUs
    backend: Any = torch.backends.cudnn
    memory: Any = torch.utils.deterministic
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        backend.benchmark,
        memory.fill_uninitialized_memory,
    )
    torch.use_deterministic_algorithms(True)
    # cuDNN's benchmark mode does not always choose the same kernel; memory is never read uninitialized here
    backend.benchmark = memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        backend.benchmark, memory.fill_uninitialized_memory = before[2:]
