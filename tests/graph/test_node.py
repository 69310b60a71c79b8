import gc
from functools import reduce

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import OpError, StateError
from dpmodule.executor import Binding, Executor
from dpmodule.graph import Graph

S = mx.sym
A, B = S.Variable("a"), S.Variable("b")


def test_kinds_of_variables_and_outputs():
    graph = S.SoftmaxOutput(S.BatchNorm(S.Variable("data"), name="bn"), name="sm").graph
    assert graph.argument_names == ["data", "bn_gamma", "bn_beta", "sm_label"]
    assert graph.auxiliary_names == ["bn_moving_mean", "bn_moving_var"]
    assert (graph.labels, graph.output_names) == (("sm_label",), ["sm_output"])
    node = S.SliceChannel(A, num_outputs=2, name="s").entries[0][0]
    assert (node.output_names, node.num_outputs) == (("s_output0", "s_output1"), 2)
    assert "SliceChannel 's' made at" in node.describe()
    assert repr(node).startswith("<Node SliceChannel 's'")


def test_key_is_that_of_equal_graphs_and_follows_a_changed_attribute():
    keys = [S._internal._mul_scalar(A, scalar=n, name="n").graph.key for n in (2.0, 2.0, 3.0, 0.0, -0.0)]
    assert [keys.index(key) for key in keys] == [0, 0, 2, 3, 4]
    net = S.FullyConnected(A, num_hidden=2)
    node, before = net.entries[0][0], net.graph.key
    with pytest.raises(OpError, match="num_hidden"):
        node.set_param("num_hidden", "many")
    assert (node.a.num_hidden, net.graph.key) == (2, before)
    net._set_attr(num_hidden="3")
    assert net.graph.key != before


def test_deep_graph_is_ordered_and_freed_without_recursion():
    x = reduce(lambda x, _: x + 1, range(50_000), A)
    assert len(Graph(x.entries).nodes) == 50_001
    del x
    gc.collect()


EQUAL = [
    ((A + B) + (A + B), 1),
    (((A + B) * A) + ((A + B) * A), 2),
    (S.Group([A * B, A * B]), 0),  # two outputs stay two: one is a copy
    (S.Group([A * B + 1, A * B + 1]), 1),
]


@pytest.mark.parametrize(("symbol", "count"), EQUAL)
def test_equal_operators_become_one(symbol, count, monkeypatch):
    merged = symbol.simple_bind(mx.cpu(), a=(2, 3), b=(2, 3))
    smaller = merged.get_optimized_symbol()
    assert smaller.list_arguments() == symbol.list_arguments()
    assert len(symbol.get_internals()) - len(smaller.get_internals()) == count
    args = {name: mx.nd.array(np.random.RandomState(3).rand(2, 3)) for name in "ab"}
    for one, other in zip(symbol.eval(**args), smaller.eval(**args), strict=True):
        np.testing.assert_array_equal(one.asnumpy(), other.asnumpy())
    monkeypatch.setenv("MXNET_ELIMINATE_COMMON_EXPR", "0")
    plain = symbol.simple_bind(mx.cpu(), a=(2, 3), b=(2, 3))
    assert plain.get_optimized_symbol().tojson() == symbol.tojson()


def test_only_executors_of_symbols_have_one():
    executor = Executor(Binding(S.exp(A).graph, mx.cpu(), {"a": mx.nd.ones(1)}, {}, {"a": "null"}, {}))
    with pytest.raises(StateError, match="not made by Symbol.bind"):
        executor.get_optimized_symbol()
