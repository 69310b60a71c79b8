import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import StateError
from dpmodule.executor import Binding, Executor

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
