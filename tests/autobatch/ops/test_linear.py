"""Products of several matrices with the same vectors, computed as one."""

import numpy as np
import pytest
import torch

import dpmodule.autobatch as dy
from dpmodule.autobatch.ops import linear
from dpmodule.autobatch.ops.spec import BatchCall, Dim


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("has_memory", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_products_side_by_side_are_those_of_each_matrix(monkeypatch, is_large, has_memory, has_bias):
    monkeypatch.setattr(linear, "is_large", lambda left, right: is_large)
    matrices, biases, vectors = torch.randn(3, 5, 4), torch.randn(3, 5), torch.randn(7, 2, 4)
    expected = torch.cat([vectors @ matrix.T + bias * has_bias for matrix, bias in zip(matrices, biases)])
    memory, held = torch.zeros(21, 2, 5), [biases, matrices] if has_bias else [matrices]
    call = BatchCall((3,), (Dim((5, 4)), Dim((4,), 2)), Dim((5,), 2), 21)
    call.into = [memory] if has_memory else ()
    found = linear.STACK.run(call, *held, vectors)
    torch.testing.assert_close(found, expected)
    assert (found is memory) == has_memory


@pytest.mark.parametrize("has_bias", [False, True])
def test_large_products_of_the_python_engine(has_bias):
    """In float32, where another library is faster."""
    dy.configure(engine="python", autobatch=True)
    draw, m = np.random.RandomState(0), dy.ParameterCollection()
    w, b = (m.parameters_from_numpy(draw.uniform(-0.1, 0.1, shape)) for shape in ((300, 300), (300,)))
    xs = draw.uniform(-1, 1, (20, 300))
    ys = [dy.affine_transform([b, w, dy.inputVector(x)]) if has_bias else w * dy.inputVector(x) for x in xs]
    dy.esum([dy.squared_norm(y) for y in ys]).backward()
    wanted = xs @ w.as_array().T + has_bias * b.as_array()
    np.testing.assert_allclose(dy.npvalues(ys), wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(w.grad_as_array(), 2 * wanted.T @ xs, rtol=1e-3, atol=1e-3)
