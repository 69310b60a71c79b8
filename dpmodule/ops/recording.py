"""Whether torch records what runs."""

from __future__ import annotations

import torch

__all__ = ["is_recorded"]


def is_recorded() -> bool:
    """Say whether `torch.compile`, `torch.export` or `torch.jit.trace` is at work.

    They see torch's own operators only, and the sizes may be unknown to them: kernels of our own stay out then.
    """
    return torch.compiler.is_compiling() or torch.jit.is_tracing()
