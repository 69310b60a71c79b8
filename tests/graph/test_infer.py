import pytest

import dpmodule as mx
from dpmodule.base import DTypeError, ShapeError
from dpmodule.graph import infer_shapes, infer_types, variable_dtype, variable_shape

S = mx.sym


def shapes_of(symbol, **given):
    found = infer_shapes(symbol.graph, given)
    return {name: found[n][i] for n in symbol.graph.nodes for i, name in enumerate(n.output_names)}


def test_forward_through_layers():
    net = S.FullyConnected(S.Variable("data"), num_hidden=30, name="fc1")
    net = S.FullyConnected(S.Activation(net, act_type="relu", name="act"), num_hidden=10, name="fc2")
    assert shapes_of(net, data=(100, 50)) == {
        "data": (100, 50),
        "fc1_weight": (30, 50),
        "fc1_bias": (30,),
        "fc1_output": (100, 30),
        "act_output": (100, 30),
        "fc2_weight": (10, 30),
        "fc2_bias": (10,),
        "fc2_output": (100, 10),
    }


def test_sideways_and_backwards_through_elementwise():
    x, y, z = S.Variable("x"), S.Variable("y"), S.Variable("z")
    found = shapes_of(S.relu(x) + y * z, z=(2, 3))
    assert found["x"] == found["y"] == (2, 3)


def test_data_from_the_state_in_an_unrolled_cell():
    data, state = S.Variable("data"), S.Variable("state", shape=(0, 5))
    weight = S.Variable("w")
    for _ in range(3):
        state = S.Activation(
            S.FullyConnected(data, num_hidden=5, name="i2h")
            + S.FullyConnected(state, weight, num_hidden=5, no_bias=True),
            act_type="tanh",
        )
        data = S.Variable("data")
    found = shapes_of(state, data=(2, 4))
    assert found["state"] == (2, 5)
    assert found["w"] == (5, 5)


def test_partial_dimensions_meet():
    x, y = S.Variable("x"), S.Variable("y")
    assert shapes_of(x + y, x=(2, 0), y=(0, 3))["x"] == (2, 3)
    assert shapes_of(x + y, x=(2, 0))["y"] == (2, 0)


def test_declared_shape_fills_in_and_a_given_one_wins():
    x = S.Variable("x", shape=(0, 3))
    assert shapes_of(x, x=(2, 0))["x"] == (2, 3)
    assert shapes_of(x, x=(4, 5))["x"] == (4, 5)  # as in MXNet
    assert shapes_of(x, x=(0, 5))["x"] == (0, 3)  # as in MXNet: what is not fully given does not override


def test_nothing_known_stays_unknown():
    assert shapes_of(S.Variable("x") + S.Variable("y"))["x"] is None


def test_contradiction_names_node_line_and_inputs():
    net = S.FullyConnected(S.Variable("data"), S.Variable("w"), num_hidden=3, no_bias=True, name="fc")
    with pytest.raises(ShapeError) as caught:
        shapes_of(net, data=(2, 4), w=(3, 5))
    text = str(caught.value)
    assert "FullyConnected 'fc' made at" in text
    assert "test_infer.py:" in text
    assert "data (2, 4), w (3, 5)" in text


def test_contradiction_behind_the_walk_is_found():
    # everything is known before relu's rule sees both of its sides
    x, y, z = S.Variable("x"), S.Variable("y"), S.Variable("z")
    net = S.Group([S.relu(x) + z, x + y])
    with pytest.raises(ShapeError, match="relu"):
        shapes_of(net, y=(4, 5), z=(2, 3))


def test_contradiction_that_only_a_backward_walk_sees():
    x, y = S.Variable("x"), S.Variable("y")
    chain = x
    for _ in range(5):
        chain = S.tanh(chain)
    with pytest.raises(ShapeError):
        shapes_of(
            S.Group([chain + y, S.FullyConnected(x, S.Variable("w"), num_hidden=2)]), y=(2, 3), w=(2, 9)
        )


def test_deep_chain_is_walked_without_recursion():
    x = S.Variable("x")
    chain = x
    for _ in range(5000):
        chain = chain + 1
    found = infer_shapes(chain.graph, {"x": (2,)})
    assert found[chain.entries[0][0]] == [(2,)]
    backwards = infer_shapes((chain + S.Variable("y")).graph, {"y": (3,)})
    assert backwards[x.entries[0][0]] == [(3,)]


def test_types_follow_one_input_both_ways():
    net = S.FullyConnected(S.Variable("data"), num_hidden=3, name="fc") + S.Variable("y")
    types = infer_types(net.graph, {"y": "float16"})
    assert {types[n][0] for n in net.graph.nodes} == {"float16"}


def test_default_type_is_for_what_stays_unknown():
    net = S.Group([S.Variable("a", dtype="float16") + S.Variable("b"), S.Variable("c") + S.Variable("d")])
    types = {n.name: t for n, t in infer_types(net.graph, {}, default="float32").items()}
    assert types["b"] == ["float16"]
    assert types["c"] == types["d"] == ["float32"]
    assert infer_types(net.graph, {})[net.graph.arguments[2]] == [None]


def test_types_of_cast_embedding_and_batchnorm():
    x = S.Variable("x")
    net = S.Group(
        [
            S.Cast(x, dtype="int32"),
            S.Embedding(S.Cast(x, dtype="int32"), input_dim=3, output_dim=2, name="e"),
            S.BatchNorm(x, name="bn"),
        ]
    )
    types = {n.name: t[0] for n, t in infer_types(net.graph, {"x": "float16"}).items()}
    assert (types["e_weight"], types["e"]) == ("float32", "float32")
    assert (types["bn"], types["bn_gamma"], types["bn_moving_mean"]) == ("float16", "float32", "float32")


@pytest.mark.parametrize(
    "make", [lambda a, b: a + b, lambda a, b: S.FullyConnected(a, b, num_hidden=3, no_bias=True)]
)
def test_types_that_contradict_name_the_node(make):
    net = make(S.Variable("a"), S.Variable("b"))
    with pytest.raises(
        DTypeError, match=r"made at .*test_infer.py:\d+ takes inputs of one type, got a int32, b float32"
    ):
        infer_types(net.graph, {"a": "int32", "b": "float32"})


def test_labels_may_have_a_type_of_their_own():
    net = S.SoftmaxOutput(S.Variable("data"), name="softmax")
    types = infer_types(net.graph, {"data": "float32", "softmax_label": "int32"})
    assert types[net.entries[0][0]] == ["float32"]


def test_what_variables_declare():
    x = S.Variable("x", shape=(0, 3), dtype="float16").entries[0][0]
    assert (variable_shape(x), variable_dtype(x)) == ((0, 3), "float16")
    y = S.Variable("y").entries[0][0]
    assert (variable_shape(y), variable_dtype(y)) == (None, None)
    y.attrs["__dtype__"] = "-1"
    assert variable_dtype(y) is None
