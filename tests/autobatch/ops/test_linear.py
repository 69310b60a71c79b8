"""Products of several matrices with the same vectors, computed as one."""

import pytest
import torch

from dpmodule.autobatch.ops import linear
from dpmodule.autobatch.ops.spec import BatchCall, Dim


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("has_memory", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_products_side_by_side_are_those_of_each_matrix(monkeypatch, is_large, has_memory, has_bias):
    monkeypatch.setattr(linear, "is_large", lambda left, right: is_large)
    matrices, biases, vectors = torch.randn(3, 5, 4), torch.randn(3, 5), torch.randn(7, 2, 4)
    expected = torch.cat([vectors @ matrix.T + bias * has_bias for matrix, bias in zip(matrices, biases)])
    memory = torch.zeros(21, 2, 5)
    held = [biases, matrices] if has_bias else [matrices]
    call = BatchCall((3,), (Dim((5, 4)), Dim((4,), 2)), Dim((5,), 2), 21)
    call.into = [memory] if has_memory else ()
    found = linear.STACK.run(call, *held, vectors)
    torch.testing.assert_close(found, expected)
    assert (found is memory) == has_memory
