"""Copies between layouts."""

import pytest
import torch

from dpmodule import native
from dpmodule.ops.nn.relayout import can_relayout, copy_to_usual, in_channels_last, to_channels_last

pytestmark = pytest.mark.skipif(not hasattr(native.core, "change_layouts"), reason="there is no extension")


def test_copies_are_those_of_torch():
    tensors = [
        torch.randn(shape)
        for shape in [(5, 4, 3, 3), (2, 33, 1, 7), (70, 64, 5, 5), (1, 16, 2, 1), (3, 2, 5, 7), (2, 3, 9, 9)]
    ]
    copies = to_channels_last(tensors)
    for one, other in zip(tensors, copies):
        wanted = one.contiguous(memory_format=torch.channels_last)
        assert torch.equal(other, wanted)
        assert other.stride() == wanted.stride()
    back = [torch.empty_like(each) for each in tensors]
    copy_to_usual(list(zip(back, copies)))
    assert all(map(torch.equal, back, tensors))


def test_others_are_left_to_torch():
    x = torch.randn(2, 8, 3, 3)
    assert can_relayout(x)
    others = [x.double(), x[0], x[:, :1].contiguous(), x[..., :1, :1].contiguous(), x[:0], x.transpose(2, 3)]
    assert not any(map(can_relayout, others))


def test_one_tensor_in_channels_last():
    large, small, few = torch.randn(4, 32, 16, 16), torch.randn(1, 4, 2, 2), torch.randn(2, 3, 64, 64)
    strided, recorded = torch.randn(4, 16, 32, 16).transpose(1, 2), large.clone().requires_grad_()
    for x in (large, small, few, strided, recorded):
        found, wanted = in_channels_last(x), x.contiguous(memory_format=torch.channels_last)
        assert torch.equal(found, wanted)
        assert found.stride() == wanted.stride()
        assert in_channels_last(found) is found
        assert found.requires_grad is x.requires_grad
    (grad,) = torch.autograd.grad(in_channels_last(recorded).square().sum(), recorded)
    torch.testing.assert_close(grad, 2 * large)
