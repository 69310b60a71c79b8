"""Moving means and variances of layers that are not trained stay as they are, as with MXNet 1.9.1 (each case tried)."""

import numpy as np
import pytest

import dpmodule as mx

S = mx.sym


def network(blocked=False):
    net = S.Variable("data")
    for i in range(2 if blocked else 3):
        net = S.FullyConnected(net, num_hidden=4, name=f"fc{i}")
        net = S.BatchNorm(net, fix_gamma=i == 1, momentum=0.5, name=f"bn{i}")
    net = S.FullyConnected(S.BlockGrad(net), num_hidden=3, name="last") if blocked else net
    return S.SoftmaxOutput(net, name="softmax")


def is_parameter(name):
    return name not in ("data", "softmax_label")


@pytest.mark.parametrize(
    ("net", "trained", "expected"),
    [
        (network(), is_parameter, [0, 1, 2]),
        (network(), lambda n: is_parameter(n) and not n.startswith(("fc0", "bn0")), [1, 2]),
        (network(), lambda n: n == "bn1_gamma", [1, 2]),
        (network(), lambda n: n == "data", [0, 1, 2]),
        (network(), lambda n: False, []),
        (network(blocked=True), is_parameter, [0, 1]),
    ],
    ids=["all", "from_fc1", "fixed_gamma", "data", "nothing", "blocked"],
)
def test_states_move_in_backward_from_the_first_trained_layer_on(net, trained, expected):
    req = {name: "write" if trained(name) else "null" for name in net.list_arguments()}
    executor, rng = net.simple_bind(mx.cpu(), data=(5, 3), grad_req=req), np.random.RandomState(0)
    for _, array in sorted(executor.arg_dict.items()):
        array[:] = rng.rand(*array.shape)
    for run, moved in ((lambda: executor.forward(is_train=True), []), (executor.backward, expected)):
        run()
        changed = [
            name for name, state in executor.aux_dict.items() if "mean" in name and state.asnumpy().any()
        ]
        assert changed == [f"bn{i}_moving_mean" for i in moved]
