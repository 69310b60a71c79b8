import numpy as np
import torch

import dpmodule as mx
from dpmodule.executor.interpreter import backward_by_node
from dpmodule.executor.lowering import lower
from dpmodule.executor.program import Program
from dpmodule.ops.spec import Env

S = mx.sym
X = S.Variable("data")


def net():
    x = S.BatchNorm(S.FullyConnected(X, num_hidden=4, name="fc"), fix_gamma=False, name="bn")
    x = S.Dropout(S.Activation(x, act_type="relu", name="act"), p=0.4, name="drop")
    parts = S.SliceChannel(x + S.zeros((0, 4)), num_outputs=2, name="parts")
    return S.SoftmaxOutput(S.Concat(*parts, name="cat"), name="softmax")


def bound(callback=None, monitor_all=False, ctx=None):
    with mx.name.NameManager():
        executor = net().simple_bind(ctx or mx.cpu(), data=(6, 3))
    rng = np.random.RandomState(0)
    for array in (*executor.arg_arrays, *executor.aux_arrays):
        array[:] = mx.nd.array(rng.uniform(0.5, 1, array.shape))
    executor.arg_dict["softmax_label"][:] = mx.nd.array([0, 1, 2, 3, 0, 1])
    if callback:
        executor.set_monitor_callback(callback, monitor_all)
    return executor


def test_every_output_is_shown_in_order_with_its_value_its_context_and_no_history():
    seen = {}
    executor = bound(seen.setdefault, ctx=mx.cpu(1))
    executor.forward()
    names = ["fc", "bn", "act", "drop", "_zeros0", "_plus0", "parts", "parts", "cat", "softmax"]
    ends = ["0" if i == 6 else "1" if i == 7 else "" for i in range(10)]
    assert list(seen) == [f"{name}_output{end}" for name, end in zip(names, ends)]
    values = {name: array.asnumpy() for name, array in executor.arg_dict.items()}
    want = values["data"] @ values["fc_weight"].T + values["fc_bias"]
    np.testing.assert_allclose(seen["fc_output"].asnumpy(), want, rtol=1e-5)
    assert np.array_equal(seen["softmax_output"].asnumpy(), executor.outputs[0].asnumpy())
    seen.clear()
    executor.forward(is_train=True)
    assert all(a.context == mx.cpu(1) and not a.tensor.requires_grad for a in seen.values())


def test_inputs_are_shown_under_mxnets_names():
    seen = []
    bound(lambda name, array: seen.append((name, array.shape)), True).forward()
    bias, weight = [("fc_bias", (4,))] * 2, [("fc_weight", (4, 3))] * 2
    # MXNet shows a variable under its own name, then as the operator's input
    norm = [("bn_data", (6, 4)), ("bn_gamma", (4,))]
    assert seen[:9] == [("data", (6, 3)), ("fc_data", (6, 3)), *weight, *bias, ("fc_output", (6, 4)), *norm]
    assert {("parts_data", (6, 4)), ("cat_arg1", (6, 2))} <= set(seen)


def test_a_reshaped_executor_keeps_the_callback():
    seen, executor = [], S.exp(X, name="e").simple_bind(mx.cpu(), data=(2,))
    executor.set_monitor_callback(lambda name, array: seen.append((name, array.shape)))
    executor.reshape(data=(1,)).forward()
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


def test_backward_is_shown_with_the_engines_gradients():
    """Under MXNet's names; zeros for inputs that no gradient is wanted for, and the same dropout mask."""
    net = S.Dropout(S.FullyConnected(X, num_hidden=3, name="fc"), p=0.5, name="drop")
    requests, seen = {"fc_weight": "write", "fc_bias": "write"}, {}
    executor = S.LinearRegressionOutput(net, name="out").simple_bind(mx.cpu(), requests, data=(4, 2))
    for array in executor.arg_dict.values():
        array[:] = np.random.RandomState(array.size).randn(*array.shape)
    executor.set_monitor_callback(lambda name, array: seen.update({name: array.asnumpy()}))
    executor.forward(is_train=True)
    executor.backward()
    names = ["out_backward_output0", "out_backward_output1", "drop_backward_output"]
    assert [n for n in seen if "backward" in n] == [*names, *(f"fc_backward_output{i}" for i in range(3))]
    for i, name in ((1, "fc_weight"), (2, "fc_bias")):
        np.testing.assert_array_equal(seen[f"fc_backward_output{i}"], executor.grad_dict[name].asnumpy())
    assert not seen["fc_backward_output0"].any()
    want = seen["drop_output"] - executor.arg_dict["out_label"].asnumpy()
    np.testing.assert_allclose(seen["out_backward_output0"], want / 3, rtol=1e-6)


def test_steps_that_write_over_their_input_can_go_backward_one_by_one():
    x = S.FullyConnected(X, num_hidden=4, name="fc")
    executor, found = (S.relu(x + 1, name="act") * 2).simple_bind(mx.cpu(), data=(2, 3)), []
    for array in executor.arg_arrays:
        array[:] = np.random.RandomState(0).uniform(-1, 1, array.shape)
    low = lower(executor.graph, recorded=True)
    (step,) = [s for s in low.steps if low.graph.nodes[s.node].name == "act"]
    for step.function in (torch.relu, torch.relu_):
        values = [array.tensor.clone().requires_grad_() for array in executor.arg_arrays]
        env, heads, seen = Env(torch.device("cpu"), None, True), {low.heads[0]: torch.ones(2, 4)}, {}
        assert backward_by_node(Program(low), values, env, [], heads, seen.__setitem__) == -1
        found.append(seen)
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    assert found[0]["fc_backward_output0"].abs().sum() > 0
