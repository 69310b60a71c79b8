import gc
import linecache
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.executor import program
from dpmodule.executor.lowering import lower
from dpmodule.executor.program import Program, program_of

S = mx.sym
X = S.Variable("x")


def net(scalar=2.0):
    with mx.name.NameManager():
        x = S.FullyConnected(S.Variable("data"), num_hidden=3, name="fc")
        return S.SoftmaxOutput(S.relu(x * scalar, name="act"), name="softmax")


def in_threads(count, work):
    """Call in several threads that start at once and are interrupted often."""
    start, before = Barrier(count), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(lambda _: (start.wait(), work()), range(count)))
    finally:
        sys.setswitchinterval(before)


def test_the_source_is_written_once_when_somebody_asks_and_leaves_linecache_with_the_program():
    def written():
        made, known = Program(lower(net().graph, False)), set(linecache.cache)
        found = in_threads(8, lambda: (made.forward, made.filename))
        linecache.checkcache()
        assert {answer for _, answer in found} == {(made.forward, made.filename)}
        assert {each for each in linecache.cache if "dpmodule program" in each} - known == {made.filename}
        return made.filename

    name = written()
    gc.collect()
    assert name not in linecache.cache


def test_the_cache_is_bounded_and_serves_threads(monkeypatch):
    monkeypatch.setattr(program, "_CACHE_SIZE", 3)
    monkeypatch.setattr(program, "_cache", type(program._cache)())
    graphs = [net(float(i)).graph for i in range(5)]
    first = program_of(graphs[0], False)
    in_threads(4, lambda: [program_of(graph, False) for graph in graphs * 30])
    assert len(program._cache) <= 3
    assert program_of(net(0.0).graph, False) is not first


PARTS = S.SliceChannel(X, num_outputs=3, axis=0)
SPECIAL = [
    (S.Variable("ﬁ") - S.Variable("fi"), {"ﬁ": [3], "fi": [1]}, [[2]]),  # one name for Python
    (S.Group([X / 0.0, X / -0.0]), {"x": [1]}, [[np.inf], [-np.inf]]),
    (S.Group([PARTS[1], PARTS[1] * 2]), {"x": [1, 2, 3]}, [[2], [4]]),
    (S.zeros((2,)), {}, [[0, 0]]),
]


@pytest.mark.parametrize(("net", "values", "expected"), SPECIAL)
def test_special_graphs(net, values, expected):
    executor = net.bind(mx.cpu(), {name: mx.nd.array(value) for name, value in values.items()})
    assert [out.asnumpy().tolist() for out in executor.forward()] == expected
