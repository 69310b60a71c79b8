"""`CPUPlace`: where programs run."""

from __future__ import annotations

from typing import Any

from ..base import DeviceError
from ..compat import lazy
from ..context import Context, cpu

__all__ = ["CPUPlace", "context_of"]

lazy.publish(__name__, __all__)


class CPUPlace:
    """The CPU, the only place that programs of this package run at."""

    def __repr__(self) -> str:
        return "CPUPlace"


def context_of(place: Any) -> Context:
    """Return the context of a place; that of the CPU without one."""
    is_cpu = place is None or isinstance(place, CPUPlace)
    if not is_cpu and not (isinstance(place, Context) and place.device_type == "cpu"):
        raise DeviceError(
            f"place is {place!r}, expected CPUPlace(); on GPUs run the program's symbol in a Module"
        )
    return cpu()
