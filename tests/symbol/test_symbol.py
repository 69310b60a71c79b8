import copy
import json
import pickle

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, BoundsError, DTypeError, FileFormatError, MXNetError

S = mx.sym


def mlp():
    net = S.FullyConnected(S.Variable("data"), num_hidden=4, name="fc1")
    net = S.BatchNorm(S.Activation(net, act_type="relu", name="relu1"), name="bn")
    return S.SoftmaxOutput(S.FullyConnected(net, num_hidden=3, name="fc2"), name="softmax")


def test_lists():
    net = mlp()
    assert net.list_arguments()[:3] == ["data", "fc1_weight", "fc1_bias"]
    assert net.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    assert net.list_inputs() == [n.name for n in net.graph.nodes if n.op is None]
    assert net.list_outputs() == ["softmax_output"]
    assert (net.num_outputs, len(net), net.name) == (1, 1, "softmax")
    net.list_arguments().append("spoilt")
    assert "spoilt" not in net.list_arguments()


def test_internals_and_children():
    net = mlp()
    fc1 = net.get_internals()["fc1_output"]
    assert fc1.list_arguments() == ["data", "fc1_weight", "fc1_bias"]
    assert fc1.get_children().list_outputs() == ["data", "fc1_weight", "fc1_bias"]
    assert S.Variable("x").get_children() is None
    parts = S.split(S.Variable("x"), num_outputs=3, name="s")
    assert parts.get_internals().list_outputs() == ["x", "s_output0", "s_output1", "s_output2"]


def test_choosing_outputs():
    parts = S.split(S.Variable("x"), num_outputs=3, name="s")
    assert [p.list_outputs() for p in parts] == [["s_output0"], ["s_output1"], ["s_output2"]]
    assert parts["s_output1"].list_outputs() == parts[1].list_outputs() == parts[np.int64(1)].list_outputs()
    assert parts[-1].list_outputs() == ["s_output2"]
    assert parts[1:].list_outputs() == ["s_output1", "s_output2"]
    assert parts.name == parts[0].name == "s"


def test_choosing_what_is_not_there():
    group = S.Group([S.Variable("a"), S.Variable("b"), S.Variable("a")])
    with pytest.raises(ArgumentError, match="'zz' is not an output of this symbol; outputs: a, b, a"):
        group["zz"]
    with pytest.raises(ValueError, match="names several outputs"):
        group["a"]
    with pytest.raises(BoundsError, match="output 3 of a symbol with 3 outputs"):
        group[3]
    with pytest.raises(IndexError):
        group[-4]
    with pytest.raises(DTypeError, match="1.0"):
        group[1.0]


def test_group():
    a, b = S.Variable("a"), S.Variable("b")
    group = S.Group([S.Group([a, b]), S.relu(a, name="r")])
    assert group.list_outputs() == ["a", "b", "r_output"]
    assert group.name is None
    assert repr(group) == "<Symbol group [a, b, r]>"
    for bad in ([], [a, 3], [None]):
        with pytest.raises(ArgumentError, match="Group"):
            S.Group(bad)


def test_composing_by_name_and_by_position():
    one = S.FullyConnected(S.Variable("data"), num_hidden=10, name="fc1")
    two = S.Activation(S.FullyConnected(S.Variable("data2"), num_hidden=5, name="fc2"), act_type="relu")
    want = ["data", "fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"]
    assert two(data2=one).list_arguments() == want
    assert two(one).list_arguments() == want
    assert two(data2=one, name="top").list_outputs() == ["top_output"]
    assert two.list_arguments() == ["data2", "fc2_weight", "fc2_bias"]


def test_composing_of_an_output_of_several():
    parts = S.split(S.Variable("x"), num_outputs=2, name="s")
    net = S.relu(S.Variable("y"))(y=parts[1])
    assert net.get_children().list_outputs() == ["s_output1"]
    assert S.Variable("y")(y=parts[1]).list_outputs() == ["s_output1"]


def test_composing_a_symbol_with_itself():
    x = S.Variable("x")
    twice = x * 2
    four = twice(x=twice)
    out = four.eval(x=mx.nd.ones((1,)))[0]
    assert out.asscalar() == 4


def test_composing_keeps_tied_weights_tied():
    w = S.Variable("w")
    one = S.FullyConnected(S.Variable("x"), w, num_hidden=2, no_bias=True)
    two = S.FullyConnected(S.Variable("y"), w, num_hidden=2, no_bias=True)
    both = two(y=one)
    assert both.list_arguments() == ["x", "w"]
    both.simple_bind(mx.cpu(), x=(1, 2))


def test_composing_replaces_states_too():
    net = S.BatchNorm(S.Variable("x"), name="bn")(bn_moving_mean=S.Variable("mean"))
    assert net.list_auxiliary_states() == ["mean", "bn_moving_var"]


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((), {"zz": "b"}, "'zz' is not an argument"),
        (("b",), {"a": "b"}, "not both"),
        (("b", "b"), {}, "2 symbols for 1 arguments"),
        ((), {"a": 3}, "a is 3"),
        ((), {"a": "split"}, "one output"),
    ],
)
def test_composing_wrongly(args, kwargs, said):
    made = {"b": S.Variable("b"), "split": S.split(S.Variable("b"), num_outputs=2)}
    net = S.Variable("a") * 2
    with pytest.raises(ArgumentError, match=said):
        net(*[made[x] for x in args], **{k: made.get(v, v) for k, v in kwargs.items()})


