"""Linear algebra beyond the recorded calls: axes, singular matrices, what is not read."""

import numpy as np

import dpmodule as mx
from helpers.arrays import NAN, f8, randn
from helpers.op_case import call, gradients_test, rules_test, values_test

A, B = randn(2, 3, 4), randn(2, 4, 5)
test_values = values_test(
    *[
        ("_linalg_gemm2", tuple(np.moveaxis(x, -2, axis) for x in (A, B)), {"axis": axis},
         np.moveaxis(A @ B, -2, axis))
        for axis in (0, 1, -3)
    ],
    ("_linalg_potrf", (f8([[4, 99], [1, 3]]),), {}, np.linalg.cholesky([[4, 1], [1, 3]])),
    ("_linalg_trsm", (f8([[2, NAN], [1, 4]]), f8([[2], [9]])), {}, f8([[1], [2]])),
    ("_linalg_trmm", (f8([[2, 7], [1, 4]]), f8([[2], [9]])), {}, f8([[4], [38]])),
)  # fmt: skip
test_gradient_of_the_determinant_of_singular_matrices = gradients_test(
    ("_linalg_det", (f8([[[1, 2], [2, 4]], [[0, 0], [0, 0]], [[1, 0], [0, 2]]]),), {},
  [[[[0, 0], [0, 0]], [[0, 0], [0, 0]], [[2, 0], [0, 1]]]]),
)  # fmt: skip
test_shapes = rules_test(
    ("_linalg_gemm", [(2, 3, 4), (2, 4, 5), None], {}, [(2, 3, 4), (2, 4, 5), (2, 3, 5)], [(2, 3, 5)])
)


def test_the_largest_component_of_an_eigenvector_is_positive():
    x = randn(6, 4, 4)
    symmetric = x + x.swapaxes(1, 2)
    u, values = (t.numpy() for t in call("_linalg_syevd", mx.nd.array(symmetric, dtype="f8").tensor))
    assert (np.take_along_axis(u, np.abs(u).argmax(-1)[..., None], -1) > 0).all()
    assert (np.diff(values) >= 0).all()
    np.testing.assert_allclose(u.swapaxes(1, 2) @ (values[..., None] * u), symmetric, atol=1e-10)


def test_a_single_matrix_gives_one_number():
    assert mx.nd.linalg.det(mx.nd.eye(3)).shape == (1,)
    sign, logarithm = mx.nd.linalg.slogdet(-mx.nd.eye(3))
    assert (sign.asscalar(), logarithm.asscalar()) == (-1, 0)
