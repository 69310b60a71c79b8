"""Products that contract axes, against numpy.tensordot."""

import numpy as np

from helpers.arrays import randn
from helpers.op_case import OpCase, check_gradient, check_value, rules_test
from helpers.walk import walks

# shapes of lhs and rhs, transpose_a, transpose_b
PRODUCTS = [((3, 2), (4, 3), True, True), ((3,), (2, 3), False, True), ((2, 3, 4), (2, 5), True, False)]
PRODUCTS += [((2, 3, 4), (5, 2, 4), False, True), ((2, 3, 4), (4, 2, 3), False, False)]
PRODUCTS += [(left, right, False, False) for left, right in (((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)))]


@walks(PRODUCTS)
def test_dot_contracts_last_with_first(left, right, flip_left, flip_right):
    def contracted(x, y):
        axes = [0 if flip_left else x.ndim - 1], [y.ndim - 1 if flip_right else 0]
        return np.atleast_1d(np.tensordot(x, y, axes))

    attrs = {"transpose_a": flip_left, "transpose_b": flip_right}
    case = OpCase("dot", (randn(*left), randn(*right)), attrs, contracted)
    check_value(case)
    check_gradient(case)


test_shapes = rules_test(
    ("dot", [(0, 4), (4, 8)], {}, None, [(0, 8)]),
    ("dot", [(6, 4), None], {}, None, [(6, 8)], [(6, 8)]),
    ("batch_dot", [(0, 4, 8), (5, 8, 3)], {}, [(5, 4, 8), (5, 8, 3)], [(5, 4, 3)]),
)
