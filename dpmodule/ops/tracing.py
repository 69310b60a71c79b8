"""Whether torch records what runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_jit: Any = torch.jit
is_jit_tracing: Callable[[], bool] = _jit.is_tracing
"""Return True if `torch.jit.trace` is at work, which records a `torch.autograd.Function` as a call of Python."""


def is_tracing() -> bool:
    """Return True if `torch.compile`, `torch.export` or `torch.jit.trace` is at work.

    They see torch's own operators only, and the sizes may be unknown to them: kernels of our own stay out then.
    """
    return torch.compiler.is_compiling() or is_jit_tracing()
