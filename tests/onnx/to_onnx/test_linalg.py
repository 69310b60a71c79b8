"""Matrices in ONNX: products, and elimination written out for small ones."""

import numpy as np
import pytest

from helpers.onnx_runs import check_op, check_sizes

DRAW = np.random.RandomState(3)
BOTH = [True, False]
FLIPPED = {"transpose_a": True, "transpose_b": True}


def drawn(*shape):
    return DRAW.uniform(-1, 1, shape).astype("float32")


def positive(*shape):
    x = drawn(*shape)
    return x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1], dtype="float32")


def eye(size):
    return np.eye(size, dtype="float32")


def test_products_of_other_ranks():
    check_op("dot", drawn(3), drawn(3))
    check_op("dot", drawn(2, 4, 3), drawn(3, 5, 2))
    check_op("dot", drawn(3, 4, 2), drawn(5, 3), **FLIPPED)
    check_op("dot", drawn(2, 3), drawn(3))
    check_sizes("dot", drawn(2, 4, 3), drawn(3, 5), changing=[0])
    check_sizes("dot", drawn(3), drawn(3))
    check_sizes("dot", drawn(3, 2), drawn(3, 4), transpose_a=True)
    check_sizes("batch_dot", drawn(2, 2, 3), drawn(2, 3, 4))
    check_op("khatri_rao", drawn(2, 3), drawn(4, 3), drawn(2, 3))
    check_sizes("khatri_rao", drawn(2, 3), drawn(4, 3), changing=[0])


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_elimination(size):
    check_op("_linalg_potrf", positive(2, size, size), lower=BOTH)
    check_op("_linalg_potri", drawn(size, size) + 2 * eye(size), lower=BOTH)
    check_op("_linalg_inverse", drawn(3, size, size) + eye(size), rtol=1e-3, atol=1e-4)
    check_op("_linalg_gelqf", drawn(2, size, size))
    check_op("_linalg_gelqf", drawn(size, size + 3))
    check_sizes("_linalg_inverse", drawn(2, size, size) + 2 * eye(size))
    for swapped in (np.roll(eye(size), 1, 0), np.array([[1e-6, 1], [1, 0]])):  # the greatest is not first
        check_op("_linalg_inverse", swapped, rtol=1e-8)
        check_op("_linalg_gelqf", swapped)
