"""Mixed precision for symbols: where casts go, what stays, predictions that stay near, and the scaling of losses."""

import json

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import StateError
from dpmodule.contrib import amp
from dpmodule.module.mixed_precision import set_default_rules
from helpers.small_fits import blobs, classifier
from helpers.switched import same_with_and_without


def network():
    conv = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=2, name="c")
    net = mx.sym.Activation(mx.sym.BatchNorm(conv, name="b"), act_type="softrelu", name="a")
    net = mx.sym.FullyConnected(mx.sym.elemwise_add(net, conv, name="p"), num_hidden=3, name="fc")
    return mx.sym.softmax(net, name="s")


def rows(symbol):
    nodes = json.loads(symbol.tojson(remove_amp_cast=False))["nodes"]
    return {n["name"]: (n["op"], [nodes[i]["name"] for i, *_ in n["inputs"]]) for n in nodes}


def test_casts_lie_where_mxnet_puts_them():
    found = rows(amp.convert_symbol(network()))
    assert found["c"][1] == [f"{n}_amp_cast_float16" for n in ("data", "c_weight", "c_bias")]
    assert (found["b"][1][0], found["a"][1]) == ("c", ["b_output_amp_cast_float32"])
    assert found["p"][1] == ["a", "c_output_amp_cast_float32"]
    assert found["fc"][1][0] == "p_output_amp_cast_float16"
    assert found["s"][1] == ["fc_output_amp_cast_float32"]
    assert sum(op == "amp_cast" for op, _ in found.values()) == 9


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("store", [False, True])
def test_predictions_stay_near(dtype, store):
    net = network()
    shapes, _, aux_shapes = net.infer_shape(data=(4, 3, 6, 6))
    random = np.random.RandomState(0)
    args = {n: mx.nd.array(random.uniform(-0.5, 0.5, s)) for n, s in zip(net.list_arguments(), shapes)}
    aux = {n: mx.nd.ones(s) for n, s in zip(net.list_auxiliary_states(), aux_shapes)}
    data = args.pop("data")
    exact = net.bind(mx.cpu(), {**args, "data": data}, aux_states=aux).forward()[0].asnumpy()
    symbol, low, states = amp.convert_model(net, args, aux, dtype, cast_optional_params=store)
    kinds = {mx.base.dtype_name(low[n].dtype) for n in ("c_weight", "fc_weight")}
    assert (kinds, low["b_gamma"].dtype) == ({dtype if store else "float32"}, np.float32)
    found = symbol.bind(mx.cpu(), {**low, "data": data}, aux_states=states).forward()[0]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.asnumpy(), exact, atol=3e-2)
    assert np.abs(found.asnumpy() - exact).max() > 0  # some of it did run in 16 bits


def test_excluded_and_chosen_operators():
    found = rows(amp.convert_symbol(network(), excluded_sym_names=["fc"]))
    assert found["fc"][1][0] == "p"
    found = rows(amp.convert_symbol(network(), target_dtype_ops=["FullyConnected"]))
    assert found["c"][1] == ["data", "c_weight", "c_bias"]


def test_buckets():
    def sym_gen(key):
        net = mx.sym.FullyConnected(mx.sym.sum(mx.sym.Variable("data"), axis=1), num_hidden=3, name="fc")
        return mx.sym.SoftmaxOutput(net, name="softmax"), ("data",), ("softmax_label",)

    module = mx.mod.BucketingModule(sym_gen, default_bucket_key=8)
    module.bind([("data", (2, 8, 4))], [("softmax_label", (2,))])
    module.init_params(mx.init.Xavier())
    low = amp.convert_bucketing_module(module)
    low.bind([("data", (2, 8, 4))], [("softmax_label", (2,))], for_training=False)
    for key in (8, 5):
        shapes = {"provide_data": [("data", (2, key, 4))], "provide_label": [("softmax_label", (2,))]}
        data = mx.nd.array(np.random.RandomState(key).rand(2, key, 4))
        batch, outputs = mx.io.DataBatch([data], [mx.nd.zeros(2)], bucket_key=key, **shapes), []
        for each in (module, low):
            each.forward(batch, is_train=False)
            outputs.append(each.get_outputs()[0].asnumpy())
        np.testing.assert_allclose(*outputs, atol=1e-2)
    assert any("amp_cast" in name for name in low.symbol.get_internals().list_outputs())


@pytest.fixture(autouse=True)
def as_before():
    before = set_default_rules(None)
    yield
    set_default_rules(before)


def test_init_is_for_modules_made_afterwards():
    def summary(**options):
        module = mx.mod.Module(classifier(), **options)
        module.bind([("data", (4, 2))], [("softmax_label", (4,))])
        return module.summary()

    assert "amp_cast" not in summary()
    amp.init("bfloat16")
    assert "amp_cast" in summary()
    assert "amp_cast" not in summary(amp=False)
    amp.init("float16", target_precision_ops=[])
    assert "_amp_cast_float16" not in summary()


def test_modules_scale_by_themselves():
    amp.init()
    module = mx.mod.Module(classifier())
    amp.init_trainer(module)
    module.fit(blobs(), num_epoch=1, initializer="xavier")
    before = module.store.grad("hidden_weight", 0).asnumpy()
    with amp.scale_loss(mx.nd.array([2.0]), module) as loss:
        assert loss.asscalar() == 2
    amp.unscale(module)
    assert (module.store.grad("hidden_weight", 0).asnumpy() == before).all()


class Parameter:
    def __init__(self, value):
        self.data = mx.nd.array(value)
        self.data.attach_grad()
        self._grad = [self.data.grad]


class Trainer:
    """The part of Gluon's that scaling deals with."""

    def __init__(self, params, rate):
        self._params, self._scale, self._rate = params, 1.0, rate

    def step(self):
        self._update()

    def _update(self):
        for param in self._params:
            param.data[:] = param.data - self._rate * self._scale * param._grad[0]


def test_a_trainer_in_the_form_of_gluon():
    param = Parameter([1.0, 2.0])
    trainer = Trainer([param], 0.5)
    with pytest.raises(StateError, match=r"scale_loss: call init_trainer\(\) with this Trainer first"):
        amp.scale_loss(mx.nd.ones((1,)), trainer).__enter__()
    amp.init_trainer(trainer)

    def backward(factor=1.0):
        with mx.autograd.record():
            loss = (param.data * param.data).sum() * factor
            with amp.scale_loss(loss, trainer) as scaled:
                mx.autograd.backward(scaled)

    backward()
    assert param._grad[0].asnumpy().tolist() == [2 * 2**16, 4 * 2**16]
    trainer.step()
    np.testing.assert_allclose(param.data.asnumpy(), [0, 0], atol=1e-6)
    param.data[:] = 1
    backward()
    amp.unscale(trainer)
    assert param._grad[0].asnumpy().tolist() == [2, 2]
    trainer.step()
    np.testing.assert_allclose(param.data.asnumpy(), [0, 0], atol=1e-6)
    param.data[:] = 1
    backward(1e38)
    trainer.step()  # is left out
    assert (param.data.asnumpy().tolist(), trainer._amp_loss_scaler.value) == ([1, 1], 2.0**15)
    with amp.scale_loss([mx.nd.ones((1,))], trainer) as scaled:
        assert scaled[0].asscalar() == 2**15


def test_converted_convolutions_take_the_layout_of_others():
    symbol, shapes = amp.convert_symbol(network(), "bfloat16"), {"data": (2, 3, 6, 6)}
    taken = same_with_and_without(symbol, shapes, "channels_last", rtol=0.03, seeds=True)
    assert taken["channels_last"] == 2  # data and weight
