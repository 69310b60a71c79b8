import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import executor
from dpmodule.executor import passes
from dpmodule.executor.passes.channels_last import restride
from helpers.switched import ALL_PASSES, fired

S = mx.sym
X = S.Variable("data")


def convolved():
    x = S.Convolution(X, kernel=(3, 3), num_filter=4, pad=(1, 1), no_bias=True, name="c1")
    x = S.Activation(S.BatchNorm(x, fix_gamma=False, name="bn1"), act_type="relu")
    y = S.Convolution(x, kernel=(3, 3), num_filter=4, pad=(1, 1), name="c2")
    x = S.Pooling(x + y, kernel=(2, 2), stride=(2, 2), pool_type="max")
    x = S.Pooling(S.tanh(x), kernel=(2, 2), stride=(2, 2), pool_type="max")
    return S.SoftmaxOutput(S.FullyConnected(S.Flatten(x), num_hidden=3, name="fc"), name="softmax")


def mirrored():
    with mx.AttrScope(force_mirroring="True"):
        return S.MakeLoss(S.tanh(S.sin(X)), name="loss")


def separate_weights():
    shapes = {"i2h_weight": (12, 4), "h2h_weight": (12, 3), "i2h_bias": (12,), "h2h_bias": (12,)}
    parts = [S.Variable(name, shape=shape) for name, shape in shapes.items()]
    parts[:2] = [S.Reshape(part, shape=(-1,)) for part in parts[:2]]
    joined = S._internal._rnn_param_concat(*parts, dim=0)
    state = {"state": S.zeros((1, 2, 3)), "state_cell": S.zeros((1, 2, 3))}
    return S.MakeLoss(S.RNN(X, joined, **state, mode="lstm", state_size=3, num_layers=1))


NETS = {
    "common_subexpressions": (S.MakeLoss(S.tanh(S.sin(X)) * S.sin(X)), (3, 4)),
    "gated_activations": (S.MakeLoss(X * S.sigmoid(X)), (3, 4)),
    "fused_attention": (
        S.MakeLoss(S.batch_dot(S.softmax(S.batch_dot(X, X, transpose_b=True)), X)),
        (2, 3, 4),
    ),
    "rnn_chains": (S.MakeLoss(mx.rnn.LSTMCell(4).unroll(5, X, merge_outputs=True)[0]), (2, 5, 3)),
    **dict.fromkeys(f"{kind}_convolutions" for kind in ("fused", "unfolded", "native")),
    **dict.fromkeys(("pooling_first", "channels_last", "fused_norms")),
    "score_blocks": (S.SoftmaxOutput(S.FullyConnected(X, num_hidden=2048), name="softmax"), (700, 6)),
    "rnn_weights": (separate_weights(), (3, 2, 4)),
    "recurrent_layers": (mx.rnn.FusedRNNCell(4, mode="gru").unroll(3, X, layout="TNC")[0], (3, 2, 4)),
    "dense_layers": (S.FullyConnected(X, num_hidden=4, name="fc"), (3, 6)),
    "small_steps": (S.square(S.tanh(X * 2.0) + X) / 3.0 - 1.0, (3, 4)),
    "mirror": (mirrored(), (3, 4)),
}
NETS = {name: each or (convolved(), (4, 3, 8, 8)) for name, each in NETS.items()}
ROWS = {each.name: each for each in passes.PASSES if each.name in NETS}


@pytest.mark.parametrize("name", NETS)
def test_a_pass_fires_unless_it_is_switched_off_watched_or_over_several_contexts(name):
    (net, shape), each = NETS[name], ROWS[name]
    is_train = each.training
    assert fired(net, {"data": shape}, is_train)[name] >= 1
    with executor.disabled(name):
        assert name not in fired(net, {"data": shape}, is_train)
    one, seen = net.simple_bind(mx.cpu(), data=shape), set()
    one.set_monitor_callback(lambda node, array: seen.add(node.partition("_output")[0]))
    one.forward(is_train=is_train)
    assert {node.name for node in net.graph.nodes if node.op is not None} <= seen
    with mx.AttrScope(ctx_group="other"):
        moved = S.Group([net, S.BlockGrad(S.Variable("more"))])
    one = moved.simple_bind(mx.cpu(), group2ctx={"other": mx.cpu(1)}, data=shape, more=(2,))
    assert (name in one.program(is_train).low.fired) == each.moved


def test_channels_last_is_for_two_axes_and_restrides_a_weight_once():
    for kernel, shape in (((3,), (2, 3, 8)), ((2, 2, 2), (2, 3, 4, 4, 4))):
        assert "channels_last" not in fired(S.Convolution(X, kernel=kernel, num_filter=2), {"data": shape})
    options = {"weight": S.Variable("w"), "kernel": (1, 1), "num_filter": 3, "no_bias": True}
    net = S.Convolution(S.Convolution(X, **options), **options)
    source = net.simple_bind(mx.cpu(), data=(2, 3, 4, 4)).program(True).source
    assert source.count("channels_last(w)") == 1
    x = torch.arange(8.0).view(2, 1, 2, 2)
    y = restride(x)
    assert (y.stride(), y.data_ptr()) == ((4, 1, 2, 1), x.data_ptr())
    assert torch.equal(x, y)


def test_switching_off_ends_with_the_block_even_on_an_error():
    assert passes.settings() == frozenset()
    with executor.disabled("channels_last"):
        with executor.disabled("channels_last"):
            assert passes.settings() == {"channels_last"}
        assert passes.settings() == {"channels_last"}
    with pytest.raises(KeyError), executor.disabled("channels_last"):
        raise KeyError
    assert passes.settings() == frozenset()
    assert set(NETS) == set(ALL_PASSES) - {"dead_steps", "pooled_lookups"}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_results_do_not_depend_on_the_default_type_of_torch(name, dtype):
    net, shapes, *_ = NETS[name]
    shapes = shapes if isinstance(shapes, dict) else {"data": shapes}
    found, default = [], torch.get_default_dtype()
    try:
        for each in (default, dtype):
            torch.set_default_dtype(each)
            bound = net.simple_bind(mx.cpu(), **shapes)
            mx.random.seed(0)
            for array in bound.arg_dict.values():
                array[:] = mx.nd.random.uniform(0, 1, array.shape)
            results = [*bound.forward(is_train=False), *bound.forward(is_train=False)]
            results = [each.asnumpy() for each in [*results, *bound.forward(is_train=True)]]
            bound.backward([mx.nd.ones(output.shape) for output in bound.outputs])
            found.append([*results, *(each.asnumpy() for each in bound.grad_arrays if each is not None)])
    finally:
        torch.set_default_dtype(default)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