def test_a_group_is_not_renamed():
    group = S.Group([S.Variable("a") * 2, S.Variable("b")])
    with pytest.raises(ArgumentError, match="name='top'"):
        group(a=S.Variable("c"), name="top")


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_are_equal_and_independent(duplicate):
    net = mlp()
    other = duplicate(net)
    assert other.tojson() == net.tojson()
    other._set_attr(__mood__="odd")
    assert net.attr("__mood__") is None


def test_saving_and_loading(tmp_path):
    net = mlp()
    path = str(tmp_path / "net-symbol.json")
    net.save(path)
    assert S.load(path).tojson() == net.tojson() == S.load_json(net.tojson()).tojson()
    with pytest.raises(ArgumentError, match="load_json: got int"):
        S.load_json(3)
    with pytest.raises(FileFormatError):
        S.load_json("nonsense")


def test_odd_names_survive_the_file():
    for name in ("a b", "été", '"quoted"', "新", "x/y:0", "\ud800"):
        net = S.FullyConnected(S.Variable(name), num_hidden=1, name=name + "_fc")
        again = S.load_json(net.tojson())
        assert again.list_arguments()[0] == name
        assert again.list_outputs() == [name + "_fc_output"]


def test_variable_stores_its_arguments():
    x = S.Variable(
        "x",
        attr={"lr_mult": "9", "note": "n"},
        shape=[np.int64(0), 3],
        lr_mult=np.float32(0.5),
        wd_mult=2,
        dtype=np.float16,
        init=mx.init.Constant(3),
        stype="row_sparse",
        __extra__=7,
    )
    assert x.list_attr() == {
        "__lr_mult__": "0.5",
        "lr_mult": "0.5",
        "__wd_mult__": "2",
        "wd_mult": "2",
        "note": "n",
        "__shape__": "(0, 3)",
        "__dtype__": "2",
        "__init__": '["constant", {"value": 3}]',
        "__storage_type__": "1",
        "__extra__": "7",
    }
    assert S.Variable("y", init="zeros").attr("__init__") == "zeros"
    assert S.var is S.Variable


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": 3}, "name is 3"),
        ({"name": ""}, "name is ''"),
        ({"name": "x", "foo": "1"}, "'foo' is not of the form __x__"),
        ({"name": "x", "attr": {"a": 1}}, "attribute a is 1"),
        ({"name": "x", "shape": "wide"}, "shape is 'wide', expected a tuple of integers"),
        ({"name": "x", "shape": (2.5,)}, "shape is"),
        ({"name": "x", "lr_mult": "fast"}, "lr_mult is 'fast', expected a number"),
        ({"name": "x", "wd_mult": []}, "wd_mult"),
        ({"name": "x", "dtype": "float7"}, "dtype is 'float7'"),
        ({"name": "x", "init": 3}, "init is 3, expected an initializer"),
        ({"name": "x", "stype": "odd"}, "stype is 'odd', expected one of default"),
    ],
)
def test_variable_refuses(given, said):
    with pytest.raises(ArgumentError, match=said):
        S.Variable(**given)


def test_amp_casts_are_left_out_of_files():
    if not hasattr(S, "amp_cast"):
        assert json.loads(mlp().tojson(remove_amp_cast=False)) == json.loads(mlp().tojson())
        return
    x = S.amp_cast(S.Variable("x"), dtype="float16")
    assert [n["op"] for n in json.loads(S.relu(x).tojson())["nodes"]] == ["null", "relu"]
    assert len(json.loads(S.relu(x).tojson(remove_amp_cast=False))["nodes"]) == 3


def test_deep_chains_need_no_recursion():
    x = S.Variable("x")
    for _ in range(5000):
        x = x + 1
    assert x.infer_shape(x=(2,))[1] == [(2,)]
    assert S.load_json(x.tojson()).list_arguments() == ["x"]
    assert pickle.loads(pickle.dumps(x)).name == x.name
    assert copy.deepcopy(x)(x=S.Variable("y")).list_arguments() == ["y"]
    assert len(x.get_internals()) == 5001
    executor = x.simple_bind(mx.cpu(), x=(2,))
    assert executor.forward(is_train=True)[0].asnumpy().tolist() == [5000, 5000]
    executor.backward(mx.nd.ones((2,)))
    assert executor.grad_dict["x"].asnumpy().tolist() == [1, 1]


def test_errors_are_of_one_family():
    for wrong in (lambda: S.Group([]), lambda: S.load_json("x"), lambda: S.Variable(3), lambda: mlp()["zz"]):
        with pytest.raises(MXNetError):
            wrong()


def test_what_mxnet_has_for_backends_and_gradients():
    net = mx.sym.exp(mx.sym.Variable("x"), name="e")
    copy = net.optimize_for("nothing", None, None, mx.cpu(), flag=1)
    assert copy is not net
    assert copy.tojson() == net.tojson()
    with pytest.raises(MXNetError, match="there is no backend 'nothing'"):
        net.get_backend_symbol("nothing")
    with pytest.raises(MXNetError, match="gradient is not implemented"):
        net.gradient(["x"])
    with pytest.raises(MXNetError, match="no mx.np"):
        net.as_np_ndarray()


def test_the_operator_alone():
    sliced = mx.sym.SliceChannel(mx.sym.Variable("x"), num_outputs=3, name="s")
    alone = sliced._gen_atomic_symbol()
    assert len(alone) == 3
    assert alone.list_arguments() == []
    assert alone.attr("num_outputs") == "3"
