import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.executor.interpreter import backward_by_node
from dpmodule.executor.lowering import lower
from dpmodule.executor.program import Program
from dpmodule.ops.spec import Env

S = mx.sym


def net():
    x = S.FullyConnected(S.Variable("data"), num_hidden=4, name="fc")
    x = S.BatchNorm(x, fix_gamma=False, name="bn")
    x = S.Dropout(S.Activation(x, act_type="relu", name="act"), p=0.4, name="drop")
    parts = S.SliceChannel(x + S.zeros((0, 4)), num_outputs=2, name="parts")
    return S.SoftmaxOutput(S.Concat(*parts, name="cat"), name="softmax")


def bound(callback=None, monitor_all=False):
    with mx.name.NameManager():
        executor = net().simple_bind(mx.cpu(), data=(6, 3))
    rng = np.random.RandomState(0)
    for array in (*executor.arg_arrays, *executor.aux_arrays):
        array[:] = mx.nd.array(rng.uniform(0.5, 1, array.shape))
    executor.arg_dict["softmax_label"][:] = mx.nd.array([0, 1, 2, 3, 0, 1])
    if callback:
        executor.set_monitor_callback(callback, monitor_all)
    return executor


def results(executor, is_train):
    mx.random.seed(1)
    out = executor.forward(is_train=is_train)[0].asnumpy()
    executor.backward()
    grads = {k: g.asnumpy() for k, g in executor.grad_dict.items()}
    return out, grads, [a.asnumpy() for a in executor.aux_arrays]


@pytest.mark.parametrize("is_train", [True, False])
def test_a_watched_run_gives_the_same(is_train):
    out, grads, states = results(bound(), is_train)
    seen = []
    watched, found, after = results(bound(lambda name, array: seen.append(name), True), is_train)
    assert seen
    assert np.array_equal(out, watched)
    assert all(np.array_equal(grads[k], found[k]) for k in grads)
    assert all(np.array_equal(a, b) for a, b in zip(states, after, strict=True))


def test_every_output_is_shown_in_order_with_its_value():
    seen = {}
    executor = bound(lambda name, array: seen.setdefault(name, array))
    executor.forward()
    assert list(seen) == [
        "fc_output",
        "bn_output",
        "act_output",
        "drop_output",
        "_zeros0_output",
        "_plus0_output",
        "parts_output0",
        "parts_output1",
        "cat_output",
        "softmax_output",
    ]
    want = executor.arg_dict["data"].asnumpy() @ executor.arg_dict["fc_weight"].asnumpy().T
    want += executor.arg_dict["fc_bias"].asnumpy()
    np.testing.assert_allclose(seen["fc_output"].asnumpy(), want, rtol=1e-5)
    assert np.array_equal(seen["softmax_output"].asnumpy(), executor.outputs[0].asnumpy())


def test_inputs_are_shown_under_mxnets_names():
    seen = []
    executor = bound(lambda name, array: seen.append((name, array.shape)), True)
    executor.forward()
    assert seen[:9] == [  # MXNet shows a variable under its own name, then as the operator's input
        ("data", (6, 3)),
        ("fc_data", (6, 3)),
        ("fc_weight", (4, 3)),
        ("fc_weight", (4, 3)),
        ("fc_bias", (4,)),
        ("fc_bias", (4,)),
        ("fc_output", (6, 4)),
        ("bn_data", (6, 4)),
        ("bn_gamma", (4,)),
    ]
    assert ("parts_data", (6, 4)) in seen
    assert ("cat_arg1", (6, 2)) in seen


def test_inputs_without_a_name_in_mxnet_have_its_number():
    seen = []
    graph = mx.sym.softmax(mx.sym.Activation(mx.sym.Variable("x"), "relu", name="act"), name="soft")
    executor = graph.bind(mx.cpu(), {"x": mx.nd.ones((2,))})
    executor.set_monitor_callback(lambda name, array: seen.append(name), True)
    executor.forward()
    assert seen == ["x", "act_input0", "act_output", "soft_data", "soft_output"]


def test_a_reshaped_executor_keeps_the_callback():
    seen = []
    executor = mx.sym.exp(mx.sym.Variable("x"), name="e").simple_bind(mx.cpu(), x=(2,))
    executor.set_monitor_callback(lambda name, array: seen.append((name, array.shape)))
    executor.reshape(x=(1,)).forward()
    assert seen == [("e_output", (1,))]


