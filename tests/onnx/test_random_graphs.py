"""Random graphs go out, at any version and with a dynamic batch, and come in again: always the same results."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.models import with_parameters
from helpers.onnx_runs import again, exported, our_outputs, runtime_outputs
from helpers.random_graphs import random_graph
from helpers.random_nets import random_net


def same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, 1e-4, 1e-5 * max(1.0, float(np.abs(other).max(initial=0))))


def drawn(seed, is_net):
    """Return a network or a graph of operators, values of its variables, and the names of parameters."""
    draw = np.random.RandomState(seed)
    if is_net:
        symbol, shapes = random_net(seed)
        net = with_parameters(symbol, {"data": draw.rand(*shapes["data"]).astype("float32")}, seed)
        return net.symbol, net.arrays, net.params
    symbol, inputs, params = random_graph(seed)
    shapes = {name: (2, *rest) for name, rest in inputs.items()} | params
    return symbol, {k: draw.uniform(-0.9, 0.9, v).astype("float32") for k, v in shapes.items()}, list(params)


@pytest.mark.parametrize("count", [1, pytest.param(6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("is_net", [True, False])
def test_random_graphs(tmp_path, is_net, count):
    @settings(max_examples=count * (8 if is_net else 100), deadline=None, derandomize=True, database=None)
    @given(seed=st.integers(0, 2**31 - 1), opset=st.integers(13, 21))
    def check(seed, opset):
        symbol, arrays, params = drawn(seed, is_net)
        inputs = [k for k in symbol.list_inputs() if k not in params and k not in symbol.graph.labels]
        model = exported(symbol, arrays, params, opset, {name: {0: "batch"} for name in inputs})
        back, args, states = again(model, tmp_path)
        known = {name: value.asnumpy() for name, value in {**args, **states}.items()}
        for size in (2, 3):
            values = {k: v if k in params else np.resize(v, (size, *v.shape[1:])) for k, v in arrays.items()}
            wanted = our_outputs(symbol, values)
            same(runtime_outputs(model, values), wanted)
            same(our_outputs(back, {**values, **known}), wanted)

    check()
