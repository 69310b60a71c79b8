"""Matrices in ONNX: products, and elimination written out for small ones."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.onnx_runs import check_op, check_same, check_sizes, exported

DRAW = np.random.RandomState(3)


def drawn(*shape, dtype="float32"):
    return DRAW.uniform(-1, 1, shape).astype(dtype)


def positive(*shape):
    x = drawn(*shape)
    return x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1], dtype="float32")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64"])
def test_products(dtype):
    def made(*shape):
        return (drawn(*shape) * 5).astype(dtype)

    close = {"rtol": 1e-2, "atol": 1e-2} if dtype == "float16" else {}
    check_op("dot", made(2, 3), made(3, 4), **close)
    check_op("dot", made(3, 2), made(4, 3), attrs={"transpose_a": True, "transpose_b": True}, **close)
    check_op("batch_dot", made(2, 2, 3), made(2, 3, 4), **close)
    check_op(
        "batch_dot", made(2, 3, 2), made(2, 4, 3), attrs={"transpose_a": True, "transpose_b": True}, **close
    )


def test_products_of_other_ranks():
    check_op("dot", drawn(3), drawn(3))
    check_op("dot", drawn(2, 4, 3), drawn(3, 5, 2))
    check_op("dot", drawn(3, 4, 2), drawn(5, 3), attrs={"transpose_a": True, "transpose_b": True})
    check_op("dot", drawn(2, 3), drawn(3))
    check_sizes("dot", drawn(2, 4, 3), drawn(3, 5), axes=[0])
    check_sizes("dot", drawn(3), drawn(3))
    check_sizes("dot", drawn(3, 2), drawn(3, 4), attrs={"transpose_a": True})
    check_sizes("batch_dot", drawn(2, 2, 3), drawn(2, 3, 4))
    check_op("khatri_rao", drawn(2, 3), drawn(4, 3), drawn(2, 3))
    check_sizes("khatri_rao", drawn(2, 3), drawn(4, 3), axes=[0])


def test_products_of_blas():
    for flips in ({}, {"transpose_a": True, "transpose_b": True}):
        attrs = {"alpha": 0.5, **flips}
        check_op("_linalg_gemm2", drawn(2, 3, 3), drawn(2, 3, 3), attrs=attrs)
        check_op(
            "_linalg_gemm", drawn(2, 3, 3), drawn(2, 3, 3), drawn(2, 3, 3), attrs={"beta": -2.0, **attrs}
        )
    check_op("_linalg_gemm2", drawn(3, 2, 4), drawn(4, 2, 5), attrs={"axis": 0})
    for transpose in (True, False):
        check_op("_linalg_syrk", drawn(2, 3, 4), attrs={"transpose": transpose, "alpha": 2.0})
    check_sizes("_linalg_gemm2", drawn(2, 3, 3), drawn(2, 3, 3))


def triangles():
    for transpose in (True, False):
        for right in (True, False):
            for lower in (True, False):
                yield {"transpose": transpose, "rightside": right, "lower": lower, "alpha": 1.5}


def test_triangles():
    for attrs in triangles():
        one, other = drawn(2, 3, 3) + 2 * np.eye(3, dtype="float32"), drawn(2, 3, 3)
        check_op("_linalg_trmm", one, other, attrs=attrs)
        check_op("_linalg_trsm", one, other, attrs=attrs)
        check_sizes("_linalg_trsm", one, other, attrs=attrs)
    check_op("_linalg_trsm", np.eye(4, dtype="float32") * 2, drawn(4, 7))
    check_op("_linalg_trsm", np.eye(7, dtype="float32") * 2, drawn(4, 7), attrs={"rightside": True})


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_elimination(size):
    for lower in (True, False):
        check_op("_linalg_potrf", positive(2, size, size), attrs={"lower": lower})
        check_op(
            "_linalg_potri", drawn(size, size) + 2 * np.eye(size, dtype="float32"), attrs={"lower": lower}
        )
    check_op("_linalg_inverse", drawn(3, size, size) + np.eye(size, dtype="float32"), rtol=1e-3, atol=1e-4)
    check_op("_linalg_gelqf", drawn(2, size, size))
    check_op("_linalg_gelqf", drawn(size, size + 3))
    check_sizes("_linalg_inverse", drawn(2, size, size) + 2 * np.eye(size, dtype="float32"))


def test_elimination_needs_no_greatest_element_first():
    swapped = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]], "float32")
    check_op("_linalg_inverse", swapped)
    check_op("_linalg_inverse", np.array([[1e-6, 1], [1, 0]]), rtol=1e-8)
    check_op("_linalg_gelqf", swapped)


def test_large_matrices_are_refused():
    for name in ("_linalg_inverse", "_linalg_potrf", "_linalg_potri", "_linalg_gelqf"):
        net = mx.symbol.symbol.op_function(name)(mx.sym.Variable("x"), name="large")
        with pytest.raises(ArgumentError, match="'large'.*have 9 rows.*at most 8 rows can be written out"):
            exported(net, {"x": np.eye(9, dtype="float32")})


def test_determinants():
    x = drawn(2, 4, 4)
    for each in (x, x[0], np.zeros((2, 2), "float32")):
        check_op("_linalg_det", each)
        check_op("_linalg_slogdet", each)
        check_op("_linalg_det", each.astype("float64"))


def test_diagonals_and_triangles():
    x = drawn(2, 3, 3)
    for offset in (-2, -1, 0, 1):
        check_sizes("_linalg_extractdiag", x, attrs={"offset": offset})
        check_sizes("_linalg_makediag", drawn(2, 3), attrs={"offset": offset})
        for lower in (True, False):
            check_sizes("_linalg_extracttrian", x, attrs={"offset": offset, "lower": lower})
            check_sizes("_linalg_maketrian", drawn(2, 6), attrs={"offset": offset, "lower": lower})
    check_op("_linalg_makediag", np.arange(3, dtype="int32"))
    check_sizes("_linalg_sumlogdiag", positive(2, 3, 3))


def test_a_gaussian_likelihood():
    """What users of linalg build: a Cholesky factor, a solution, a determinant."""
    S = mx.sym
    factor = S.linalg.potrf(S.Variable("cov"))
    apart = S.linalg.trsm(factor, S.Variable("x"))
    loss = 0.5 * S.sum(S.square(apart), axis=(1, 2)) + S.linalg.sumlogdiag(factor)
    check_same(
        loss, {"cov": positive(4, 3, 3), "x": drawn(4, 3, 1)}, dynamic={"cov": {0: "n"}, "x": {0: "n"}}
    )
