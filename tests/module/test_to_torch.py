"""`Module.to_torch`: the trained network as a torch module; that it computes the same is for test_equivalence."""

import copy

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import StateError
from helpers.small_fits import batch, both_contexts, ready


def check_same(net, mod):
    for values in mod.get_params():
        for name, value in values.items():
            found = dict([*net.named_parameters(), *net.named_buffers()])[name]
            np.testing.assert_array_equal(found.detach().numpy(), value.asnumpy(), err_msg=name)


def normal():
    net = mx.sym.BatchNorm(mx.sym.Variable("data"), name="bn", fix_gamma=False)
    return mx.sym.SoftmaxOutput(net, name="softmax")


@both_contexts
@pytest.mark.parametrize("make", [lambda: None, normal])
def test_shared_parameters_are_trained_by_both(contexts, make):
    mod = ready(make(), contexts, optimizer={})
    net, own = mod.to_torch(share=True), mod.to_torch()
    check_same(own, mod)
    if len(contexts) > 1:  # the first one's are shared
        for name, value in net.named_parameters():
            assert value.data_ptr() == mod.store.array(name, 0).torch().data_ptr()
        return
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for number in range(2):
        one = batch(seed=number)
        mod.forward_backward(one)
        mod.update()
        net(one.data[0].torch(), one.label[0].torch()).sum().backward()
        optimizer.step()
        check_same(net, mod)
    other = copy.deepcopy(own)
    with torch.no_grad():
        next(other.parameters()).mul_(2)
    mod.set_params(*({name: mx.nd.from_torch(value) for name, value in each}
                     for each in (other.named_parameters(), other.named_buffers())))  # fmt: skip
    check_same(other, mod)
    assert not torch.equal(next(own.parameters()), next(other.parameters()))


def test_parameters_that_are_fixed_need_no_gradient():
    net = ready(mx.mod.Module(normal(), fixed_param_names=["bn_beta"])).to_torch()
    assert [name for name, p in net.named_parameters() if not p.requires_grad] == ["bn_beta"]


def test_a_checkpoint_needs_no_binding(tmp_path):
    mod, prefix, data = ready(), str(tmp_path / "net"), torch.rand(2, 6)
    mod.save_checkpoint(prefix, 1)
    loaded = mx.mod.Module.load(prefix, 1)
    assert torch.equal(loaded.to_torch().eval()(data), mod.to_torch().eval()(data))
    with pytest.raises(StateError, match="to_torch"):
        loaded.to_torch(share=True)
