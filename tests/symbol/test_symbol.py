import copy
import json
import pickle

import numpy as np
import pytest

import dpmodule as mx

S = mx.sym


def mlp():
    net = S.FullyConnected(S.Variable("data"), num_hidden=4, name="fc1")
    net = S.BatchNorm(S.Activation(net, act_type="relu", name="relu1"), name="bn")
    return S.SoftmaxOutput(S.FullyConnected(net, num_hidden=3, name="fc2"), name="softmax")


def test_choosing_outputs():
    parts = S.split(S.Variable("x"), num_outputs=3, name="s")
    assert [p.list_outputs() for p in parts] == [["s_output0"], ["s_output1"], ["s_output2"]]
    assert parts["s_output1"].list_outputs() == parts[1].list_outputs() == parts[np.int64(1)].list_outputs()
    assert (parts[-1].list_outputs(), parts[1:].list_outputs()) == (["s_output2"], ["s_output1", "s_output2"])
    assert parts.name == parts[0].name == "s"


def test_composing_a_symbol_with_itself():
    twice = S.Variable("x") * 2
    assert twice(x=twice).eval(x=mx.nd.ones((1,)))[0].asscalar() == 4


def test_composing_keeps_tied_weights_tied():
    w = S.Variable("w")
    one, two = (S.FullyConnected(S.Variable(n), w, num_hidden=2, no_bias=True) for n in "xy")
    both = two(y=one)
    assert both.list_arguments() == ["x", "w"]
    both.simple_bind(mx.cpu(), x=(1, 2))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_are_equal_and_independent(duplicate):
    other = duplicate(net := mlp())
    assert other.tojson() == net.tojson()
    other._set_attr(__mood__="odd")
    assert net.attr("__mood__") is None


@pytest.mark.parametrize("name", ["a b", "été", '"quoted"', "新", "x/y:0", "\ud800"], ids=ascii)
def test_odd_names_survive_the_file(name):
    again = S.load_json(S.FullyConnected(S.Variable(name), num_hidden=1, name=name + "_fc").tojson())
    assert (again.list_arguments()[0], again.list_outputs()) == (name, [name + "_fc_output"])


def test_amp_casts_are_left_out_of_files():
    net = S.relu(S.amp_cast(S.Variable("x"), dtype="float16"))
    assert [n["op"] for n in json.loads(net.tojson())["nodes"]] == ["null", "relu"]
    assert len(json.loads(net.tojson(remove_amp_cast=False))["nodes"]) == 3


def test_deep_chains_need_no_recursion():
    x = S.Variable("x")
    for _ in range(5000):
        x = x + 1
    assert (x.infer_shape(x=(2,))[1], S.load_json(x.tojson()).list_arguments()) == ([(2,)], ["x"])
    assert pickle.loads(pickle.dumps(x)).name == x.name
    assert (copy.deepcopy(x)(x=S.Variable("y")).list_arguments(), len(x.get_internals())) == (["y"], 5001)
    executor = x.simple_bind(mx.cpu(), x=(2,))
    assert executor.forward(is_train=True)[0].asnumpy().tolist() == [5000, 5000]
    executor.backward(mx.nd.ones((2,)))
    assert executor.grad_dict["x"].asnumpy().tolist() == [1, 1]


def test_optimize_for_copies():
    net = mx.sym.exp(mx.sym.Variable("x"), name="e")
    made = net.optimize_for("nothing", None, None, mx.cpu(), flag=1)
    assert made is not net
    assert made.tojson() == net.tojson()


def test_the_operator_alone():
    alone = mx.sym.SliceChannel(mx.sym.Variable("x"), num_outputs=3, name="s")._gen_atomic_symbol()
    assert (len(alone), alone.list_arguments(), alone.attr("num_outputs")) == (3, [], "3")