def test_the_callback_is_taken_away_and_shown_no_forward_by_a_second_backward():
    seen = []
    executor = bound(lambda name, array: seen.append(name))
    executor.forward(is_train=True)
    executor.backward()
    count = len(seen)
    executor.backward()
    assert all("_backward_output" in name for name in seen[count:])
    count = len(seen)
    executor.set_monitor_callback(None)
    executor.forward()
    assert len(seen) == count


def test_shown_arrays_carry_the_context_and_no_history():
    seen = []
    executor = net().simple_bind(mx.cpu(1), data=(6, 3))
    executor.set_monitor_callback(lambda name, array: seen.append(array))
    executor.forward(is_train=True)
    assert all(a.context == mx.cpu(1) and not a.tensor.requires_grad for a in seen)


def test_backward_is_shown_with_the_engines_gradients():
    """Under MXNet's names; zeros for inputs that no gradient is wanted for, and the same dropout mask."""
    data = mx.sym.Variable("data")
    net = mx.sym.Dropout(mx.sym.FullyConnected(data, num_hidden=3, name="fc"), p=0.5, name="drop")
    executor = mx.sym.LinearRegressionOutput(net, name="out").simple_bind(
        mx.cpu(), grad_req={"fc_weight": "write", "fc_bias": "write"}, data=(4, 2)
    )
    for array in executor.arg_dict.values():
        array[:] = np.random.RandomState(array.size).randn(*array.shape)
    seen = {}
    executor.set_monitor_callback(lambda name, array: seen.update({name: array.asnumpy()}))
    executor.forward(is_train=True)
    executor.backward()
    assert [n for n in seen if "backward" in n] == [
        *("out_backward_output0", "out_backward_output1"),
        "drop_backward_output",
        *(f"fc_backward_output{i}" for i in range(3)),
    ]
    np.testing.assert_array_equal(seen["fc_backward_output1"], executor.grad_dict["fc_weight"].asnumpy())
    np.testing.assert_array_equal(seen["fc_backward_output2"], executor.grad_dict["fc_bias"].asnumpy())
    assert not seen["fc_backward_output0"].any()
    want = seen["drop_output"] - executor.arg_dict["out_label"].asnumpy()
    np.testing.assert_allclose(seen["out_backward_output0"], want / 3, rtol=1e-6)


def test_a_monitor_sees_the_gradient_of_each_of_several_losses_on_one_value():
    both = S.tanh(S.Variable("data"), name="both")
    losses = [S.LinearRegressionOutput(both, S.Variable(f"{n}_label"), name=n) for n in ("one", "two")]
    executor = S.Group([*losses, both]).simple_bind(mx.cpu(), data=(2, 3))
    seen = {}
    executor.set_monitor_callback(lambda name, array: seen.__setitem__(name, array.asnumpy()))
    values = {"data": 0.5, "one_label": 1.0, "two_label": -1.0}
    executor.forward(is_train=True, **{name: np.full((2, 3), value) for name, value in values.items()})
    executor.backward([None, None, mx.nd.full((2, 3), 10)])
    y = np.tanh(0.5)
    np.testing.assert_allclose(seen["one_backward_output0"], (y - 1) / 3 + np.zeros((2, 3)), rtol=1e-5)
    np.testing.assert_allclose(seen["two_backward_output0"], (y + 1) / 3 + np.zeros((2, 3)), rtol=1e-5)
    np.testing.assert_allclose(seen["both_backward_output"], executor.grad_dict["data"].asnumpy(), rtol=1e-6)


def test_steps_that_write_over_their_input_can_go_backward_one_by_one():
    x = S.FullyConnected(S.Variable("data"), num_hidden=4, name="fc")
    executor = (S.relu(x + 1, name="act") * 2).simple_bind(mx.cpu(), data=(2, 3))
    for array in executor.arg_arrays:
        array[:] = np.random.RandomState(0).uniform(-1, 1, array.shape)
    low = lower(executor.graph, recorded=True)
    (step,) = [s for s in low.steps if low.graph.nodes[s.node].name == "act"]
    found = []
    for step.function in (torch.relu, torch.relu_):
        values = [array.tensor.clone().requires_grad_() for array in executor.arg_arrays]
        seen = {}
        env = Env(torch.device("cpu"), None, True)
        heads = {low.heads[0]: torch.ones(2, 4)}
        assert backward_by_node(Program(low), values, env, [], heads, seen.__setitem__) == -1
        found.append(seen)
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    assert found[0]["fc_backward_output0"].abs().sum() > 0
