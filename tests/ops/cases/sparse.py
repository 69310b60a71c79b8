"""Operators about sparse arrays, on dense values."""

import numpy as np

from helpers.arrays import f8
from helpers.op_case import OpCase

RNG = np.random.RandomState(11)
X, TABLE = RNG.uniform(0.5, 2, (4, 3)), RNG.uniform(-1, 1, (5, 2, 3))
LOOKUP = {"input_dim": 4, "output_dim": 3, "dtype": "float64"}
KEPT, PLACES = f8([0, 1, 0, 0, 1]).reshape(5, 1, 1), f8([[0, 3], [3, 1.5]])
CASES = [
    OpCase("cast_storage", (X,), {"stype": "csr"}, lambda x: x),
    OpCase("cast_storage", (X,), {"stype": "default"}, lambda x: x),
    OpCase("_sparse_retain", (TABLE, f8([4, 1, 4])), {}, lambda x, rows: x * KEPT, grad=(0,)),
    OpCase("_square_sum", (X,), {"axis": 0, "keepdims": True}, lambda x: (x**2).sum(0, keepdims=True)),
    OpCase("_square_sum", (X,), {"axis": 0, "exclude": True}, lambda x: (x**2).sum(1)),
    OpCase("_square_sum", (X,), {}, lambda x: (x**2).sum().reshape(1)),
    OpCase("_scatter_plus_scalar", (X,), {"scalar": 2.5}, lambda x: x + 2.5),
    OpCase("_scatter_minus_scalar", (X,), {"scalar": 2.5}, lambda x: x - 2.5),
    OpCase("_scatter_elemwise_div", (X, X[::-1].copy()), {}, lambda x, y: x / y),
    OpCase("_contrib_SparseEmbedding", (PLACES, X), LOOKUP, lambda i, w: w[i.astype(int)], grad=(1,)),
]
