"""Gluon's helpers for training loops of modules: clipping by the global norm, splitting batches, checksums, shapes."""

from __future__ import annotations

import hashlib
import itertools
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from .. import ndarray as nd
from .._core import lazy, mode
from ..base import ArgumentError, ShapeError
from ..context import Context
from ..ndarray import NDArray
from .names_left_out import left_out_getattr, names_of

__all__ = [
    "check_sha1",
    "clip_global_norm",
    "shape_is_known",
    "split_and_load",
    "split_data",
    *names_of("utils"),
]

__getattr__, __dir__ = lazy.attributes(__name__, __all__, otherwise=left_out_getattr("gluon.utils"))

_TINY = 1e-8
_BLOCK_BYTES = 1 << 20


def clip_global_norm(
    arrays: Sequence[NDArray], max_norm: float, check_isfinite: bool = True
) -> float | NDArray:
    """Scale arrays in place so that the 2-norm of all together is at most `max_norm`.

    Args:
        check_isfinite: True to warn if the norm is NaN or infinite.

    Returns:
        The norm before scaling; an array of shape (1,) without `check_isfinite`.
    """
    if not arrays:
        raise ArgumentError("clip_global_norm: arrays is empty, expected at least one array")
    first = arrays[0].context
    squares = [nd.norm(array).square().as_in_context(first) for array in arrays]
    total = nd.sqrt(nd.add_n(*squares)) if len(squares) > 1 else nd.sqrt(squares[0])
    norm = float(total.asscalar()) if check_isfinite else math.nan
    if check_isfinite and not math.isfinite(norm):
        warnings.warn(f"clip_global_norm: the norm is {norm}, so clipping has no use", stacklevel=2)
    scale = nd.minimum(max_norm / (total + _TINY), 1.0)
    for array in arrays:
        array *= scale.as_in_context(array.context)
    return norm if check_isfinite else total


def split_data(data: NDArray, num_slice: int, batch_axis: int = 0, even_split: bool = True) -> list[NDArray]:
    """Split an array into slices along an axis.

    Args:
        batch_axis: the axis.
        even_split: True to require slices of one size; otherwise the first ones take one more of the remainder each.

    Raises:
        ShapeError: the axis does not split evenly.
    """
    size = data.shape[batch_axis]
    step, rest = divmod(size, num_slice)
    if even_split and rest:
        raise ShapeError(
            f"split_data: axis {batch_axis} of shape {data.shape} cannot be split into {num_slice} equal slices; "
            "even_split=False allows uneven ones"
        )
    ends = list(itertools.accumulate(step + (k < rest) for k in range(num_slice)))
    if batch_axis == 0:
        return [data[begin:end] for begin, end in zip([0, *ends], ends)]
    return [data.slice_axis(axis=batch_axis, begin=begin, end=end) for begin, end in zip([0, *ends], ends)]


def split_and_load(
    data: Any, ctx_list: Sequence[Context], batch_axis: int = 0, even_split: bool = True
) -> list[NDArray]:
    """Split an array into a slice for each context, and copy each to its context.

    Args:
        batch_axis: the axis to split along.
    """
    if isinstance(data, torch.Tensor):
        data = NDArray(data.detach(), ctx_list[0])
    array = data if isinstance(data, NDArray) else nd.array(data, ctx=ctx_list[0])
    slices = split_data(array, len(ctx_list), batch_axis, even_split)
    return [one.as_in_context(ctx) for one, ctx in zip(slices, ctx_list)]


def check_sha1(filename: str, sha1_hash: str) -> bool:
    """Return True if a file has this SHA-1 sum, in hexadecimal digits."""
    digest = hashlib.sha1(usedforsecurity=False)
    with Path(filename).open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest() == sha1_hash


def shape_is_known(shape: Sequence[int] | None) -> bool:
    """Return True if a shape has no unknown size: -1 with `util.np_shape`, else 0."""
    if shape is None:
        return False
    if mode.is_np_shape():
        return -1 not in shape
    return len(shape) > 0 and 0 not in shape
