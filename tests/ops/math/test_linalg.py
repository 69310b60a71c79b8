"""Linear algebra beyond the recorded calls: axes, singular matrices, what is refused."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import MXNetError, OpError, ShapeError
from helpers.op_case import call, gradients, run, shapes

RANDOM = np.random.RandomState(0)
A, B = RANDOM.standard_normal((2, 3, 4)), RANDOM.standard_normal((2, 4, 5))


@pytest.mark.parametrize("axis", [0, 1, -3])
def test_gemm2_takes_the_rows_from_an_axis(axis):
    left, right = np.moveaxis(A, -2, axis), np.moveaxis(B, -2, axis)
    np.testing.assert_allclose(run("_linalg_gemm2", left, right, axis=axis), np.moveaxis(A @ B, -2, axis))


def test_gemm2_refuses_the_columns_as_rows():
    with pytest.raises(MXNetError, match="axis"):
        shapes("_linalg_gemm2", [(3, 3), (3, 3)], axis=-1)


def test_gemm_infers_the_shape_of_what_is_added():
    ins, outs = shapes("_linalg_gemm", [(2, 3, 4), (2, 4, 5), None])
    assert (ins[2], outs[0]) == ((2, 3, 5), (2, 3, 5))


@pytest.mark.parametrize(
    ("name", "ins"),
    [
        ("_linalg_gemm2", [(3, 4), (5, 6)]),
        ("_linalg_gemm2", [(2, 3, 4), (3, 4, 5)]),
        ("_linalg_gemm2", [(3,), (3,)]),
        ("_linalg_trsm", [(2, 2), (3, 3)]),
        ("_linalg_potrf", [(2, 3)]),
        ("_linalg_gelqf", [(3, 2)]),
        ("_linalg_maketrian", [(4,)]),
        ("khatri_rao", [(2, 3), (2, 4)]),
    ],
)
def test_matrices_that_do_not_fit_are_refused(name, ins):
    with pytest.raises(ShapeError):
        shapes(name, ins)
    function = getattr(mx.nd._internal if name[0] == "_" else mx.nd, name)
    with pytest.raises(ShapeError, match="expected|contracted axes"):
        function(*map(mx.nd.ones, ins))


@pytest.mark.parametrize("offset", [3, -3])
def test_a_diagonal_outside_is_refused(offset):
    with pytest.raises(ShapeError, match="offset"):
        run("_linalg_extractdiag", np.ones((3, 3)), offset=offset)


def test_potrf_says_that_a_matrix_is_not_positive_definite():
    with pytest.raises(OpError, match="positive definite"):
        mx.nd.linalg.potrf(mx.nd.array([[-4, 1], [1, 3]]))


def test_potrf_reads_the_lower_triangle_only():
    symmetric = np.array([[4.0, 1.0], [1.0, 3.0]])
    other = np.array([[4.0, 99.0], [1.0, 3.0]])
    np.testing.assert_array_equal(run("_linalg_potrf", symmetric), run("_linalg_potrf", other))


def test_trsm_and_trmm_do_not_read_the_other_triangle():
    a = np.array([[2.0, np.nan], [1.0, 4.0]])
    b = np.array([[2.0], [9.0]])
    np.testing.assert_allclose(run("_linalg_trsm", a, b), [[1.0], [2.0]])
    assert not np.isnan(run("_linalg_trmm", np.array([[2.0, 7.0], [1.0, 4.0]]), b)).any()


def test_the_gradient_of_the_determinant_of_a_singular_matrix_is_zero():
    singular = np.array([[[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 2.0]]])
    (found,) = gradients("_linalg_det", singular)
    np.testing.assert_allclose(found, [np.zeros((2, 2)), np.zeros((2, 2)), [[2.0, 0.0], [0.0, 1.0]]])


def test_the_largest_component_of_an_eigenvector_is_positive():
    x = RANDOM.standard_normal((6, 4, 4))
    symmetric = x + x.swapaxes(1, 2)
    u, values = (t.numpy() for t in call("_linalg_syevd", mx.nd.array(symmetric, dtype="f8").tensor))
    greatest = np.take_along_axis(u, np.abs(u).argmax(-1)[..., None], -1)
    assert (greatest > 0).all()
    assert (np.diff(values) >= 0).all()
    np.testing.assert_allclose(u.swapaxes(1, 2) @ (values[..., None] * u), symmetric, atol=1e-10)


def test_a_single_matrix_gives_one_number():
    assert mx.nd.linalg.det(mx.nd.eye(3)).shape == (1,)
    sign, logarithm = mx.nd.linalg.slogdet(-mx.nd.eye(3))
    assert (sign.asscalar(), logarithm.asscalar()) == (-1, 0)


def test_symbols_and_arrays_share_the_namespaces():
    symbol = mx.sym.linalg.gemm2(mx.sym.var("a"), mx.sym.var("b"), transpose_b=True)
    _, outs, _ = symbol.infer_shape(a=(2, 3), b=(4, 3))
    assert outs == [(2, 4)]
    a, b = mx.nd.ones((2, 3)), mx.nd.ones((4, 3))
    found = symbol.bind(mx.cpu(), {"a": a, "b": b}).forward()[0]
    np.testing.assert_array_equal(found.asnumpy(), mx.nd.linalg.gemm2(a, b, False, True).asnumpy())
    np.testing.assert_array_equal(found.asnumpy(), mx.nd.linalg_gemm2(a, b, transpose_b=True).asnumpy())


def test_khatri_rao_needs_a_matrix():
    with pytest.raises(OpError, match="at least one matrix"):
        mx.nd.khatri_rao()
