"""Precision of float32 products on GPUs, and the memory layout of images that is fastest with it.

From NVIDIA's Ampere on, GPUs can round the factors of float32 products to TensorFloat-32, which has float32's range and
10 bits of mantissa, and are then several times faster. By default torch does so in convolutions and recurrent layers,
not in matrix products. `set_tf32` switches both. Environment variables do the same for a process; they are read at
import and the first that is set counts:

==================================================  =================================================
``DPMODULE_TF32=1``, ``=0``                         on, off
``MXNET_CUDA_ALLOW_TENSOR_CORE=0``                  off
``MXNET_CUDA_TENSOR_OP_MATH_ALLOW_CONVERSION=1``    on; ``=0`` is MXNet's default and changes nothing
==================================================  =================================================

Without any of them torch's settings stay as they are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch

from ..base import ArgumentError

_WORDS = {"0": False, "1": True}


def set_tf32(active: bool) -> bool:
    """Choose whether GPUs may round the factors of float32 products to TensorFloat-32.

    Args:
        active: True to allow it in matrix products, convolutions and recurrent layers of the process.

    Returns:
        True if all of them were allowed to before.

    Example:
        >>> before = set_tf32(True)
        >>> set_tf32(before)
        True
    """
    before = is_tf32()
    backends: Any = torch.backends  # its attributes have no types
    backends.cuda.matmul.allow_tf32 = bool(active)
    backends.cudnn.allow_tf32 = bool(active)
    return before


def is_tf32() -> bool:
    """Return True if GPUs may round the factors of all float32 products to TensorFloat-32."""
    return _in_products() and _in_convolutions()


def _in_products() -> bool:
    matmul: Any = torch.backends.cuda.matmul
    try:
        return bool(matmul.allow_tf32)
    except RuntimeError:  # torch refuses the old name after its newer names were used
        return bool(matmul.fp32_precision == "tf32")


def _in_convolutions() -> bool:
    cudnn: Any = torch.backends.cudnn
    try:
        return bool(cudnn.allow_tf32)
    except RuntimeError:
        return bool(cudnn.conv.fp32_precision == "tf32")


@cache
def _generation(device: torch.device) -> int:
    """Return the first number of a GPU's compute capability: 7 for Volta, 8 for Ampere, 9 for Hopper."""
    return torch.cuda.get_device_capability(device)[0]


def prefers_channels_last(x: torch.Tensor, dtype: torch.dtype) -> bool:
    """Return True if convolutions of a tensor, converted to a type, are faster with channels innermost in memory.

    On the CPU they always are. A GPU's tensor cores only read that layout; other layouts are converted around every
    convolution. Without tensor cores, the default layout has the faster kernels.

    Args:
        x: data or weight of a convolution.
    Source: NVIDIA, "Deep Learning Performance: Convolutional Layers User's Guide", section on tensor layouts; torch's
    tutorial "Channels last memory format".
    """
    if not x.is_cuda:
        return True
    if dtype is torch.float16:
        return _generation(x.device) >= 7
    if dtype is torch.bfloat16:
        return _generation(x.device) >= 8
    return dtype is torch.float32 and _generation(x.device) >= 8 and _in_convolutions()


def tf32_from_environment(environment: Mapping[str, str]) -> bool | None:
    """Return the setting of the environment variables, None if none is set."""
    own = environment.get("DPMODULE_TF32", "")
    if own:
        if own not in _WORDS:
            raise ArgumentError(f"DPMODULE_TF32 is {own!r}, expected 0 or 1")
        return _WORDS[own]
    if environment.get("MXNET_CUDA_ALLOW_TENSOR_CORE") == "0":
        return False
    return True if environment.get("MXNET_CUDA_TENSOR_OP_MATH_ALLOW_CONVERSION") == "1" else None


_asked = tf32_from_environment(os.environ)
if _asked is not None:
    set_tf32(_asked)
