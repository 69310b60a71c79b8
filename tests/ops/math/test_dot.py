"""Products that contract axes, against numpy.tensordot and matmul."""

import numpy as np
import pytest

from dpmodule.base import ShapeError
from helpers.op_case import OpCase, check_gradient, check_value, run, shapes


def data(*shape):
    return np.random.RandomState(len(shape)).randn(*shape)


# shapes of lhs and rhs, transpose_a, transpose_b
PRODUCTS = [
    ((2, 3), (3, 4), False, False),
    ((3, 2), (3, 4), True, False),
    ((2, 3), (4, 3), False, True),
    ((3, 2), (4, 3), True, True),
    ((3,), (3,), False, False),
    ((2, 3), (3,), False, False),
    ((3,), (3, 2), False, False),
    ((3,), (2, 3), False, True),
    ((2, 3, 4), (4, 5), False, False),
    ((2, 3, 4), (4, 2, 3), False, False),
    ((2, 3, 4), (2, 5), True, False),
    ((2, 3, 4), (5, 2, 4), False, True),
]


@pytest.mark.parametrize(("left", "right", "flip_left", "flip_right"), PRODUCTS)
def test_dot_contracts_last_with_first(left, right, flip_left, flip_right):
    def contracted(x, y):
        found = np.tensordot(x, y, ([0 if flip_left else x.ndim - 1], [y.ndim - 1 if flip_right else 0]))
        return np.atleast_1d(found)

    case = OpCase(
        "dot", (data(*left), data(*right)), {"transpose_a": flip_left, "transpose_b": flip_right}, contracted
    )
    check_value(case)
    check_gradient(case)


@pytest.mark.parametrize("flip_left", [False, True])
@pytest.mark.parametrize("flip_right", [False, True])
@pytest.mark.parametrize("batch", [(2,), (2, 3)])
def test_batch_dot_multiplies_matrix_by_matrix(batch, flip_left, flip_right):
    left = data(*batch, *((4, 3) if flip_left else (3, 4)))
    right = data(*batch, *((2, 4) if flip_right else (4, 2)))

    def product(x, y):
        return np.matmul(
            np.swapaxes(x, -1, -2) if flip_left else x, np.swapaxes(y, -1, -2) if flip_right else y
        )

    case = OpCase("batch_dot", (left, right), {"transpose_a": flip_left, "transpose_b": flip_right}, product)
    check_value(case)
    check_gradient(case)


def test_axes_that_do_not_fit_are_refused():
    with pytest.raises(ShapeError, match="4 and 5"):
        shapes("dot", [(2, 3, 4), (5, 2)])
    with pytest.raises(ShapeError, match="at least 3"):
        shapes("batch_dot", [(1, 3), (3, 1)])
    with pytest.raises(ShapeError):
        shapes("batch_dot", [(2, 1, 3), (1, 3, 1)])
    with pytest.raises(ShapeError, match=r"\(2, 1, 3\)"):
        run("batch_dot", data(2, 1, 3), data(1, 3, 1))


def test_rules_carry_what_is_known():
    assert shapes("dot", [(0, 4), (4, 8)])[1] == [(0, 8)]
    assert shapes("dot", [(6, 4), None], [(6, 8)])[1] == [(6, 8)]
    assert shapes("batch_dot", [(0, 4, 8), (5, 8, 3)]) == ([(5, 4, 8), (5, 8, 3)], [(5, 4, 3)])
