from functools import reduce

import pytest

import dpmodule as mx
from dpmodule.base import DTypeError, ShapeError
from dpmodule.graph import infer_shapes, infer_types

S = mx.sym
X, Y, Z, DATA = (S.Variable(name) for name in ("x", "y", "z", "data"))
HALF = S.Variable("x", shape=(0, 3))


def shapes_of(symbol, **given):
    found = infer_shapes(symbol.graph, given)
    return {name: found[n][i] for n in symbol.graph.nodes for i, name in enumerate(n.output_names)}


def perceptron():
    net = S.Activation(S.FullyConnected(DATA, num_hidden=30, name="fc1"), act_type="relu", name="act")
    return S.FullyConnected(net, num_hidden=10, name="fc2")


def recurrent():
    state, weight = S.Variable("state", shape=(0, 5)), S.Variable("w")
    for _ in range(3):
        below = S.FullyConnected(S.Variable("data"), num_hidden=5, name="i2h")
        state = S.tanh(below + S.FullyConnected(state, weight, num_hidden=5, no_bias=True))
    return state


LAYERS = {"fc1_weight": (30, 50), "fc1_bias": (30,), "fc1_output": (100, 30), "act_output": (100, 30)}
LAYERS |= {"fc2_weight": (10, 30), "fc2_bias": (10,), "fc2_output": (100, 10)}


SHAPES = [
    (perceptron(), {"data": (100, 50)}, LAYERS),
    (S.relu(X) + Y * Z, {"z": (2, 3)}, {"x": (2, 3), "y": (2, 3)}),
    (X + Y, {"x": (2, 0), "y": (0, 3)}, {"x": (2, 3)}),
    (HALF, {"x": (4, 5)}, {"x": (4, 5)}),  # as in MXNet
    (HALF, {"x": (0, 5)}, {"x": (0, 3)}),  # as in MXNet: what is not fully given does not override
    (X + Y, {}, {"x": None}),
]


@pytest.mark.parametrize(("net", "given", "expected"), SHAPES)
def test_shapes(net, given, expected):
    found = shapes_of(net, **given)
    assert {name: found[name] for name in expected} == expected


def test_data_from_the_state_in_an_unrolled_cell():
    found = shapes_of(recurrent(), data=(2, 4))
    assert (found["state"], found["w"]) == ((2, 5), (5, 5))


def chain(steps):
    return reduce(lambda x, _: x + 1, range(steps), X)


DENSE = S.FullyConnected(DATA, S.Variable("w"), num_hidden=3, no_bias=True, name="fc")
BESIDE = S.FullyConnected(X, S.Variable("w"), num_hidden=2)
TEXT = r"FullyConnected 'fc' made at.*test_infer.py:\d+.*data \(2, 4\), w \(3, 5\)"


CONTRADICTIONS = [
    (DENSE, {"data": (2, 4), "w": (3, 5)}, TEXT),
    (S.Group([S.relu(X) + Z, X + Y]), {"y": (4, 5), "z": (2, 3)}, "relu"),  # seen behind the walk
    (S.Group([chain(5) + Y, BESIDE]), {"y": (2, 3), "w": (2, 9)}, None),  # by a backward walk only
]


@pytest.mark.parametrize(("net", "given", "said"), CONTRADICTIONS)
def test_contradictions(net, given, said):
    with pytest.raises(ShapeError, match=said):
        shapes_of(net, **given)


def test_deep_chain_is_walked_without_recursion():
    deep = chain(5000)
    assert infer_shapes(deep.graph, {"x": (2,)})[deep.entries[0][0]] == [(2,)]
    assert infer_shapes((deep + Y).graph, {"y": (3,)})[X.entries[0][0]] == [(3,)]


def types_of(symbol, default=None, **given):
    options = {"default": default} if default else {}
    return {n.name: types[0] for n, types in infer_types(symbol.graph, given, **options).items()}


CAST = S.Cast(X, dtype="int32")
LOOKED = S.Embedding(CAST, input_dim=3, output_dim=2, name="e")
DECLARED = S.Group([S.Variable("a", dtype="float16") + S.Variable("b"), S.Variable("c") + S.Variable("d")])
FLOATS = dict.fromkeys(("e_weight", "e", "bn_gamma", "bn_moving_mean"), "float32") | {"bn": "float16"}


TYPES = [
    (perceptron() + Y, {"y": "float16"}, dict.fromkeys(("data", "fc1_weight", "fc2_bias"), "float16")),
    (DECLARED, {"default": "float32"}, {"b": "float16", "c": "float32", "d": "float32"}),
    (DECLARED, {}, {"b": "float16", "c": None}),
    (S.Group([CAST, LOOKED, S.BatchNorm(X, name="bn")]), {"x": "float16"}, FLOATS),
    (S.SoftmaxOutput(DATA, name="sm"), {"data": "float32", "sm_label": "int32"}, {"sm": "float32"}),
]


@pytest.mark.parametrize(("net", "given", "expected"), TYPES)
def test_types(net, given, expected):
    found = types_of(net, **given)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("net", [X + Y, S.FullyConnected(X, Y, num_hidden=3, no_bias=True)])
def test_types_that_contradict_name_the_node(net):
    said = r"made at .*test_infer.py:\d+ takes inputs of one type, got x int32, y float32"
    with pytest.raises(DTypeError, match=said):
        types_of(net, x="int32", y="float32")
