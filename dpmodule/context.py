"""Devices: `Context`, `cpu()`, `gpu()` and the current context."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Any, ClassVar

import torch

from ._core import lazy
from .base import ArgumentError, DeviceError, UnknownNameError

__all__ = [
    "Context",
    "context_of",
    "cpu",
    "cpu_pinned",
    "current_context",
    "gpu",
    "gpu_memory_info",
    "num_gpus",
    "set_current_context",
]

lazy.publish(__name__, __all__)

_GPU_TYPE = os.environ.get("DPMODULE_GPU_TYPE") or "cuda"
"""torch's device type of "gpu" contexts."""


class _Default(type):
    """Metaclass that defines MXNet's class attribute `Context.default_ctx`, one per thread."""

    @property
    def default_ctx(cls) -> Context:
        """The context that `current_context` returns in this thread; may be set."""
        return current_context()

    @default_ctx.setter
    def default_ctx(cls, ctx: Context) -> None:
        set_current_context(ctx)


class Context(metaclass=_Default):
    """A device: a type and a number.

    Two CPU contexts share the machine's memory but are distinct devices: parameters bound to ``cpu(0)`` and
    ``cpu(1)`` are two copies, as on two GPUs. In a ``with`` statement, a Context becomes the default for arrays
    created inside.

    Args:
        device_type: "cpu", "gpu", "cpu_pinned" or "cpu_shared", or another Context or torch device to take both from.
        device_id: number of the device, from 0.

    Raises:
        UnknownNameError: unknown device type.
        ArgumentError: negative number.
        DeviceError: it is a GPU, and DPMODULE_GPU_TYPE is not a device type of torch.
    """

    __slots__ = ("_outer", "device_id", "device_typeid", "torch_device")

    device_id: int

    devtype2str: ClassVar[dict[int, str]] = {1: "cpu", 2: "gpu", 3: "cpu_pinned", 5: "cpu_shared"}
    devstr2type: ClassVar[dict[str, int]] = {"cpu": 1, "gpu": 2, "cpu_pinned": 3, "cpu_shared": 5}
    _scope: ClassVar[threading.local] = threading.local()
    _cpu_without_gpu: ClassVar[bool] = False

    def __init__(self, device_type: str | Context | torch.device, device_id: int = 0) -> None:
        if isinstance(device_type, Context):
            other: Context = device_type
            device_type, device_id = other.device_type, other.device_id
        elif isinstance(device_type, torch.device):
            device: torch.device = device_type
            device_type, device_id = _TORCH.get(device.type, device.type), device.index or 0
        if device_type not in self.devstr2type:
            raise UnknownNameError(
                f"unknown device type {device_type!r}; expected one of {', '.join(self.devstr2type)}"
            )
        if device_type == "gpu" and self._cpu_without_gpu and not num_gpus():
            device_type = "cpu"
        if int(device_id) < 0:
            raise ArgumentError(f"device_id is {device_id}, expected a number from 0")
        self.device_typeid = self.devstr2type[device_type]
        self.device_id = int(device_id)
        self.torch_device = _gpu(self.device_id) if device_type == "gpu" else torch.device("cpu")
        self._outer: list[Context] = []

    @property
    def device_type(self) -> str:
        """Name of the device type, such as "cpu"."""
        return self.devtype2str[self.device_typeid]

    def check(self) -> Context:
        """Return this context if its device exists.

        Raises:
            DeviceError: it is a GPU that torch does not see.
        """
        if self.device_type == "gpu" and self.device_id >= num_gpus():
            raise DeviceError(
                f"{self} does not exist: torch sees {num_gpus()} GPUs here; use cpu() or a smaller device_id, or run "
                "the program by python -m dpmodule --cpu"
            )
        return self

    @classmethod
    def use_cpu_without_gpu(cls) -> None:
        """Make "gpu" contexts of this process CPU contexts if the machine has no GPU."""
        cls._cpu_without_gpu = True

    def empty_cache(self) -> None:
        """Release cached GPU memory that is unused."""
        if self.device_type == "gpu":
            gpu_module().empty_cache()

    def __hash__(self) -> int:
        return hash((self.device_typeid, self.device_id))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Context)
            and self.device_typeid == other.device_typeid
            and self.device_id == other.device_id
        )

    def __repr__(self) -> str:
        return f"{self.device_type}({self.device_id})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Context, (self.device_type, self.device_id)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a context pickled by MXNet.

        Args:
            state: numbers of the device type and of the device.
        """
        made = Context(self.devtype2str[state["device_typeid"]], state["device_id"])
        self.device_typeid, self.device_id = made.device_typeid, made.device_id
        self.torch_device, self._outer = made.torch_device, []

    def __enter__(self) -> Context:
        self._outer.append(current_context())
        self._scope.current = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scope.current = self._outer.pop()


def cpu(device_id: int = 0) -> Context:
    """Return the CPU context `device_id`.

    Args:
        device_id: number of the context; all CPU contexts share the machine's cores.
    """
    return Context("cpu", device_id)


def gpu(device_id: int = 0) -> Context:
    """Return the context of GPU `device_id`.

    Args:
        device_id: number of the GPU, counted from 0.
    """
    return Context("gpu", device_id)


def cpu_pinned(device_id: int = 0) -> Context:
    """Return a CPU context whose memory is page-locked, for faster copies to a GPU.

    Args:
        device_id: number of the context; all CPU contexts share the machine's cores.
    """
    return Context("cpu_pinned", device_id)


def num_gpus() -> int:
    """Return the number of GPUs that torch sees."""
    module = gpu_module()
    return int(module.device_count()) if module.is_available() else 0


def _gpu(device_id: int) -> torch.device:
    try:
        return torch.device(_GPU_TYPE, device_id)
    except RuntimeError as error:
        raise _unknown_type() from error


def gpu_module() -> Any:
    """Return torch's module for GPUs, such as `torch.cuda`."""
    try:
        return torch.get_device_module(_GPU_TYPE)
    except RuntimeError as error:
        raise _unknown_type() from error


