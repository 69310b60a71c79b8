"""Checks whether torch traces or compiles the running code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_jit: Any = torch.jit
is_jit_tracing: Callable[[], bool] = _jit.is_tracing
"""Return True during `torch.jit.trace`, which records a `torch.autograd.Function` as a Python call."""


def is_tracing() -> bool:
    """Return True during `torch.compile`, `torch.export` or `torch.jit.trace`.

    They only know torch's own operators, and sizes may be symbolic: our own kernels must not run then.
    """
    return torch.compiler.is_compiling() or is_jit_tracing()
