"""Model parallelism by context groups; on the CPU every context is the same torch device, but still a place."""

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import ArgumentError, DeviceError
from helpers.nets import blobs

GROUPS = {"front": mx.cpu(1), "back": mx.cpu(2)}


def network(dropout=0.0):
    data = mx.sym.Variable("data")
    with mx.AttrScope(ctx_group="front"):
        net = mx.sym.FullyConnected(data, num_hidden=8, name="fc1")
        net = mx.sym.Activation(net, act_type="tanh", name="act1")
    with mx.AttrScope(ctx_group="back"):
        if dropout:
            net = mx.sym.Dropout(net, p=dropout, name="drop")
        net = mx.sym.FullyConnected(net, num_hidden=4, name="fc2")
        net = mx.sym.SoftmaxOutput(net, name="softmax")
    return net


def filled(executor, seed=0):
    rng = np.random.RandomState(seed)
    for array in executor.arg_dict.values():
        array[:] = rng.randn(*array.shape)
    executor.arg_dict["softmax_label"][:] = [0, 1, 2, 3, 0]
    return executor


def test_arrays_lie_where_their_group_lives():
    executor = network().simple_bind(mx.cpu(0), group2ctx=GROUPS, data=(5, 6))
    where = {name: array.context for name, array in executor.arg_dict.items()}
    assert where == {
        "data": mx.cpu(0),
        "fc1_weight": mx.cpu(1),
        "fc1_bias": mx.cpu(1),
        "fc2_weight": mx.cpu(2),
        "fc2_bias": mx.cpu(2),
        "softmax_label": mx.cpu(2),
    }
    assert executor.grad_dict["fc1_weight"].context == mx.cpu(1)
    assert executor.outputs[0].context == mx.cpu(2)
    assert executor.reshape(data=(3, 6), partial_shaping=True).arg_dict["fc1_bias"].context == mx.cpu(1)


def test_results_do_not_depend_on_the_placement():
    plain = filled(network().simple_bind(mx.cpu(0), data=(5, 6)))
    spread = filled(network().simple_bind(mx.cpu(0), group2ctx=GROUPS, data=(5, 6)))
    for executor in (plain, spread):
        executor.forward(is_train=True)
        executor.backward()
    np.testing.assert_array_equal(plain.outputs[0].asnumpy(), spread.outputs[0].asnumpy())
    for name, grad in plain.grad_dict.items():
        np.testing.assert_array_equal(spread.grad_dict[name].asnumpy(), grad.asnumpy())


def test_every_node_draws_from_its_own_contexts_generator():
    def mask(seeded):
        for device in range(3):
            mx.random.seed(100 + device, mx.cpu(device))
        mx.random.seed(7, seeded)
        executor = filled(network(0.5).simple_bind(mx.cpu(0), group2ctx=GROUPS, data=(5, 6)))
        executor.forward(is_train=True)
        return executor.outputs[0].asnumpy()

    base = mask(mx.cpu(1))
    np.testing.assert_array_equal(base, mask(mx.cpu(0)))
    assert not np.array_equal(base, mask(mx.cpu(2)))


def test_a_second_backward_repeats_the_other_contexts_random_numbers():
    executor = filled(network(0.5).simple_bind(mx.cpu(0), group2ctx=GROUPS, data=(5, 6)))
    executor.forward(is_train=True)
    executor.backward()
    once = executor.grad_dict["fc2_weight"].asnumpy()
    executor.backward()
    np.testing.assert_array_equal(executor.grad_dict["fc2_weight"].asnumpy(), once)


@pytest.mark.parametrize("contexts", [1, 2])
def test_module_trains_with_groups(contexts):
    data = blobs(32)
    rng = np.random.RandomState(2)
    shapes = dict(zip(network().list_arguments(), network().infer_shape(data=(16, 6))[0]))
    values = {
        n: mx.nd.array(rng.randn(*s) * 0.3) for n, s in shapes.items() if n not in ("data", "softmax_label")
    }
    found = []
    for groups in (None, {"front": [mx.cpu(3), mx.cpu(4)][:contexts], "back": mx.cpu(5)}):
        mod = mx.mod.Module(network(), context=[mx.cpu(i) for i in range(contexts)], group2ctxs=groups)
        mod.fit(mx.io.NDArrayIter(*data, batch_size=16), num_epoch=3, arg_params=values)
        found.append(mod)
    for name, value in found[0].get_params()[0].items():
        np.testing.assert_allclose(found[1].get_params()[0][name].asnumpy(), value.asnumpy(), atol=1e-6)
    assert found[1].group.param_arrays[0][0].context == mx.cpu(3)


def test_a_group_without_a_context_is_named():
    with pytest.raises(
        ArgumentError, match=r"'fc1_weight'.* belongs to the context group 'front', but group2ctx"
    ):
        network().simple_bind(mx.cpu(0), group2ctx={"back": mx.cpu(1)}, data=(5, 6))
    with pytest.raises(ArgumentError, match="expected a dict of Contexts"):
        network().simple_bind(mx.cpu(0), group2ctx={"front": "cpu"}, data=(5, 6))
    with pytest.raises(DeviceError, match=r"gpu\(77\)"):
        network().simple_bind(mx.cpu(0), group2ctx={"front": mx.gpu(77), "back": mx.cpu(0)}, data=(5, 6))


@pytest.mark.parametrize("groups", [[{}], {"front": [mx.cpu(0)] * 3, "back": mx.cpu(0)}])
def test_module_wants_contexts_for_every_device(groups):
    mod = mx.mod.Module(network(), context=[mx.cpu(0), mx.cpu(1)], group2ctxs=groups)
    with pytest.raises(ArgumentError, match="group2ctxs"):
        mod.bind([("data", (4, 6))], [("softmax_label", (4,))])


@pytest.mark.gpu
def test_groups_on_cpu_and_gpu():
    groups = {"front": mx.gpu(0), "back": mx.cpu(0)}
    plain = filled(network().simple_bind(mx.cpu(0), data=(5, 6)))
    spread = filled(network().simple_bind(mx.cpu(0), group2ctx=groups, data=(5, 6)))
    for executor in (plain, spread):
        executor.forward(is_train=True)
        executor.backward()
    assert spread.arg_dict["fc1_weight"].tensor.device == torch.device("cuda", 0)
    for name, grad in plain.grad_dict.items():
        np.testing.assert_allclose(spread.grad_dict[name].asnumpy(), grad.asnumpy(), rtol=1e-4, atol=1e-5)


def test_a_list_of_one_context_is_for_every_device():
    groups = {"front": [mx.cpu(2)], "back": mx.cpu(3)}
    mod = mx.mod.Module(network(), context=[mx.cpu(0), mx.cpu(1)], group2ctxs=groups)
    mod.bind([("data", (4, 6))], [("softmax_label", (4,))])
    assert mod._exec_group.group2ctxs == [{"front": mx.cpu(2), "back": mx.cpu(3)}] * 2
