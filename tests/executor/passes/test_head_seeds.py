import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import ops
from dpmodule.base import ArgumentError
from dpmodule.ops.spec import Env
from helpers.switched import same_with_and_without

S = mx.sym
NAME = "head_seeds"
SHAPE = {"data": (4, 6)}


DATA = S.Variable("data")


def dense(count=3, name="fc", **attrs):
    return S.FullyConnected(DATA, num_hidden=count, name=name, **attrs)


def softmax(scores, **attrs):
    return S.SoftmaxOutput(scores, name="softmax", **attrs)


FREE = {
    "plain": lambda: softmax(dense()),
    "scaled": lambda: softmax(dense(), grad_scale=0.3),
    "ignore": lambda: softmax(dense(), use_ignore=True, ignore_label=1, normalization="valid"),
    "batch": lambda: softmax(dense(), normalization="batch"),
    "smooth": lambda: softmax(dense(), smooth_alpha=0.2),
    "times output": lambda: softmax(dense(), out_grad=True),
    "all but the first axis": lambda: softmax(S.Reshape(dense(), shape=(0, 1, -1))),
    "last axis": lambda: softmax(S.Reshape(dense(), shape=(-1, 1, 3)), preserve_shape=True),
    "second axis": lambda: softmax(S.Reshape(dense(6), shape=(-1, 3, 2)), multi_output=True, use_ignore=True),
    "logistic": lambda: S.LogisticRegressionOutput(dense(), name="softmax"),
    "logistic scaled": lambda: S.LogisticRegressionOutput(dense(), name="softmax", grad_scale=0.1),
    "sum": lambda: softmax(dense() + dense(name="other")),
    "product": lambda: softmax(S.dot(DATA, S.Variable("w", shape=(6, 3)))),
    "transposed": lambda: softmax(S.transpose(dense(4))),
}


@pytest.mark.parametrize("case", FREE)
@pytest.mark.parametrize("is_train", [True, False])
def test_gradients_are_the_same_bits(case, is_train):
    assert same_with_and_without(FREE[case](), SHAPE, NAME, rtol=0, is_train=is_train)[NAME] == 1


@pytest.mark.parametrize("grad_req", ["write", "add"])
def test_two_losses_on_two_scores(grad_req):
    net = S.Group([softmax(dense()), S.LogisticRegressionOutput(dense(name="other"), name="second")])
    assert same_with_and_without(net, SHAPE, NAME, rtol=0, grad_req=grad_req)[NAME] == 2


def test_soft_labels():
    net = softmax(dense())
    one = net.simple_bind(mx.cpu(), data=(4, 6), softmax_label=(4, 3))
    one.arg_dict["softmax_label"][:] = 0.25
    out = one.forward(is_train=True, data=mx.nd.ones((4, 6)), fc_bias=mx.nd.array([0, 1, 2]))[0].asnumpy()
    one.backward()
    np.testing.assert_allclose(one.grad_dict["fc_bias"].asnumpy(), (out - 0.25).sum(axis=0), rtol=1e-5)
    assert one.program(True).low.fired[NAME] == 1


def scores_are_an_output():
    scores = dense()
    return S.Group([softmax(scores), S.BlockGrad(scores)])


def scores_are_read_by_two_losses():
    scores = dense()
    return S.Group([softmax(scores), S.LogisticRegressionOutput(scores, name="second")])


def labels_come_from_scores():
    scores = dense()
    return S.SoftmaxOutput(scores, S.BlockGrad(S.argmax(scores, axis=1)), name="softmax")


NOT_FREE = {
    "variable": lambda: softmax(DATA),
    "view of a variable": lambda: softmax(S.Reshape(DATA, shape=(3, -1))),
    "kept by tanh": lambda: softmax(S.tanh(dense())),
    "kept by a view of tanh": lambda: softmax(S.Reshape(S.tanh(dense()), shape=(3, -1))),
    "output": scores_are_an_output,
    "two losses": scores_are_read_by_two_losses,
    "labels": labels_come_from_scores,
    "output is the input": lambda: S.LinearRegressionOutput(dense(), name="softmax"),
    "absolute": lambda: S.MAERegressionOutput(dense(), name="softmax"),
    "value": lambda: S.MakeLoss(dense()),
}


@pytest.mark.parametrize("case", NOT_FREE)
def test_memory_that_somebody_needs_is_left_alone(case):
    assert NAME not in same_with_and_without(NOT_FREE[case](), SHAPE, NAME, rtol=0)


