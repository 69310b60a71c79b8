import numpy as np
import pytest

import dpmodule as mx

S = mx.sym


CONSTANTS = [
    (S.zeros((2, 3)), np.zeros((2, 3)), "float32"),
    (S.ones((2,), dtype=np.float64), np.ones(2), "float64"),
    (S.full((2, 2), 7), np.full((2, 2), 7), "float32"),
    (S.arange(1, 7, 2, repeat=2, dtype="int32"), np.repeat(np.arange(1, 7, 2), 2), "int32"),
    (S.linspace(2, 3, 4, endpoint=False), np.linspace(2, 3, 4, endpoint=False), "float32"),
    (S.eye(2, 4, 1), np.eye(2, 4, 1), "float32"),
]


@pytest.mark.parametrize(("made", "want", "dtype"), CONSTANTS)
def test_constants(made, want, dtype):
    out = made.eval()[0]
    assert out.dtype == np.dtype(dtype)
    np.testing.assert_allclose(out.asnumpy(), want, rtol=1e-6)


def test_linspace_is_one_node():
    assert S.linspace(0, 1, 5, name="ticks").get_internals().list_outputs() == ["ticks_output"]


def test_split_v2():
    x, given = S.Variable("x"), mx.nd.arange(12).reshape((6, 2))
    assert [o.shape for o in S.split_v2(x, 3).eval(x=given)] == [(2, 2)] * 3
    assert [o.shape for o in x.split_v2((1, 4)).eval(x=given)] == [(1, 2), (3, 2), (2, 2)]
    assert [o.shape for o in S.split_v2(x, 2, axis=1, squeeze_axis=True).eval(x=given)] == [(6,), (6,)]
