import gc

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, OpError, StateError
from dpmodule.executor import Binding, Executor
from dpmodule.graph import Graph

S = mx.sym


def test_order_is_depth_first_inputs_before_nodes():
    a, b = S.Variable("a"), S.Variable("b")
    with mx.name.NameManager():
        net = S.FullyConnected(S.relu(b, name="r") + a, num_hidden=2, name="fc")
    assert [n.name for n in net.graph.nodes] == ["b", "r", "a", "_plus0", "fc_weight", "fc_bias", "fc"]
    assert net.graph.argument_names == ["b", "a", "fc_weight", "fc_bias"]


def test_a_node_read_twice_stands_once():
    x = S.Variable("x")
    y = x * 2
    graph = (y + y).graph
    assert len(graph.nodes) == 3
    assert graph.readers[y.entries[0][0]] == [graph.nodes[2], graph.nodes[2]]
    assert graph.nodes[2] not in graph.readers


def test_kinds_of_variables():
    net = S.SoftmaxOutput(S.BatchNorm(S.Variable("data"), name="bn"), name="sm")
    assert net.graph.argument_names == ["data", "bn_gamma", "bn_beta", "sm_label"]
    assert net.graph.auxiliary_names == ["bn_moving_mean", "bn_moving_var"]
    assert net.graph.labels == ("sm_label",)
    assert net.graph.output_names == ["sm_output"]


def test_two_variables_of_one_name_are_refused_with_both_lines():
    net = S.Variable("x") + S.Variable("x")
    with pytest.raises(ArgumentError, match=r"named 'x' .*test_node.py:\d+; .*test_node.py:\d+"):
        net.graph.check_names()
    x = S.Variable("x")
    (x + x).graph.check_names()


def make(scalar=2.0, name="m"):
    return (
        S.relu(S.Variable("x") * scalar, name="r").graph if name == "m" else (S.Variable(name) * scalar).graph
    )


def test_key_is_equal_for_equal_graphs_only():
    with mx.name.NameManager():
        one = make().key
    with mx.name.NameManager():
        two = make().key
    with mx.name.NameManager():
        three = make(scalar=3.0).key
    assert one == two
    assert hash(one) == hash(two)
    assert one != three


def test_key_tells_minus_zero_from_zero():
    with mx.name.NameManager():
        one = make(0.0).key
    with mx.name.NameManager():
        two = make(-0.0).key
    assert one != two


def test_key_follows_a_changed_attribute():
    net = S.FullyConnected(S.Variable("x"), num_hidden=2)
    before = net.graph.key
    net._set_attr(num_hidden="3")
    assert net.graph.key != before


def test_set_param_refuses_nonsense_and_keeps_the_old_value():
    net = S.FullyConnected(S.Variable("x"), num_hidden=2)
    node = net.entries[0][0]
    with pytest.raises(OpError, match="num_hidden"):
        node.set_param("num_hidden", "many")
    assert node.a.num_hidden == 2


def test_outputs_of_nodes():
    node = S.SliceChannel(S.Variable("x"), num_outputs=2, name="s").entries[0][0]
    assert node.output_names == ("s_output0", "s_output1")
    assert node.num_outputs == 2
    assert "SliceChannel 's' made at" in node.describe()
    assert repr(node).startswith("<Node SliceChannel 's'")


def test_deep_graph_is_ordered_and_freed_without_recursion():
    x = S.Variable("x")
    for _ in range(50_000):
        x = x + 1
    assert len(Graph(x.entries).nodes) == 50_001
    del x
    gc.collect()


S = mx.sym


def saved(symbol, monkeypatch, **shapes):
    """Return how many outputs merging takes away, after checking that the results stay."""
    monkeypatch.setenv("MXNET_ELIMINATE_COMMON_EXPR", "0")
    plain = symbol.simple_bind(mx.cpu(), **shapes)
    monkeypatch.delenv("MXNET_ELIMINATE_COMMON_EXPR")
    merged = symbol.simple_bind(mx.cpu(), **shapes)
    assert plain.get_optimized_symbol().tojson() == symbol.tojson()
    smaller = merged.get_optimized_symbol()
    assert smaller.list_arguments() == symbol.list_arguments()
    args = {name: mx.nd.array(np.random.RandomState(3).rand(*shape)) for name, shape in shapes.items()}
    for one, other in zip(symbol.eval(**args), smaller.eval(**args), strict=True):
        np.testing.assert_array_equal(one.asnumpy(), other.asnumpy())
    return len(symbol.get_internals()) - len(smaller.get_internals())


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda a, b: (a + 1) + (b + 1), 0),
        (lambda a, b: (a + b) + (a + b), 1),
        (lambda a, b: ((a + b) * a) + ((a + b) * a), 2),
        (lambda a, b: S.Group([a * b, a * b]), 0),  # two outputs stay two: one is a copy
        (lambda a, b: S.Group([a * b + 1, a * b + 1]), 1),
    ],
)
def test_equal_operators_become_one(make, count, monkeypatch):
    symbol = make(S.Variable("a"), S.Variable("b"))
    assert saved(symbol, monkeypatch, a=(2, 3), b=(2, 3)) == count


def test_random_operators_stay_apart():
    a = S.Variable("a")
    executor = (S.Dropout(a) + S.Dropout(a)).simple_bind(mx.cpu(), a=(2, 3))
    assert len(executor.get_optimized_symbol().get_internals()) == 4


def test_only_executors_of_symbols_have_one():
    graph = S.exp(S.Variable("a")).graph
    executor = Executor(Binding(graph, mx.cpu(), {"a": mx.nd.ones(1)}, {}, {"a": "null"}, {}))
    with pytest.raises(StateError, match="not made by Symbol.bind"):
        executor.get_optimized_symbol()
