"""Perceptrons, which run and are trained without autograd: as plain PyTorch computes them."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule import native
from dpmodule.executor import packed_weights
from dpmodule.executor.dense_chain import ChainRoot
from dpmodule.executor.passes import dense_layers
from dpmodule.ops.nn import linear

S = mx.sym
FUNCTIONS = {"relu": torch.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh}
LAYER = st.tuples(st.integers(1, 40), st.booleans(), st.sampled_from([None, *FUNCTIONS]))
TWO = [(6, False, "relu"), (3, False, None)]


def perceptron(layers):
    net = S.Variable("data")
    for i, (units, bare, act) in enumerate(layers):
        net = S.FullyConnected(net, num_hidden=units, no_bias=bare, name=f"fc{i}")
        net = net if act is None else S.Activation(net, act_type=act)
    return S.SoftmaxOutput(net, name="softmax")


def bind(net, shape, grad_req="write"):
    net = perceptron(net) if isinstance(net, list) else net
    bound, rng = net.simple_bind(mx.cpu(), grad_req=grad_req, data=shape), np.random.RandomState(0)
    for name, array in bound.arg_dict.items():
        array[:] = 0 if name == "softmax_label" else rng.uniform(-1, 1, array.shape)
        if name.endswith("weight"):  # scores of some hundreds would make much of rounding
            array /= array.shape[1] ** 0.5
    return bound


def by_torch(bound, layers):
    """Return probabilities, and the gradient of the cross-entropy with class 0 by each argument."""
    values = {k: torch.from_numpy(v.asnumpy()).requires_grad_() for k, v in bound.arg_dict.items()}
    x = values["data"].flatten(1)
    for i, (_, bare, act) in enumerate(layers):
        x = x @ values[f"fc{i}_weight"].T + (0 if bare else values[f"fc{i}_bias"])
        x = x if act is None else FUNCTIONS[act](x)
    (-torch.log_softmax(x, 1)[:, 0].sum()).backward()
    return x.softmax(1).detach().numpy(), {k: v.grad.numpy() for k, v in values.items() if v.grad is not None}


def gradients(bound):
    return {name: grad.asnumpy() for name, grad in bound.grad_dict.items() if grad is not None}


def is_chain(bound):
    bound.forward(is_train=True)
    return isinstance(bound._run.roots[0], ChainRoot)


def test_data_of_one_axis_is_a_column():
    bound = bind(TWO, (5,))
    assert is_chain(bound)
    bound.backward()
    out, grads = bound.outputs[0].asnumpy(), gradients(bound)
    column = bind(TWO, (5, 1))
    for name, array in column.arg_dict.items():
        array[:] = bound.arg_dict[name].reshape(array.shape)
    column.forward(is_train=True)
    column.backward()
    assert np.array_equal(column.outputs[0].asnumpy(), out)
    for name, grad in gradients(column).items():
        assert np.array_equal(grad.reshape(grads[name].shape), grads[name])


@settings(suppress_health_check=[HealthCheck.too_slow])  # the first draw of a busy machine
@given(
    st.lists(LAYER, min_size=1, max_size=4),
    st.integers(1, 70),
    st.sampled_from([(9,), (300,), (3, 4, 5)]),
    st.sampled_from(["write", "add"]),
)
def test_outputs_and_gradients_are_those_of_torch(layers, rows, features, grad_req):
    bound = bind(layers, (rows, *features), grad_req)
    assert is_chain(bound)
    want, grads = by_torch(bound, layers)
    for times in (1, 2):
        outputs = bound.forward(is_train=True)[0].asnumpy()
        bound.backward()
        for found in (outputs, bound.forward()[0].asnumpy()):
            np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-6)
        found = gradients(bound)
        for name, grad in grads.items():
            grad = grad * (times if grad_req == "add" else 1)
            np.testing.assert_allclose(found[name], grad, rtol=1e-3, atol=1e-4, err_msg=name)


def test_a_listener_hears_of_each_gradient_from_the_loss_on_and_a_second_backward_is_the_same():
    bound, heard = bind(TWO, (4, 7)), []
    bound.forward(is_train=True)
    bound.backward(listener=lambda name, grad: heard.append((name, grad.clone().numpy())))
    assert [name for name, _ in heard] == ["fc1_bias", "fc1_weight", "fc0_bias", "fc0_weight", "data"]
    for _ in range(2):
        for name, grad in heard:
            np.testing.assert_array_equal(gradients(bound)[name], grad)
        bound.backward()


DATA, WEIGHT = S.Variable("data"), S.Variable("w")
DENSE = S.FullyConnected(DATA, num_hidden=4, name="fc")
TIED = S.FullyConnected(DATA, WEIGHT, no_bias=True, num_hidden=7)
OTHERS = [
    # `relu` passes NaN back
    *map(S.SoftmaxOutput, [S.relu(DENSE), S.Dropout(DENSE), S.Activation(DATA, act_type="tanh")]),
    S.SoftmaxOutput(S.FullyConnected(TIED, WEIGHT, no_bias=True, num_hidden=7)),
    S.Group([S.SoftmaxOutput(DENSE), S.BlockGrad(DENSE)]),
    S.SoftmaxOutput(DENSE, S.abs(S.Variable("label"))),
]


def test_other_graphs_and_types_are_left_to_autograd():
    assert [is_chain(bind(net, (5, 7))) for net in OTHERS] == [False] * len(OTHERS)
    net = perceptron(TWO)
    types = dict.fromkeys(net.list_arguments(), "float64")
    assert not is_chain(net.simple_bind(mx.cpu(), data=(4, 7), type_dict=types))


@pytest.mark.parametrize("act", [None, "tanh"])
def test_a_chain_without_a_loss_takes_the_gradient_of_its_output(act):
    net = S.FullyConnected(S.Activation(DENSE, act_type="relu"), num_hidden=3, name="last")
    net = net if act is None else S.Activation(net, act_type=act)
    bound, head = bind(net, (5, 7)), np.random.RandomState(1).standard_normal((5, 3)).astype("float32")
    assert is_chain(bound)
    bound.backward([mx.nd.array(head)])
    values = {name: array.torch().clone().requires_grad_() for name, array in bound.arg_dict.items()}
    hidden = torch.relu(values["data"] @ values["fc_weight"].T + values["fc_bias"])
    want = hidden @ values["last_weight"].T + values["last_bias"]
    want = want if act is None else torch.tanh(want)
    want.backward(torch.from_numpy(head))
    np.testing.assert_allclose(bound.outputs[0].asnumpy(), want.detach(), rtol=1e-5, atol=1e-6)
    for name, value in values.items():
        np.testing.assert_allclose(gradients(bound)[name], value.grad, rtol=1e-4, atol=1e-5, err_msg=name)
    with pytest.raises(mx.base.ArgumentError, match="not a loss"):
        bound.backward()
    with pytest.raises(mx.base.ShapeError, match=r"shape \(5, 2\), expected \(5, 3\)"):
        bound.backward([mx.nd.ones((5, 2))])
    assert bound.explain(is_train=True, times=True, repeats=1).steps


def test_layers_of_the_last_axis_keep_the_other_axes():
    rows = S.FullyConnected(DATA, num_hidden=2, flatten=False, name="fc")
    bound = S.LinearRegressionOutput(rows, S.Variable("label")).simple_bind(mx.cpu(), data=(4, 1, 3))
    assert bound.forward(is_train=True)[0].shape == (4, 1, 2)
    assert bound.forward()[0].shape == (4, 1, 2)


# all layers by one call


at_once = pytest.mark.skipif(getattr(native.core, "vector_width", 0) < 8, reason="there is no such kernel")
LAYERS_AT_ONCE = [(40, False, "relu"), (33, True, None), (3, False, "relu")]


@pytest.fixture
def packs(monkeypatch):
    """Weights that are packed; with packs of no other test."""
    packed_weights.entries.clear()
    found = []
    monkeypatch.setattr(dense_layers, "pack", lambda weight: found.append(weight) or linear.pack(weight))
    yield found
    packed_weights.entries.clear()


def predicted(bound, times=1):
    """Predict some times, which give the same numbers."""
    found = [bound.forward(is_train=False)[0].asnumpy() for _ in range(times)]
    assert len({each.tobytes() for each in found}) == 1
    return found[-1]


def check(found, bound):
    np.testing.assert_allclose(found, by_torch(bound, LAYERS_AT_ONCE)[0], rtol=1e-4, atol=1e-6)


CHANGES = {
    "an array": lambda bound, name: bound.arg_dict[name].__setitem__(slice(None), 0.25),
    "in place": lambda bound, name: bound.arg_dict[name].raw.mul_(-1),
    "other parameters": lambda bound, name: bound.copy_params_from({name: bound.arg_dict[name] * 2}),
}


@at_once
@pytest.mark.parametrize("name", ["fc1_weight", "fc0_bias"])
@pytest.mark.parametrize("change", CHANGES)
def test_weights_that_stay_are_packed_and_changes_seen(change, name, packs):
    bound = bind(LAYERS_AT_ONCE, (21, 3, 100))
    before = predicted(bound, 3)
    assert len(packs) == 6  # for the first prediction, and for all further ones
    check(before, bound)
    CHANGES[change](bound, name)
    found = predicted(bound, 3)
    assert np.abs(found - before).max() > 1e-3
    check(found, bound)
    assert len(packs) == (6 if name.endswith("bias") else 12)
