"""Moving means and variances of layers that are not trained stay as they are, as with MXNet 1.9.1 (each case tried)."""

import numpy as np
import pytest

import dpmodule as mx

INPUTS = ("data", "softmax_label")


def network():
    net = mx.sym.Variable("data")
    for i in range(3):
        net = mx.sym.FullyConnected(net, num_hidden=4, name=f"fc{i}")
        net = mx.sym.BatchNorm(net, fix_gamma=i == 1, momentum=0.5, name=f"bn{i}")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def moved(net, trained, backward=True):
    """Return the numbers of the layers whose states a step over random data changes."""
    req = {name: "write" if trained(name) else "null" for name in net.list_arguments()}
    executor = net.simple_bind(mx.cpu(), data=(5, 3), grad_req=req)
    rng = np.random.RandomState(0)
    for name in sorted(executor.arg_dict):
        executor.arg_dict[name][:] = rng.rand(*executor.arg_dict[name].shape)
    executor.forward(is_train=True)
    if backward:
        executor.backward()
    changed = {
        name: bool(state.asnumpy().any()) for name, state in executor.aux_dict.items() if "mean" in name
    }
    return [i for i in range(3) if changed.get(f"bn{i}_moving_mean")]


@pytest.mark.parametrize(
    ("trained", "expected"),
    [
        (lambda n: n not in INPUTS, [0, 1, 2]),
        (lambda n: n not in INPUTS and not n.startswith(("fc0", "bn0")), [1, 2]),
        (lambda n: n == "bn1_gamma", [1, 2]),
        (lambda n: n.startswith("bn2"), [2]),
        (lambda n: n == "data", [0, 1, 2]),
        (lambda n: False, []),
    ],
    ids=["all", "from_fc1", "fixed_gamma", "last", "data", "nothing"],
)
def test_states_move_from_the_first_trained_layer_on(trained, expected):
    assert moved(network(), trained) == expected


def test_forward_alone_moves_none():
    assert moved(network(), lambda n: n not in INPUTS, backward=False) == []


def test_a_blockgrad_above_does_not_hold_them():
    inner = network().get_internals()["bn1_output"]
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.BlockGrad(inner), num_hidden=3), name="softmax")
    assert moved(net, lambda n: n not in INPUTS) == [0, 1]


def test_a_module_with_fixed_parameters_keeps_the_states_below():
    net = network()
    fixed = [n for n in net.list_arguments() if n.startswith(("fc0", "bn0"))]
    mod = mx.mod.Module(net, fixed_param_names=fixed)
    mod.bind([("data", (5, 3))], [("softmax_label", (5,))])
    mod.init_params(mx.init.Xavier())
    mod.init_optimizer()
    batch = mx.io.DataBatch([mx.nd.array(np.arange(15).reshape(5, 3))], [mx.nd.zeros((5,))])
    for _ in range(3):
        mod.forward_backward(batch)
        mod.update()
    states = mod.get_params()[1]
    assert not states["bn0_moving_mean"].asnumpy().any()
    assert states["bn0_moving_var"].asnumpy().tolist() == [1] * 4
    assert states["bn1_moving_mean"].asnumpy().any()
