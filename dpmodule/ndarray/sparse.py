"""Sparse arrays, and the operators named ``_sparse_*`` as functions of arrays: ``nd.sparse.dot``."""

from __future__ import annotations

from functools import partial

from .._core import lazy
from .csr import CSRNDArray
from .op_functions import names_in, op_function_in
from .ragged import RaggedNDArray
from .row_sparse import RowSparseNDArray
from .sparse_base import BaseSparseNDArray
from .sparse_creation import (
    add,
    array,
    cast_storage,
    csr_matrix,
    divide,
    empty,
    multiply,
    row_sparse_array,
    subtract,
    zeros,
)

__all__ = [
    "BaseSparseNDArray",
    "CSRNDArray",
    "RaggedNDArray",
    "RowSparseNDArray",
    "add",
    "array",
    "cast_storage",
    "csr_matrix",
    "divide",
    "empty",
    "multiply",
    "row_sparse_array",
    "subtract",
    "zeros",
]

__getattr__, __dir__ = lazy.attributes(
    __name__, __all__, otherwise=partial(op_function_in, "sparse"), operators=partial(names_in, "sparse")
)
