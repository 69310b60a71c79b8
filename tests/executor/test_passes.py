import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import executor
from dpmodule.executor import passes
from dpmodule.executor.passes.channels_last import restride
from helpers.programs import run_program

S = mx.sym


def convnet(channels=3, groups=1):
    x = S.Variable("data")
    x = S.Convolution(x, kernel=(3, 3), num_filter=4, pad=(1, 1), no_bias=True, name="c1")
    x = S.BatchNorm(x, fix_gamma=False, name="bn1")
    x = S.Activation(x, act_type="relu")
    y = S.Convolution(x, kernel=(3, 3), num_filter=4, pad=(1, 1), num_group=groups, name="c2")
    x = S.Pooling(x + y, kernel=(2, 2), stride=(2, 2), pool_type="max")
    x = S.Pooling(x, global_pool=True, kernel=(2, 2), pool_type="avg")
    return S.SoftmaxOutput(S.FullyConnected(S.Flatten(x), num_hidden=3, name="fc"), name="softmax")


def run(net, shape, is_train=True):
    bound = net.simple_bind(mx.cpu(), data=shape)
    rng = np.random.RandomState(0)
    for name, array in {**bound.arg_dict, **bound.aux_dict}.items():
        sign = 1 if "bn" in name else rng.choice([-1, 1], array.shape)
        array[:] = mx.nd.array(rng.uniform(0.5, 1.5, array.shape) * sign)
    bound.arg_dict["softmax_label"][:] = mx.nd.array(rng.randint(0, 3, shape[0]))
    out = bound.forward(is_train=is_train)[0].asnumpy()
    bound.backward()
    grads = {k: v.asnumpy() for k, v in bound.grad_dict.items()}
    return out, grads, {k: v.asnumpy() for k, v in bound.aux_dict.items()}, bound


@pytest.mark.parametrize("is_train", [True, False])
@pytest.mark.parametrize(("channels", "groups"), [(3, 1), (1, 1), (2, 2)])
def test_channels_last_changes_no_result(channels, groups, is_train):
    net, shape = convnet(channels, groups), (4, channels, 8, 8)
    with executor.disabled("channels_last"):
        out, grads, states, plain = run(net, shape, is_train)
    got, found, after, fast = run(net, shape, is_train)
    programs = [b._prepared[True, is_train, False].program.source for b in (plain, fast)]
    assert ["channels_last" in source for source in programs] == [False, True]
    np.testing.assert_allclose(got, out, rtol=1e-4, atol=1e-5)
    for key in grads:
        scale = np.abs(grads[key]).max() + 1e-6
        np.testing.assert_allclose(found[key] / scale, grads[key] / scale, atol=2e-4, err_msg=key)
    for key in states:
        np.testing.assert_allclose(after[key], states[key], rtol=1e-5)


def test_one_and_three_dimensional_convolutions_are_left_alone():
    for kernel, shape in (((3,), (2, 3, 8)), ((2, 2, 2), (2, 3, 4, 4, 4))):
        net = S.Convolution(S.Variable("x"), kernel=kernel, num_filter=2)
        bound = net.simple_bind(mx.cpu(), x=shape)
        bound.forward()
        assert "channels_last" not in bound.debug_str()


def test_a_weight_shared_by_two_convolutions_is_restrided_once():
    w, x = S.Variable("w"), S.Variable("x")
    y = S.Convolution(x, w, kernel=(1, 1), num_filter=3, no_bias=True)
    net = S.Convolution(y, w, kernel=(1, 1), num_filter=3, no_bias=True)
    bound = net.simple_bind(mx.cpu(), x=(2, 3, 4, 4))
    assert bound.debug_str().split("is_train=True")[1].count("channels_last(w)") == 1


def test_restride_says_channels_last_for_one_channel():
    x = torch.arange(8.0).view(2, 1, 2, 2)
    y = restride(x)
    assert y.stride() == (4, 1, 2, 1)
    assert torch.equal(x, y)
    assert y.data_ptr() == x.data_ptr()


def test_switching_off_ends_with_the_block_even_on_an_error():
    assert passes.settings() == frozenset()
    with executor.disabled("channels_last"):
        with executor.disabled("channels_last"):
            assert passes.settings() == {"channels_last"}
        assert passes.settings() == {"channels_last"}
    with pytest.raises(KeyError), executor.disabled("channels_last"):
        raise KeyError
    assert passes.settings() == frozenset()


LATE = """
import linecache, sys
import dpmodule as mx

net = mx.sym.Activation(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4), act_type="relu")
net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=3), name="softmax")
bound = net.simple_bind(mx.cpu(), data=(2, 5))
bound.forward(is_train=True)
bound.backward()
home = "dpmodule.executor.passes."
print(*sorted(name.removeprefix(home) for name in sys.modules if name.startswith(home)))
print(sum("dpmodule program" in name for name in linecache.cache))
"""


def test_a_perceptron_needs_no_pass_but_that_of_its_loss_and_no_source():
    done = run_program(LATE)
    assert done.stdout.split("\n")[:2] == ["fresh_heads mirror", "0"], done.stdout + done.stderr
