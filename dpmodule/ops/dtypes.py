"""Element types by name, and rounding to single precision."""

from __future__ import annotations

import numpy as np
import torch

from ..base import DTypeError

HALF = (torch.float16, torch.bfloat16)
"""16-bit floating types, for which torch lacks some kernels."""

_TORCH = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "uint8": torch.uint8,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "bool": torch.bool,
    "uint16": torch.uint16,
    "uint32": torch.uint32,
    "uint64": torch.uint64,
}
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
