import numpy as np
import pytest

from dpmodule.base import ShapeError
from helpers.numeric import check_gradients, run, shapes, types

TABLE = np.random.RandomState(6).randn(4, 3)
ATTRS = {"input_dim": 4, "output_dim": 3}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8"])
def test_rows(dtype):
    indices = np.array([[0, 3, 1], [2, 2, 0]], dtype)
    np.testing.assert_array_equal(run("Embedding", indices, TABLE, **ATTRS), TABLE[indices.astype(int)])


def test_fractions_are_cut_off_and_ends_repeat():
    out = run("Embedding", np.array([-5.0, 1.9, 99.0]), TABLE, **ATTRS)
    np.testing.assert_array_equal(out, TABLE[[0, 1, 3]])


def test_gradient_adds_up_repeated_rows():
    check_gradients("Embedding", np.array([1.0, 1.0, 7.0, 0.0]), TABLE, wanted=(1,), **ATTRS)


def test_shapes_both_ways():
    assert shapes("Embedding", (2, 5), None, **ATTRS) == ([(2, 5), (4, 3)], [(2, 5, 3)])
    assert shapes("Embedding", None, None, outs=[(2, 5, 3)], **ATTRS)[0] == [(2, 5), (4, 3)]
    with pytest.raises(ShapeError, match="weight has shape"):
        shapes("Embedding", (2, 5), (9, 3), **ATTRS)


def test_types():
    assert types("Embedding", "int32", None, **ATTRS) == (["int32", "float32"], ["float32"])
    assert types("Embedding", "int32", None, dtype="float16", **ATTRS) == (["int32", "float16"], ["float16"])
    assert types("Embedding", "float64", "float64", **ATTRS) == (["float64", "float64"], ["float64"])
