import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.executor.interpreter import backward_by_node
from dpmodule.ops.spec import Env
from helpers.switched import fired, same_with_and_without

S = mx.sym
NAME = "inplace_activations"
IMAGE = {"data": (3, 4, 6, 6)}


def conv(net, name, **attrs):
    options = {"kernel": (3, 3), "pad": (1, 1), "num_filter": 4, "no_bias": True, **attrs}
    return S.Convolution(net, name=name, **options)


def norm(net, name, **attrs):
    return S.BatchNorm(net, name=name, fix_gamma=False, **attrs)


def residual(act=S.relu):
    net = act(norm(conv(S.Variable("data"), "c1"), "b1"))
    inner = norm(conv(act(norm(conv(net, "c2"), "b2")), "c3"), "b3")
    net = act(net + inner)
    short = norm(conv(net, "c4", kernel=(1, 1), pad=(0, 0)), "b4")
    net = act(short + norm(conv(net, "c5"), "b5"))
    return S.MakeLoss(S.Pooling(net, global_pool=True, kernel=(1, 1), pool_type="avg"))


def activated_convolution():
    return S.MakeLoss(S.Activation(conv(S.Variable("data"), "c1", no_bias=False), act_type="tanh"))


def sums_of_sums():
    v = S.Variable("data")
    return S.MakeLoss(S.sigmoid(S.square(v) + S.exp(v) + norm(v, "b1")))


def normalised_vectors():
    dense = S.FullyConnected(S.Variable("data"), num_hidden=5, name="fc")
    return S.SoftmaxOutput(S.relu(norm(dense, "b1")), name="softmax")


NETS = {
    "residual": (residual, 6),
    "residual tanh": (lambda: residual(S.tanh), 6),
    "residual sigmoid": (lambda: residual(S.sigmoid), 6),
    "convolution": (activated_convolution, 1),
    "sums": (sums_of_sums, 2),
    "vectors": (normalised_vectors, 1),
}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("is_train", [True, False])
@pytest.mark.parametrize("grad_req", ["write", "add"])
def test_results_are_those_without(name, is_train, grad_req):
    make, count = NETS[name]
    counts = same_with_and_without(make(), IMAGE, NAME, is_train=is_train, grad_req=grad_req)
    assert counts[NAME] == count


@pytest.mark.parametrize("frozen", ["c", "b", "data", ("c", "b")])
def test_some_gradients_are_not_wanted(frozen):
    net = residual()
    req = {name: "null" if name.startswith(frozen) else "write" for name in net.list_arguments()}
    same_with_and_without(net, IMAGE, NAME, grad_req=req)


def middle_is_an_output():
    inner = norm(conv(S.Variable("data"), "c1"), "b1")
    return S.Group([S.MakeLoss(S.relu(inner)), S.BlockGrad(inner)])


def read_twice():
    inner = norm(conv(S.Variable("data"), "c1"), "b1")
    return S.MakeLoss(S.relu(inner) * S.sigmoid(inner))


def read_through_a_view():
    inner = norm(conv(S.Variable("data"), "c1"), "b1")
    return S.Group([S.MakeLoss(S.relu(inner)), S.BlockGrad(S.Flatten(inner))])


def twice_itself():
    inner = norm(S.Variable("data"), "b1")
    return S.MakeLoss(inner + inner)


NOT_FREE = {
    "variable": lambda: S.MakeLoss(S.relu(S.Variable("data"))),
    "output": middle_is_an_output,
    "two readers": read_twice,
    "view": read_through_a_view,
    "itself": twice_itself,
    "kept by tanh": lambda: S.MakeLoss(S.sigmoid(S.tanh(S.Variable("data")))),
    "kept by a product": lambda: S.MakeLoss(S.relu(S.square(S.Variable("data")) * 2)),
    "channels last": lambda: S.MakeLoss(S.relu(norm(S.Variable("data"), "b1", axis=-1))),
    "reshaped": lambda: S.MakeLoss(S.relu(S.Reshape(norm(S.Variable("data"), "b1"), shape=(3, -1)))),
}


@pytest.mark.parametrize("case", NOT_FREE)
def test_memory_that_somebody_needs_is_left_alone(case):
    assert NAME not in same_with_and_without(NOT_FREE[case](), IMAGE, NAME)


def test_arguments_and_outputs_of_users_stay():
    v = S.Variable("data")
    net = S.Group([S.relu(norm(v, "b1") + v), norm(v, "b2")])
    one = net.simple_bind(mx.cpu(), data=(2, 3))
    one.arg_dict["data"][:] = mx.nd.array([[-1, 2, -3], [4, -5, 6]])
    one.arg_dict["b1_gamma"][:] = one.arg_dict["b2_gamma"][:] = 1
    outputs = one.forward(is_train=True)
    assert one.arg_dict["data"].asnumpy().tolist() == [[-1, 2, -3], [4, -5, 6]]
    assert (outputs[1].asnumpy() < 0).any()
    assert (outputs[0].asnumpy() >= 0).all()


def test_step_by_step_nothing_is_written_over():
    one = residual().simple_bind(mx.cpu(), **IMAGE)
    for i, array in enumerate({**one.arg_dict, **one.aux_dict}.values()):
        array[:] = mx.nd.array(np.random.RandomState(i).uniform(0.5, 1, array.shape))
    out = one.forward(is_train=True)[0]
    program = one.program(True)
    values = [array.tensor.clone() for array in (*one.arg_dict.values(), *one.aux_dict.values())]
    for value in values[: program.low.num_arguments]:
        value.requires_grad_()
    env = Env(torch.device("cpu"), None, True)
    heads = {program.low.losses[0].root: torch.ones(out.shape)}
    assert backward_by_node(program, values, env, (), heads) == -1
    assert program.low.fired[NAME] == 6


class _FailsBackward(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        raise KeyError("from backward")


@mx.operator.register("fails_backward_beside_inplace")
class _FailsBackwardProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, types):
        return _FailsBackward()


def test_an_error_of_a_users_operator_comes_out():
    net = S.Custom(S.relu(norm(S.Variable("data"), "b1")), op_type="fails_backward_beside_inplace")
    one = S.MakeLoss(net).simple_bind(mx.cpu(), **IMAGE)
    one.forward(is_train=True)
    with pytest.raises(KeyError, match="from backward"):
        one.backward()


def test_a_monitor_sees_what_was_there_before():
    net = S.MakeLoss(S.relu(norm(S.Variable("data"), "b1"), name="active"))
    one, seen = net.simple_bind(mx.cpu(), data=(4, 3)), {}
    one.arg_dict["data"][:] = mx.nd.array(np.arange(12).reshape(4, 3))
    one.arg_dict["b1_gamma"][:] = 1
    one.set_monitor_callback(lambda name, array: seen.update({name: array.asnumpy()}))
    one.forward(is_train=True)
    assert (seen["b1_output"] < 0).any()
    np.testing.assert_array_equal(seen["active_output"], np.maximum(seen["b1_output"], 0))
    assert NAME in fired(net, {"data": (4, 3)})


def test_networks_that_are_computed_again_keep_what_they_read(monkeypatch):
    monkeypatch.setenv("MXNET_BACKWARD_DO_MIRROR", "1")
    counts = same_with_and_without(residual(S.tanh), IMAGE, "mirror", "fused_norms")
    assert counts["mirror"] > 0
    assert NAME not in counts
