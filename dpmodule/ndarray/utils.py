"""MXNet's import path of functions that create arrays of any storage type, load and save them (`mx.nd.utils`).

Source: MXNet 1.9.1 `ndarray.utils`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._core import lazy
from . import creation, sparse_creation
from .creation import empty as empty
from .creation import zeros as zeros
from .ndarray import NDArray
from .serial import load as load
from .serial import load_frombuffer as load_frombuffer
from .serial import save as save
from .sparse_base import BaseSparseNDArray

if TYPE_CHECKING:
    from ..types import ArrayLike, ContextLike, DTypeLike

__all__ = ["array", "empty", "load", "load_frombuffer", "save", "zeros"]

lazy.publish(__name__, __all__)


def array(source_array: ArrayLike, ctx: ContextLike | None = None, dtype: DTypeLike = None) -> NDArray:
    """Return an array of the storage type of its source: sparse for sparse arrays and SciPy matrices, else dense.

    Args:
        source_array: an NDArray, SciPy matrix, NumPy array or nested list.
        ctx: context of the result; None means the current context.
        dtype: element type; None as in `nd.array`.
    """
    sparse = isinstance(source_array, BaseSparseNDArray) or type(source_array).__module__.startswith("scipy.")
    made: NDArray = (sparse_creation if sparse else creation).array(source_array, ctx, dtype)
    return made
