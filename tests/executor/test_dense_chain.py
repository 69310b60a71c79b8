"""Perceptrons, which run and are trained without autograd: as plain PyTorch computes them."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule import native
from dpmodule.base import NodeError
from dpmodule.executor import dense_chain, packed_weights
from dpmodule.executor.dense_chain import ChainRoot
from dpmodule.ops import write_tracking
from dpmodule.ops.nn import linear

S = mx.sym
FUNCTIONS = {"relu": torch.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh}
LAYERS = st.lists(
    st.tuples(st.integers(1, 40), st.booleans(), st.sampled_from([None, *FUNCTIONS])), min_size=1, max_size=4
)


def perceptron(layers):
    net = S.Variable("data")
    for i, (units, bare, act) in enumerate(layers):
        net = S.FullyConnected(net, num_hidden=units, no_bias=bare, name=f"fc{i}")
        net = net if act is None else S.Activation(net, act_type=act)
    return S.SoftmaxOutput(net, name="softmax")


def bind(net, shape, grad_req="write"):
    bound = net.simple_bind(mx.cpu(), grad_req=grad_req, data=shape)
    rng = np.random.RandomState(0)
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


def is_chain(bound):
    bound.forward(is_train=True)
    return isinstance(bound._run.roots[0], ChainRoot)


@settings(suppress_health_check=[HealthCheck.too_slow])  # the first draw of a busy machine
@given(
    LAYERS, st.integers(1, 70), st.sampled_from([(9,), (300,), (3, 4, 5)]), st.sampled_from(["write", "add"])
)
def test_outputs_and_gradients_are_those_of_torch(layers, rows, features, grad_req):
    bound = bind(perceptron(layers), (rows, *features), grad_req)
    assert is_chain(bound)
    for times in (1, 2):
        outputs = bound.forward(is_train=True)[0].asnumpy()
        bound.backward()
        want, grads = by_torch(bound, layers)
        np.testing.assert_allclose(outputs, want, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(bound.forward()[0].asnumpy(), want, rtol=1e-4, atol=1e-6)
        for name, grad in grads.items():
            grad = grad * (times if grad_req == "add" else 1)
            np.testing.assert_allclose(
                bound.grad_dict[name].asnumpy(), grad, rtol=1e-3, atol=1e-4, err_msg=name
            )


def test_only_gradients_that_are_wanted():
    layers = [(6, False, "tanh"), (5, False, "relu"), (3, True, None)]
    wanted = {"fc0_bias": "write", "fc1_weight": "add"}
    bound = bind(perceptron(layers), (4, 7), wanted)
    assert is_chain(bound)
    bound.backward()
    grads = by_torch(bound, layers)[1]
    found = {name: grad for name, grad in bound.grad_dict.items() if grad is not None}
    assert found.keys() == wanted.keys()
    for name, grad in found.items():
        np.testing.assert_allclose(grad.asnumpy(), grads[name], rtol=1e-4, atol=1e-6)


def test_a_second_backward_gives_the_same_once_more():
    bound = bind(perceptron([(6, False, "sigmoid"), (3, False, None)]), (4, 7))
    bound.forward(is_train=True)
    bound.backward()
    first = {name: grad.asnumpy() for name, grad in bound.grad_dict.items() if grad is not None}
    bound.backward()
    for name, grad in first.items():
        np.testing.assert_array_equal(bound.grad_dict[name].asnumpy(), grad)


def test_a_listener_hears_of_each_gradient_from_the_loss_on():
    bound = bind(perceptron([(6, False, "relu"), (3, False, None)]), (4, 7))
    bound.forward(is_train=True)
    heard = []
    bound.backward(listener=lambda name, grad: heard.append((name, grad.clone())))
    assert [name for name, _ in heard] == ["fc1_bias", "fc1_weight", "fc0_bias", "fc0_weight", "data"]
    for name, grad in heard:
        np.testing.assert_array_equal(bound.grad_dict[name].asnumpy(), grad.numpy())


def test_memory_that_cannot_be_had_names_the_layer(monkeypatch):
    bound = bind(perceptron([(6, False, "relu"), (3, False, None)]), (4, 7))
    assert is_chain(bound)

    def fails(data, weight, bias=None):
        if weight.shape[0] == 3:
            raise RuntimeError("not enough memory")
        return torch.nn.functional.linear(data, weight, bias)

    chain = bound._prepared[True, True, False].forward
    monkeypatch.setattr(chain, "_products", [(fails, fails, fails)] * 2)
    with pytest.raises(NodeError, match=r"FullyConnected 'fc1'.*\(4, 6\).*not enough memory"):
        bound.forward(is_train=True)
    monkeypatch.undo()
    assert is_chain(bound)


def others():
    data, weight = S.Variable("data"), S.Variable("w")
    dense = S.FullyConnected(data, num_hidden=4, name="fc")
    twice = S.FullyConnected(
        S.FullyConnected(data, weight, no_bias=True, num_hidden=7), weight, no_bias=True, num_hidden=7
    )
    return {
        "a weight read twice": S.SoftmaxOutput(twice, name="softmax"),
        "relu that passes NaN back": S.SoftmaxOutput(S.relu(dense), name="softmax"),
        "another operator": S.SoftmaxOutput(S.Dropout(dense), name="softmax"),
        "no loss": S.Activation(dense, act_type="tanh"),
        "two heads": S.Group([S.SoftmaxOutput(dense, name="softmax"), S.BlockGrad(dense)]),
        "no layer": S.SoftmaxOutput(S.Activation(data, act_type="tanh"), name="softmax"),
        "a label made inside": S.SoftmaxOutput(dense, S.abs(S.Variable("softmax_label")), name="softmax"),
    }


@pytest.mark.parametrize("name", others())
def test_other_graphs_are_left_to_autograd(name):
    assert not is_chain(bind(others()[name], (5, 7)))


def test_other_types_are_left_to_autograd():
    net = perceptron([(6, False, "relu"), (3, False, None)])
    types = dict.fromkeys(net.list_arguments(), "float64")
    assert not is_chain(net.simple_bind(mx.cpu(), data=(4, 7), type_dict=types))


at_once = pytest.mark.skipif(
    getattr(native.core, "vector_width", 0) < 8, reason="there is no kernel for this compiler or processor"
)
LAYERS_AT_ONCE = [(40, False, "relu"), (33, True, None), (3, False, "relu")]


@pytest.fixture
def calls(monkeypatch):
    """Count the predictions of all layers at once; with packs of no other test."""
    packed_weights.entries.clear()
    found = []

    def dense(data, layers):
        found.append(len(layers))
        return linear.dense(data, layers)

    monkeypatch.setattr(dense_chain, "dense", dense)
    yield found
    packed_weights.entries.clear()


def predicted(bound):
    return bound.forward(is_train=False)[0].asnumpy()


@at_once
def test_prediction_with_weights_that_stay_is_one_call(calls):
    bound = bind(perceptron(LAYERS_AT_ONCE), (21, 3, 100))
    found = [predicted(bound) for _ in range(3)]
    assert calls == [3, 3]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_allclose(found[0], by_torch(bound, LAYERS_AT_ONCE)[0], rtol=1e-4, atol=1e-6)


CHANGES = {
    "an array": lambda bound, name: bound.arg_dict[name].__setitem__(slice(None), 0.25),
    "in place": lambda bound, name: bound.arg_dict[name].raw.mul_(-1),
    "other parameters": lambda bound, name: bound.copy_params_from({name: bound.arg_dict[name] * 2}),
}


@at_once
@pytest.mark.parametrize("name", ["fc0_weight", "fc1_weight", "fc0_bias"])
@pytest.mark.parametrize("change", CHANGES)
def test_parameters_that_change_are_seen(change, name, calls):
    bound = bind(perceptron(LAYERS_AT_ONCE), (9, 30))
    before = [predicted(bound) for _ in range(3)][-1]
    CHANGES[change](bound, name)
    for _ in range(3):
        found = predicted(bound)
        assert np.abs(found - before).max() > 1e-3
        np.testing.assert_allclose(found, by_torch(bound, LAYERS_AT_ONCE)[0], rtol=1e-4, atol=1e-6)
    assert len(calls) == (5 if name.endswith("bias") else 4)


@at_once
def test_updates_are_seen_and_training_frees_the_packs(calls):
    module = mx.mod.Module(perceptron(LAYERS_AT_ONCE))
    data = mx.io.NDArrayIter(np.random.RandomState(0).uniform(-1, 1, (40, 30)), np.arange(40) % 3, 10)
    module.bind(data.provide_data, data.provide_label)
    module.init_params(mx.init.Xavier(rnd_type="uniform"))
    before = module.predict(data).asnumpy()
    assert packed_weights.packed_bytes() > 0
    module.fit(data, num_epoch=1, optimizer_params={"learning_rate": 0.5})
    assert packed_weights.packed_bytes() == 0
    counted = len(calls)
    after = module.predict(data).asnumpy()
    assert len(calls) == counted + 3
    assert np.abs(before - after).max() > 1e-3
    exec_ = module.group.execs[0]
    exec_.arg_dict["data"][:] = data.data[0][1][:10]
    np.testing.assert_allclose(after[:10], by_torch(exec_, LAYERS_AT_ONCE)[0], rtol=1e-4, atol=1e-6)


@at_once
def test_what_is_not_one_call(calls):
    layers = [(40, False, "tanh"), (3, False, None)]
    for bound in (bind(perceptron(layers), (9, 30)), bind(perceptron(LAYERS_AT_ONCE), (7, 30))):
        assert len({predicted(bound).tobytes() for _ in range(3)}) == 1
    bound = bind(perceptron(LAYERS_AT_ONCE), (9, 30))
    write_tracking.expose(bound.arg_dict["fc1_weight"].raw)  # somebody may write it without being counted
    assert len({predicted(bound).tobytes() for _ in range(3)}) == 1
    assert calls == []


@at_once
def test_nan_stays_in_its_row(calls):
    bound = bind(perceptron(LAYERS_AT_ONCE), (12, 30))
    want = [predicted(bound) for _ in range(2)][-1]
    bound.arg_dict["data"][3] = np.nan
    found = predicted(bound)
    assert np.isnan(found[3]).all()
    others = np.arange(12) != 3
    np.testing.assert_array_equal(found[others], want[others])
    assert len(calls) == 2
