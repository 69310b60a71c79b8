"""Element types by name, and rounding to single precision."""

from __future__ import annotations

import numpy as np
import torch

from ..base import DTYPES, DTypeError

HALF = (torch.float16, torch.bfloat16)
"""16-bit floating types, for which torch lacks some kernels."""

_TORCH: dict[str, torch.dtype] = {name: getattr(torch, name) for name in DTYPES}
_NAMES = {value: key for key, value in _TORCH.items()}


def torch_dtype(name: str) -> torch.dtype:
    """Return the torch dtype of a name from `base.dtype_name`."""
    return _TORCH[name]


def name_of(dtype: torch.dtype) -> str:
    """Return the name of a torch dtype."""
    name = _NAMES.get(dtype)
    if name is None:
        raise DTypeError(
            f"{dtype} has no counterpart in MXNet; convert the tensor to one of {', '.join(_TORCH)}"
        )
    return name


def as_float32(value: float) -> float:
    """Round to single precision, in which MXNet stores attributes: 1 - 0.999 then differs by 1e-5."""
    return float(np.float32(value))
