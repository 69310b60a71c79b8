"""Training in 16 bits: parameters in bfloat16 with float32 copies in the optimizer, and networks converted by AMP."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import dtype_name
from dpmodule.contrib import amp
from helpers.nets import blobs, lenet, mlp

BATCH = 32


def fitted(symbol, shape, dtype, epochs=6, ctx=None, **options):
    """Fit on blobs; return the module and its accuracy on them."""
    data, label = blobs(256, shape)
    ctx = ctx or mx.cpu()
    mod = mx.mod.Module(symbol, context=ctx)
    mod.bind(
        [mx.io.DataDesc("data", (BATCH, *shape), dtype)],
        [mx.io.DataDesc("softmax_label", (BATCH,), "float32")],
    )
    mx.random.seed(1)
    mod.init_params(mx.init.Xavier())
    mod.init_optimizer(optimizer_params={"learning_rate": 0.05, "momentum": 0.9, **options})
    for _ in range(epochs):
        for start in range(0, 256, BATCH):
            rows = slice(start, start + BATCH)
            mod.forward_backward(mx.io.DataBatch([mx.nd.array(data[rows])], [mx.nd.array(label[rows])]))
            mod.update()
    found = []
    for start in range(0, 256, BATCH):
        mod.forward(mx.io.DataBatch([mx.nd.array(data[start : start + BATCH])]), is_train=False)
        found.append(mod.get_outputs()[0].asnumpy().astype("f4").argmax(1))
    return mod, float((np.concatenate(found) == label).mean())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("ctx", [mx.cpu(), pytest.param(mx.gpu(), marks=pytest.mark.gpu)])
def test_parameters_in_16_bits_learn_through_float32_copies(dtype, ctx):
    _, exact = fitted(mlp(), (6,), "float32", ctx=ctx)
    mod, accuracy = fitted(mlp(), (6,), dtype, ctx=ctx, multi_precision=True)
    assert dtype_name(mod.group.store.array("fc1_weight", 0).dtype) == dtype
    assert abs(accuracy - exact) < 0.03
    updater = mod.updates.active_updater()
    for index, state in updater.states.items():
        master, inner = updater.optimizer.master_of(state)
        assert dtype_name(master.dtype) == dtype_name(inner.dtype) == "float32"
        name = updater.optimizer.idx2name.get(index, index)
        stored = mod.group.store.array(name, 0)
        np.testing.assert_array_equal(master.astype(dtype).asnumpy(), stored.asnumpy())


@pytest.mark.parametrize("ctx", [mx.cpu(), pytest.param(mx.gpu(), marks=pytest.mark.gpu)])
def test_a_converted_network_learns_as_well(ctx):
    net, shape = lenet(), (1, 10, 10)
    _, exact = fitted(net, shape, "float32", epochs=3, ctx=ctx)
    converted = amp.convert_symbol(net, "bfloat16")
    mod, accuracy = fitted(converted, shape, "float32", epochs=3, ctx=ctx)
    assert dtype_name(mod.group.store.array("conv1_weight", 0).dtype) == "float32"
    assert abs(accuracy - exact) < 0.05
