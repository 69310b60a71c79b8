"""Graphs with operators written under ``npx.set_np()`` have NumPy's meaning of shapes without a switch."""

import json
import re

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import MXNetError, OpError

INTERNAL = mx.sym._internal


def data(name="data", **options):
    return mx.sym.Variable(name, **options)


def total(x):
    return INTERNAL._np_sum(x)


def array(values, dtype="float32"):
    return mx.nd.array(np.array(values), dtype=dtype)


def file_of(symbol, **about):
    """Return the text of a file with other attributes of the graph."""
    root = json.loads(symbol.tojson())
    root["attrs"] = {"mxnet_version": ["int", 10901], **about}
    return json.dumps(root)


def test_scalars_and_empty_axes():
    net = total(INTERNAL._npi_multiply_scalar(data(), scalar=2.0))
    assert net.infer_shape(data=(2, 3)) == ([(2, 3)], [()], [])
    assert net.infer_shape(data=()) == ([()], [()], [])
    assert net.infer_shape(data=(0, 3)) == ([(0, 3)], [()], [])
    assert net.infer_shape_partial(data=(-1, 3))[0] == [(-1, 3)]
    for values in (np.ones((2, 3)), np.ones((0, 3)), np.array(4.0)):
        (found,) = net.bind(mx.cpu(), {"data": array(values)}).forward()
        assert (found.shape, found.asnumpy()) == ((), 2 * values.sum())
    assert net.simple_bind(mx.cpu(), data=(0, 3)).forward()[0].asnumpy() == 0
    assert not mx.is_np_shape()


def test_saved_under_its_own_names_with_the_mark():
    net = total(INTERNAL._npi_add(data(), data("other")))
    root = json.loads(net.tojson())
    assert [row["op"] for row in root["nodes"]] == ["null", "null", "_npi_add", "_np_sum"]
    assert root["attrs"]["is_np_shape"] == ["int", 1]
    assert mx.sym.load_json(net.tojson()).tojson() == net.tojson()


def test_a_file_with_the_mark_and_classic_operators_only():
    text = file_of(mx.sym.relu(data(shape=(-1, 0))), is_np_shape=["int", 1])
    net = mx.sym.load_json(text)
    assert net.infer_shape_partial()[1] == [(-1, 0)]
    assert net.bind(mx.cpu(), {"data": array(np.zeros((2, 0)))}).forward()[0].shape == (2, 0)
    assert json.loads(net.tojson())["attrs"]["is_np_shape"] == ["int", 1]
    assert mx.sym.load_json(file_of(mx.sym.relu(data(shape=(0, 4))))).infer_shape(data=(2, 4))[1] == [(2, 4)]


def test_determinants_are_scalars_in_files_with_the_mark():
    net = mx.sym.linalg.det(data())
    matrix = array(np.diag([2.0, 3.0]))
    assert net.bind(mx.cpu(), {"data": matrix}).forward()[0].shape == (1,)
    marked = mx.sym.load_json(file_of(net, is_np_shape=["int", 1]))
    (found,) = marked.bind(mx.cpu(), {"data": matrix}).forward()
    assert (found.shape, found.asnumpy()) == ((), 6)


def test_types_are_promoted():
    net = INTERNAL._npi_add(data(), data("other"))
    arrays = {"data": array([1.5]), "other": array([2], "int32")}
    assert net.infer_type(data="float32", other="int32")[1] == [np.float32]
    assert net.bind(mx.cpu(), arrays).forward()[0].asnumpy().tolist() == [3.5]
    assert net.infer_type(data="float16", other="int64")[1] == [np.float16]
    assert INTERNAL._npi_true_divide(data(), data("other")).infer_type(data="int32")[1] == [np.float32]
    assert INTERNAL._npi_less(data(), data("other")).infer_type(data="float64")[1] == [np.bool_]


def test_a_module_trains():
    x = data()
    x = INTERNAL._npi_concatenate(x, INTERNAL._npi_square(x), axis=-1, num_args=2)
    net = INTERNAL._npi_mean(mx.sym.FullyConnected(x, num_hidden=1, name="fc"), axis=1)
    module = mx.mod.Module(mx.sym.LinearRegressionOutput(net, name="out"), label_names=["out_label"])
    source = np.random.RandomState(3)
    values = source.uniform(-1, 1, (64, 2)).astype("f4")
    wanted = values[:, 0] - 2 * values[:, 1] ** 2
    batches = mx.io.NDArrayIter(values, wanted, 16, label_name="out_label")
    module.fit(batches, num_epoch=60, optimizer_params={"learning_rate": 0.5}, eval_metric="mse")
    assert module.score(batches, "mse")[0][1] < 0.02


def test_passes_fuse_what_they_fuse_of_classic_operators():
    def network(add, multiply):
        x = data()
        layer = mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=8, name="c")
        out = mx.sym.relu(add(mx.sym.BatchNorm(layer, name="b"), x))
        return multiply(out, mx.sym.sigmoid(out))

    outputs, passes = [], []
    classic, numpy = (mx.sym.elemwise_add, mx.sym.elemwise_mul), (INTERNAL._npi_add, INTERNAL._npi_multiply)
    for functions in (classic, numpy):
        bound = network(*functions).simple_bind(mx.cpu(), grad_req="null", data=(2, 8, 6, 6))
        source = np.random.RandomState(1)
        for _, value in sorted(bound.arg_dict.items()):
            value[:] = source.normal(size=value.shape)
        outputs.append(bound.forward()[0].asnumpy())
        passes.append(re.findall(r"predict: .*", str(bound.explain())))
    np.testing.assert_array_equal(*outputs)
    assert passes[0] == passes[1]
    assert "fused_convolutions 1" in passes[0][0]


def test_torch_module_takes_any_batch(tmp_path):
    net = INTERNAL._npi_mean(
        INTERNAL._np_reshape(INTERNAL._npi_exp(data()), newshape=(-1, 6)), axis=0, keepdims=True
    )
    module = mx.mod.Module(net, label_names=None)
    module.bind([("data", (2, 3, 2))], for_training=False)
    module.init_params()
    exported = module.to_torch()
    x = torch.randn(5, 3, 2)
    found = exported(x)
    torch.testing.assert_close(found, x.exp().reshape(-1, 6).mean(0, keepdim=True))


def test_the_axis_of_old_concatenations():
    net = INTERNAL._npi_concatenate(data(), data("other"), axis=-1, num_args=2)
    old = net.tojson().replace('"axis": "-1"', '"dim": "-1"')
    assert old != net.tojson()
    assert mx.sym.load_json(old).tojson() == net.tojson()


def test_an_operator_that_is_missing_is_named():
    root = json.loads(total(data()).tojson())
    root["nodes"][1]["op"] = "_npi_fft"
    with pytest.raises(MXNetError, match=r"_npi_fft \('sum0'\)|_npi_fft"):
        mx.sym.load_json(json.dumps(root))


def test_attributes_without_meaning_in_mxnet_are_refused():
    with pytest.raises(OpError, match="initial is 2.0, expected None"):
        INTERNAL._np_sum(data(), initial=2.0).bind(mx.cpu(), {"data": array([1.0])}).forward()
