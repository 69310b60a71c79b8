"""Reshape codes, and the other operators that keep the elements in order."""

import numpy as np

from helpers.arrays import count, randn
from helpers.op_case import rules_test, values_test

X = count(2, 3, 4, dtype="f4")
MIXED = [  # codes, answer of MXNet 1.9.1
    ((4, -1, 0), (4, 1, 4)), ((-3, 2, -1), (6, 2, 2)), ((-1, 0, 2), (4, 3, 2)), ((4, 6, 1, -1), (4, 6, 1, 1)),
    ((-2, -2), (2, 3, 4)), ((0, -4, 3, -1, 4), (2, 3, 1, 4)), ((0, 0, 0, -1), (2, 3, 4, 1)),
]  # fmt: skip
FITTING = [(codes, wanted) for codes, wanted in MIXED if np.prod(wanted) == 24]
OLD = [((2, 0), False, (2, 12)), ((0, 6, 2), True, (2, 6, 2))]
ENDS = {"lhs_begin": 0, "lhs_end": 2, "rhs_begin": 0, "rhs_end": 1}
test_values = values_test(
    *[("Reshape", (X,), {"shape": codes}, X.reshape(wanted)) for codes, wanted in FITTING],
    *[("Reshape", (X,), {"target_shape": t, "keep_highest": keep}, X.reshape(w)) for t, keep, w in OLD],
    ("Reshape", (X,), {"shape": (-1,), "target_shape": (3, 0)}, X.reshape(24)),
    ("Flatten", (count(2),), {}, count(2, 1)),
    ("reshape_like", (X, randn(6, 2, 2)), ENDS, X.reshape(6, 4)),
    ("reshape_like", (X, randn(6, 2, 2)), {"lhs_begin": -1, "rhs_begin": 1}, X.reshape(2, 3, 2, 2)),
)
test_shapes = rules_test(
    *[
        ("Reshape", [before], {"shape": codes}, [known], [after], [after])
        for before, after, codes, known in [
            ((0, 4), (6, 4), (-1, 4), (6, 4)),
            ((0, 2, 4), (6, 4), (-1, 4), (3, 2, 4)),
            ((0, 2, 4), (6, 8), (0, -1), (6, 2, 4)),
        ]
    ],
    ("Reshape", [(0, 3, 4)], {"shape": (0, -1)}, None, [(0, 12)]),
    ("Reshape", [(0, 3, 4)], {"shape": (-3, 0)}, None, [(0, 4)]),
    ("Reshape", [None], {"shape": (0, -1)}, None, [None]),
    ("Flatten", [(0, 4, 2)], {}, [(6, 4, 2)], [(6, 8)], [(6, 8)]),
    ("Flatten", [(0, 4, 2)], {}, None, [(0, 8)]),
)