def filled(net, **shapes):
    one = net.simple_bind(mx.cpu(), **(shapes or SHAPE))
    for i, (name, array) in enumerate(one.arg_dict.items()):
        rng = np.random.RandomState(i)
        array[:] = mx.nd.array(rng.randint(0, 3, array.shape) if "label" in name else rng.randn(*array.shape))
    return one


def test_the_gradient_lies_where_the_scores_were_and_the_output_stays():
    one = filled(softmax(dense(4)))
    out = one.forward(is_train=True)[0].asnumpy()
    scores = one._run.roots[0]
    one.backward()
    label = one.arg_dict["softmax_label"].asnumpy().astype(int)
    np.testing.assert_allclose(scores.detach().numpy(), out - np.eye(4)[label], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(one.outputs[0].asnumpy(), out)


def test_a_label_written_after_forward_is_used():
    one = filled(softmax(dense()))
    out = one.forward(is_train=True)[0].asnumpy()
    one.arg_dict["softmax_label"][:] = mx.nd.array([2, 2, 1, 0])
    one.backward()
    want = (out - np.eye(3)[[2, 2, 1, 0]]).sum(axis=0)
    np.testing.assert_allclose(one.grad_dict["fc_bias"].asnumpy(), want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("label", [[-1, 0, 1, 2], [0, 1, 2, 99]])
def test_labels_that_are_no_class(label):
    one = filled(softmax(dense()))
    out = one.forward(is_train=True, softmax_label=mx.nd.array(label))[0].asnumpy()
    one.backward()
    hot = np.array([np.eye(3)[v] if 0 <= v < 3 else np.zeros(3) for v in label])
    np.testing.assert_allclose(
        one.grad_dict["fc_bias"].asnumpy(), (out - hot).sum(axis=0), rtol=1e-4, atol=1e-6
    )


def test_backward_after_one_that_was_refused():
    net = S.Group([softmax(dense()), dense(name="other") * 2])
    one = filled(net)
    out = one.forward(is_train=True)[0].asnumpy()
    with pytest.raises(ArgumentError, match="out_grads"):
        one.backward()
    one.backward([mx.nd.zeros((4, 3)), mx.nd.ones((4, 3))])
    label = one.arg_dict["softmax_label"].asnumpy().astype(int)
    want = (out - np.eye(3)[label]).sum(axis=0)
    np.testing.assert_allclose(one.grad_dict["fc_bias"].asnumpy(), want, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(one.grad_dict["other_bias"].asnumpy(), 8)


def test_a_monitor_sees_scores_and_gradients():
    one, seen = filled(softmax(dense())), {}
    one.set_monitor_callback(lambda name, array: seen.update({name: array.asnumpy()}))
    one.forward(is_train=True)
    one.backward()
    x, w, b = (one.arg_dict[k].asnumpy() for k in ("data", "fc_weight", "fc_bias"))
    np.testing.assert_allclose(seen["fc_output"], x @ w.T + b, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        seen["fc_backward_output2"], one.grad_dict["fc_bias"].asnumpy(), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize(
    ("name", "attrs", "shape", "label"),
    [
        ("SoftmaxOutput", {}, (4, 3), (4,)),
        ("SoftmaxOutput", {"normalization": "valid", "use_ignore": True, "ignore_label": 0}, (4, 3), (4,)),
        ("SoftmaxOutput", {"smooth_alpha": 0.1}, (4, 3), (4,)),
        ("SoftmaxOutput", {"multi_output": True, "grad_scale": 2.0}, (4, 3, 5), (4, 5)),
        ("SoftmaxOutput", {"out_grad": True}, (4, 3), (4, 3)),
        ("LogisticRegressionOutput", {"grad_scale": 2.0}, (4, 3), (4, 3)),
    ],
)
def test_rules_write_into_given_memory_without_reading_it(name, attrs, shape, label):
    op = ops.get(name)
    a = op.parse(attrs)
    env = Env(torch.device("cpu"), None, True)
    data = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(np.prod(label)).view(label).remainder(3).float()
    out = op.loss.forward(a, env, data, labels)
    before = out.clone()
    want = op.loss.grad(a, env, out, data, labels)
    into = torch.full_like(data, torch.nan)
    found = op.loss.grad(a, env, out, into, labels, into=into)
    assert found.data_ptr() == into.data_ptr()
    assert torch.equal(found, want)
    assert torch.equal(out, before)


def test_results_that_autograd_keeps_after_all_are_noticed():
    x = torch.ones(2, 2, requires_grad=True)
    kept = x.exp()
    kept.detach().fill_(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.sum().backward()