def _unknown_type() -> DeviceError:
    return DeviceError(
        f"DPMODULE_GPU_TYPE is {_GPU_TYPE!r}, which is not a device type of torch; "
        "unset it, or first import the package that adds it"
    )


def is_gpu(device: torch.device) -> bool:
    """Return True if a torch device has the type of "gpu" contexts."""
    return device.type == _GPU_TYPE


def gpu_memory_info(device_id: int = 0) -> tuple[int, int]:
    """Return (free, total) memory of a GPU in bytes.

    Args:
        device_id: number of the GPU, counted from 0.

    Raises:
        DeviceError: there is no such GPU.
    """
    gpu(device_id).check()
    free, total = gpu_module().mem_get_info(device_id)
    return free, total


_TORCH = {_GPU_TYPE: "gpu"}
"""MXNet's names of torch's device types, if they differ."""

_DEFAULT = Context("cpu", 0)


def context_of(ctx: Any) -> Context:
    """Return a Context as it is, or the Context of a torch device; the device need not exist.

    Args:
        ctx: such as ``mx.cpu(0)`` or ``torch.device("cpu")``.

    Raises:
        ArgumentError: it is neither.
    """
    if isinstance(ctx, torch.device):
        return Context(ctx)
    if not isinstance(ctx, Context):
        raise ArgumentError(f"ctx is {ctx!r}, expected a Context such as mx.cpu(), or a torch.device")
    return ctx


def current_context() -> Context:
    """Return the context of the innermost ``with`` block of this thread, cpu(0) outside any."""
    return getattr(Context._scope, "current", _DEFAULT)


def set_current_context(ctx: Context) -> None:
    """Make `ctx` the context that `current_context` returns in this thread.

    Inside a ``with`` block of a Context this lasts until the block ends.

    Args:
        ctx: the new default of everything that takes a context.
    """
    Context._scope.current = ctx
