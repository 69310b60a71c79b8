"""Operators about sparse arrays, on dense values."""

import numpy as np

from helpers.op_case import OpCase

RNG = np.random.RandomState(11)
X = RNG.uniform(0.5, 2, (4, 3))
TABLE = RNG.uniform(-1, 1, (5, 2, 3))

CASES = [
    OpCase("cast_storage", (X,), {"stype": "csr"}, lambda x: x),
    OpCase(
        "_sparse_retain",
        (TABLE, np.array([4.0, 1.0, 4.0])),
        {},
        lambda x, rows: x * np.array([0, 1, 0, 0, 1.0]).reshape(5, 1, 1),
        grad=(0,),
    ),
    OpCase("_square_sum", (X,), {"axis": 1}, lambda x: (x**2).sum(1)),
    OpCase("_square_sum", (X,), {"axis": 0, "keepdims": True}, lambda x: (x**2).sum(0, keepdims=True)),
    OpCase("_square_sum", (X,), {"axis": 0, "exclude": True}, lambda x: (x**2).sum(1)),
    OpCase("_square_sum", (X,), {}, lambda x: (x**2).sum().reshape(1)),
    OpCase("_scatter_plus_scalar", (X,), {"scalar": 2.5}, lambda x: x + 2.5),
    OpCase("_scatter_minus_scalar", (X,), {"scalar": 2.5}, lambda x: x - 2.5),
    OpCase("_scatter_elemwise_div", (X, X[::-1].copy()), {}, lambda x, y: x / y),
    OpCase(
        "_contrib_SparseEmbedding",
        (np.array([[0.0, 3.0], [3.0, 1.5]]), X),
        {"input_dim": 4, "output_dim": 3, "dtype": "float64"},
        lambda i, w: w[i.astype(int)],
        grad=(1,),
    ),
]
