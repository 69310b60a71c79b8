"""Random graphs go out, at any version and with a dynamic batch, and come in again: always the same results."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from helpers.models import with_parameters
from helpers.onnx_runs import again, exported, our_outputs, runtime_outputs
from helpers.random_graphs import random_graph
from helpers.random_nets import random_net


def same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        scale = max(1.0, float(np.abs(other).max(initial=0)))
        np.testing.assert_allclose(one, other, 1e-4, 1e-5 * scale)


def check(symbol, arrays, params, opset, folder, sizes):
    """Export a graph with a dynamic batch, run it with several sizes, and read it in again."""
    inputs = [name for name in symbol.list_inputs() if name not in params and name not in symbol.graph.labels]
    model = exported(symbol, arrays, params, opset, {name: {0: "batch"} for name in inputs})
    ours, theirs = our_outputs(symbol, arrays), runtime_outputs(model, arrays)
    same(theirs, ours)
    for size in sizes:
        given = {k: v if k in params else np.resize(v, (size, *v.shape[1:])) for k, v in arrays.items()}
        wanted = our_outputs(symbol, given)
        same(runtime_outputs(model, given), wanted)
        same(read_again(model, folder, {name: given[name] for name in inputs}), wanted)


def read_again(model, folder, inputs):
    """Return what an ONNX model gives when it has come in."""
    symbol, args, states = again(model, folder)
    arrays = {name: mx.nd.array(value) for name, value in inputs.items() if name in symbol.list_arguments()}
    bound = symbol.bind(mx.cpu(), {**args, **arrays}, aux_states=states or None)
    return [out.asnumpy() for out in bound.forward(is_train=False)]


def drawn_graph(seed):
    symbol, inputs, params = random_graph(seed)
    draw = np.random.RandomState(seed)
    arrays = {name: draw.uniform(-1, 1, (2, *rest)).astype("float32") for name, rest in inputs.items()}
    arrays |= {name: draw.uniform(-0.7, 0.7, shape).astype("float32") for name, shape in params.items()}
    return symbol, arrays, list(params)


def drawn_net(seed):
    symbol, shapes = random_net(seed)
    data = {"data": np.random.RandomState(seed).rand(*shapes["data"]).astype("float32")}
    net = with_parameters(symbol, data, seed)
    return net.symbol, net.arrays, net.params


@pytest.mark.parametrize(
    ("drawn", "count", "sizes"),
    [
        (drawn_graph, 200, (3,)),
        (drawn_net, 25, (2,)),
        pytest.param(drawn_graph, 1000, (1, 3), marks=pytest.mark.slow),
        pytest.param(drawn_net, 200, (1, 3), marks=pytest.mark.slow),
    ],
)
def test_random_graphs(tmp_path, drawn, count, sizes):
    @settings(max_examples=count, deadline=None, derandomize=True, database=None)
    @given(seed=st.integers(0, 2**31 - 1), opset=st.integers(13, 21))
    def run(seed, opset):
        check(*drawn(seed), opset, tmp_path, sizes)

    run()
