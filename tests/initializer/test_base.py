"""Rules by name, attributes, registry, dumps, verbosity."""

import json
import logging
import pickle
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.initializer_cases import rule_of

GOLDENS = json.loads((Path(__file__).parents[1] / "data/goldens/initializer/initializers.json").read_text())
Desc = mx.init.InitDesc


def filled(init, name="w_weight", shape=(2, 3), attrs=None):
    arr = mx.nd.full(shape, -9)
    init(Desc(name, attrs), arr)
    return arr.asnumpy()


@pytest.mark.parametrize(("name", "rule"), GOLDENS["rules"].items())
def test_rules_by_name_are_mxnets(name, rule):
    assert rule_of(mx, Desc(name)) == rule


@pytest.mark.filterwarnings("ignore:initializing .* by a plain string:DeprecationWarning")
@pytest.mark.parametrize(("name", "rule"), GOLDENS["legacy_rules"].items())
def test_rules_for_plain_strings_are_mxnets(name, rule):
    assert rule_of(mx, name) == rule


def test_plain_string_warns():
    with pytest.warns(DeprecationWarning, match=r"call init\(InitDesc\(name\), arr\)"):
        mx.init.One()("a_weight", mx.nd.zeros((2,)))
    values = {"weight": 7, "bias": 0, "gamma": 1, "beta": 0, "min": 0, "max": 1}
    for name, value in values.items():
        assert (filled(mx.init.Constant(7), f"a_{name}") == value).all()


@pytest.mark.filterwarnings("ignore:initializing .* by a plain string:DeprecationWarning")
def test_spatial_transformer_starts_as_identity():
    bias, kernel = mx.nd.zeros((6,)), mx.nd.zeros((1, 1, 4, 4))
    mx.init.Uniform()("stn_loc_bias", bias)
    assert bias.asnumpy().tolist() == [1, 0, 0, 0, 1, 0]
    with pytest.raises(ArgumentError, match=r"expected \(6,\)"):
        mx.init.Uniform()("stn_loc_bias", mx.nd.zeros((5,)))
    mx.init.Uniform()("upsampling_weight", kernel)
    np.testing.assert_allclose(kernel.asnumpy()[0], GOLDENS["bilinear"][0][1][0])


def test_quantized_rules():
    weight = mx.nd.zeros((50, 50), dtype="int8")
    mx.init.Uniform()(Desc("a_weight_quantize"), weight)
    assert (weight.asnumpy().min(), weight.asnumpy().max()) == (-127, 127)
    bias = mx.nd.ones((5,), dtype="int8")
    mx.init.Uniform()(Desc("a_bias_quantize"), bias)
    assert bias.asnumpy().tolist() == [0] * 5


def test_desc_is_a_string_with_attributes():
    desc = Desc("fc_weight", {"a": "b"})
    assert desc == "fc_weight"
    assert (desc.attrs, desc.global_init) == ({"a": "b"}, None)
    assert Desc("x").attrs == {}
    init = mx.init.Uniform()
    init(desc, mx.nd.zeros((2, 2)))
    assert desc.global_init is init
    again = pickle.loads(pickle.dumps(desc))
    assert (again, again.attrs, again.global_init) == (desc, desc.attrs, init)


@pytest.mark.parametrize(("name", "kwargs", "text"), GOLDENS["dumps"])
def test_dumps_are_mxnets_and_make_the_same_again(name, kwargs, text):
    init = getattr(mx.init, name)(**kwargs)
    assert (json.loads(init.dumps()), mx.init.create(init.dumps())) == (json.loads(text), init)
    assert mx.init.create(name.lower(), **kwargs) == init


def test_equality_and_text():
    assert mx.init.Xavier() == mx.init.Xavier()
    assert mx.init.Xavier() != mx.init.Xavier(magnitude=2)
    assert mx.init.Zero() != mx.init.One()
    assert len({mx.init.Zero(), mx.init.Zero(), mx.init.One()}) == 2
    assert repr(mx.init.Normal(0.5)) == "Normal(sigma=0.5)"


def test_users_initializers():
    @mx.init.register
    class Fives(mx.init.Initializer):
        def __init__(self, plus=0):
            super().__init__(plus=plus)
            self.plus = plus

        def _init_weight(self, name, arr):
            arr[:] = 5 + self.plus

        def _init_default(self, name, arr):
            arr[:] = -5

    init = mx.init.create("fives", plus=2)
    assert (filled(init) == 7).all()
    assert (filled(init, "odd") == -5).all()
    assert (filled(init, "a_bias") == 0).all()
    assert (filled(mx.init.Zero(), attrs={"__init__": init.dumps()}) == 7).all()
    assert mx.init.create(init) is init


def test_verbosity(caplog):
    caplog.set_level(logging.INFO)
    init = mx.init.Constant(3)
    assert init.set_verbosity(True) is init
    filled(init, "q_weight")
    filled(init, "q_bias")
    filled(init, "q", attrs={"__init__": "one"})
    init.set_verbosity(True, lambda arr: f"shape {arr.shape}")
    filled(init, "q_weight")
    init.set_verbosity()
    filled(init, "q_weight")
    assert caplog.messages == [
        "Initialized q_weight as weight: 3.0",
        "Initialized q_bias as bias: 0.0",
        "Initialized q as one: 1.0",
        "Initialized q_weight as weight: shape (2, 3)",
    ]


@pytest.mark.parametrize("stype", ["row_sparse", "csr"])
def test_sparse_arrays_are_filled_in_place(stype):
    array = mx.nd.ones((3, 2)).tostype(stype)
    mx.init.Zero()(Desc("a_weight"), array)
    assert (array.stype, array.asnumpy().sum()) == (stype, 0)
    mx.init.Constant(2)(Desc("a_weight"), array)
    assert array.asnumpy().sum() == 12
