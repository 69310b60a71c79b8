"""Networks of dense layers: the same outputs and gradients by oneDNN and by torch."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import NodeError
from dpmodule.ops.nn import dense, linear

S = mx.sym


def choose(monkeypatch, library):
    """Force one of the two libraries; products of any size count as large."""
    monkeypatch.setenv("DPMODULE_ONEDNN", "1" if library == "onednn" else "0")
    linear.onednn_is_faster.cache_clear()
    for module in (linear, dense):
        monkeypatch.setattr(module, "ONEDNN_MIN_WORK", 0)


@pytest.fixture(params=["onednn", "torch"])
def library(request, monkeypatch):
    choose(monkeypatch, request.param)
    yield request.param
    linear.onednn_is_faster.cache_clear()


def perceptron(acts=("relu", "tanh", None), sizes=(7, 6, 5), no_bias=(False, True, False)):
    net = S.Variable("data")
    for i, (act, size, bare) in enumerate(zip(acts, sizes, no_bias, strict=True)):
        net = S.FullyConnected(net, num_hidden=size, no_bias=bare, name=f"fc{i}")
        if act is not None:
            net = S.Activation(net, act_type=act)
    return S.SoftmaxOutput(net, name="softmax")


def middle_is_an_output():
    inner = S.FullyConnected(S.Variable("data"), num_hidden=6, name="fc0")
    net = S.FullyConnected(S.relu(inner), num_hidden=5, name="fc1")
    return S.Group([S.SoftmaxOutput(net, name="softmax"), S.BlockGrad(inner)])


def two_readers():
    inner = S.sigmoid(S.FullyConnected(S.Variable("data"), num_hidden=6, name="fc0"))
    left = S.FullyConnected(inner, num_hidden=5, name="fc1")
    right = S.tanh(S.FullyConnected(inner, num_hidden=5, name="fc2"))
    return S.SoftmaxOutput(left + right, name="softmax")


def shared_weight():
    weight, net = S.Variable("w"), S.Variable("data")
    for i in range(3):
        net = S.relu(S.FullyConnected(net, weight, num_hidden=12, no_bias=True, name=f"fc{i}"))
    return S.SoftmaxOutput(net, name="softmax")


NETS = {
    "mixed": perceptron,
    "sigmoid": lambda: perceptron(("sigmoid", "sigmoid", "relu")),
    "linear only": lambda: perceptron((None, None, None)),
    "others between": lambda: perceptron(("softrelu", "relu", "softsign")),
    "two readers": two_readers,
    "shared weight": shared_weight,
    "a layer is an output": middle_is_an_output,
}


def run(net, shape=(9, 12), grad_req="write", dtype="float32", is_train=True, steps=1):
    types = dict.fromkeys(net.list_arguments(), dtype)
    bound = net.simple_bind(mx.cpu(), grad_req=grad_req, type_dict=types, data=shape)
    rng = np.random.RandomState(0)
    for name, array in bound.arg_dict.items():
        array[:] = rng.randint(0, 5, array.shape) if "label" in name else rng.uniform(-1, 1, array.shape)
    for _ in range(steps):
        outs = [o.asnumpy() for o in bound.forward(is_train=is_train)]
        bound.backward()
    return outs, {k: v.asnumpy() for k, v in bound.grad_dict.items() if v is not None}, bound


def compare(net, monkeypatch, **options):
    """Compare what oneDNN and torch make of a network."""
    choose(monkeypatch, "torch")
    outs, grads, _ = run(net, **options)
    choose(monkeypatch, "onednn")
    got, found, _ = run(net, **options)
    linear.onednn_is_faster.cache_clear()
    for a, b in zip(got, outs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert set(found) == set(grads)
    for key, grad in grads.items():
        np.testing.assert_allclose(found[key], grad, rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", NETS)
def test_outputs_and_gradients_agree(name, monkeypatch):
    compare(NETS[name](), monkeypatch)


def test_nan_behind_a_rectifier():
    """As in MXNet, `relu` passes NaN back where it read NaN, whatever gradient it is given."""
    low = S.relu(S.FullyConnected(S.Variable("data"), num_hidden=4, name="fc0"))
    net = S.MakeLoss(S.FullyConnected(low, num_hidden=2, name="fc1"))
    data = np.ones((3, 5))
    data[1, 2] = np.nan
    bound = net.simple_bind(mx.cpu(), data=(3, 5))
    for name, array in bound.arg_dict.items():
        array[:] = data if name == "data" else 0.5
    bound.forward(is_train=True)
    bound.backward()
    for name, grad in bound.grad_dict.items():
        assert np.isnan(grad.asnumpy()).any() == (name != "fc1_bias"), name
    assert np.isfinite(bound.grad_dict["data"].asnumpy()[[0, 2]]).all()


def test_a_weight_written_before_backward_counts(library):
    """Its gradients are those of the weight as it then is, of the results that forward has left."""
    bound = run(perceptron())[2]
    bound.forward(is_train=True)
    bound.arg_dict["fc1_weight"][:] = 0
    bound.backward()
    assert not bound.grad_dict["fc0_weight"].asnumpy().any()
    assert bound.grad_dict["fc1_weight"].asnumpy().any()


def test_an_error_names_the_node(library):
    bound = run(perceptron())[2]
    bound.arg_dict["fc1_weight"].tensor = bound.arg_dict["fc1_weight"].tensor[:, :2].contiguous()
    with pytest.raises(
        NodeError, match=r"FullyConnected 'fc1' made at .*test_dense_layers.py:\d+ .*fc1_weight"
    ):
        bound.forward(is_train=True)


@pytest.mark.parametrize("is_train", [True, False])
def test_a_second_backward_and_adding_up(is_train, monkeypatch):
    compare(perceptron(), monkeypatch, grad_req="add", steps=2, is_train=is_train)
    bound = run(perceptron())[2]
    first = bound.grad_dict["fc0_weight"].asnumpy()
    bound.backward()
    np.testing.assert_allclose(bound.grad_dict["fc0_weight"].asnumpy(), first, rtol=1e-5)


@pytest.mark.parametrize("kept", ["fc0_weight", "fc1_weight", "fc2_bias", "data"])
def test_only_some_gradients_are_wanted(kept, library):
    net = perceptron()
    grads = run(net, grad_req={kept: "write"})[1]
    np.testing.assert_allclose(grads[kept], run(net)[1][kept], rtol=1e-5, atol=1e-7)
    assert list(grads) == [kept]


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_types(dtype, monkeypatch):
    compare(perceptron(), monkeypatch, dtype=dtype)


def test_images_are_flattened(monkeypatch):
    compare(perceptron(), monkeypatch, shape=(9, 3, 2, 2))


def test_rows_of_sequences_keep_their_axes(library):
    net = S.FullyConnected(S.Variable("data"), num_hidden=6, flatten=False, name="fc0")
    net = S.FullyConnected(S.relu(net), num_hidden=5, flatten=False, name="fc1")
    given = weights(net)
    hidden = np.maximum(np.ones((2, 3, 4)) @ given["fc0_weight"].asnumpy().T + given["fc0_bias"].asnumpy(), 0)
    expected = hidden @ given["fc1_weight"].asnumpy().T + given["fc1_bias"].asnumpy()
    got = net.eval(data=mx.nd.ones((2, 3, 4)), **given)[0].asnumpy()
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_a_layer_that_flattens_what_the_one_before_did_not(library):
    net = S.FullyConnected(S.Variable("data"), num_hidden=6, flatten=False, name="fc0")
    net = S.FullyConnected(S.relu(net), num_hidden=5, name="fc1")
    given = weights(net)
    hidden = np.maximum(np.ones((2, 3, 4)) @ given["fc0_weight"].asnumpy().T + given["fc0_bias"].asnumpy(), 0)
    expected = hidden.reshape(2, 18) @ given["fc1_weight"].asnumpy().T + given["fc1_bias"].asnumpy()
    got = net.eval(data=mx.nd.ones((2, 3, 4)), **given)[0].asnumpy()
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def weights(net):
    shapes = dict(zip(net.list_arguments(), net.infer_shape(data=(2, 3, 4))[0], strict=True))
    rng = np.random.RandomState(1)
    return {k: mx.nd.array(rng.uniform(-1, 1, s)) for k, s in sorted(shapes.items()) if k != "data"}


def test_second_derivatives_inside_loops_are_right(library):
    def body(x, state):
        hidden = S.relu(S.FullyConnected(x, num_hidden=3, no_bias=True, name="in"))
        return S.FullyConnected(hidden, num_hidden=3, no_bias=True, name="out") * state, state

    net = S.contrib.foreach(body, S.Variable("x"), S.Variable("s"))[0]
    bound = net.simple_bind(mx.cpu(), x=(2, 4, 3), s=(4, 3))
    for array in bound.arg_dict.values():
        array[:] = 0.5
    bound.forward(is_train=True)
    bound.backward(mx.nd.ones((2, 4, 3)))
    np.testing.assert_allclose(bound.grad_dict["x"].asnumpy(), 0.5 * 9 * 0.25, rtol=1e-5)


def test_two_contexts_agree_with_one(library):
    rng = np.random.RandomState(0)
    data, label = rng.uniform(-1, 1, (32, 12)).astype("f"), rng.randint(0, 5, 32).astype("f")
    found = []
    for contexts in (mx.cpu(), [mx.cpu(0), mx.cpu(1)]):
        module = mx.mod.Module(perceptron(), context=contexts)
        mx.random.seed(3)
        module.fit(mx.io.NDArrayIter(data, label, 16), num_epoch=2, initializer=mx.init.Xavier())
        found.append(module.get_params()[0]["fc0_weight"].asnumpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-6)
