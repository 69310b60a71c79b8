"""Model parallelism by context groups; on the CPU every context is the same torch device, but still a place."""

import numpy as np
import pytest

import dpmodule as mx
from helpers.nets import blobs

GROUPS = {"front": mx.cpu(1), "back": mx.cpu(2)}


def network(dropout=0.0):
    data = mx.sym.Variable("data")
    with mx.AttrScope(ctx_group="front"):
        net = mx.sym.FullyConnected(data, num_hidden=8, name="fc1")
        net = mx.sym.Activation(net, act_type="tanh", name="act1")
    with mx.AttrScope(ctx_group="back"):
        net = mx.sym.Dropout(net, p=dropout, name="drop") if dropout else net
        return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=4, name="fc2"), name="softmax")


def ran(groups=GROUPS, dropout=0.0):
    """Bind, fill, and run forward and backward."""
    executor = network(dropout).simple_bind(mx.cpu(0), group2ctx=groups, data=(5, 6))
    rng = np.random.RandomState(0)
    for array in executor.arg_dict.values():
        array[:] = rng.randn(*array.shape)
    executor.forward(is_train=True, softmax_label=[0, 1, 2, 3, 0])
    executor.backward()
    return executor


def test_arrays_lie_where_their_group_lives():
    executor = ran()
    assert [array.context.device_id for array in executor.arg_arrays] == [0, 1, 1, 2, 2, 2]
    assert executor.grad_dict["fc1_weight"].context == mx.cpu(1)
    assert executor.outputs[0].context == mx.cpu(2)
    assert executor.reshape(data=(3, 6), partial_shaping=True).arg_dict["fc1_bias"].context == mx.cpu(1)


def test_every_node_draws_from_its_own_contexts_generator():
    def outputs(seeded):
        for device in range(3):
            mx.random.seed(100 + device, mx.cpu(device))
        mx.random.seed(7, seeded)
        executor = ran(dropout=0.5)
        once = executor.grad_dict["fc2_weight"].asnumpy()
        executor.backward()  # repeats the other contexts' random numbers
        np.testing.assert_array_equal(executor.grad_dict["fc2_weight"].asnumpy(), once)
        return executor.outputs[0].asnumpy()

    base = outputs(mx.cpu(1))
    np.testing.assert_array_equal(base, outputs(mx.cpu(0)))
    assert not np.array_equal(base, outputs(mx.cpu(2)))


@pytest.mark.parametrize("contexts", [1, 2])
def test_module_trains_with_groups(contexts):
    rng, found = np.random.RandomState(2), []
    shapes = zip(network().list_arguments(), network().infer_shape(data=(16, 6))[0])
    values = {n: mx.nd.array(rng.randn(*s) * 0.3) for n, s in shapes if n.startswith("fc")}
    for groups in (None, {"front": [mx.cpu(3), mx.cpu(4)][:contexts], "back": mx.cpu(5)}):
        mod = mx.mod.Module(network(), context=[mx.cpu(i) for i in range(contexts)], group2ctxs=groups)
        mod.fit(mx.io.NDArrayIter(*blobs(32), batch_size=16), num_epoch=3, arg_params=values)
        found.append({name: value.asnumpy() for name, value in mod.get_params()[0].items()})
    for name, value in found[0].items():
        np.testing.assert_allclose(found[1][name], value, atol=1e-6)
    assert mod.group.param_arrays[0][0].context == mx.cpu(3)
