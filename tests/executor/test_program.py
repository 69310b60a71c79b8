import gc
import linecache
import sys
import threading

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.executor import program
from dpmodule.executor.lowering import lower
from dpmodule.executor.program import Program, program_of

S = mx.sym


def net(scalar=2.0):
    with mx.name.NameManager():
        x = S.FullyConnected(S.Variable("data"), num_hidden=3, name="fc")
        return S.SoftmaxOutput(S.relu(x * scalar, name="act"), name="softmax")


def test_source_reads_like_code():
    source = program_of(net().graph, False).source
    assert source.splitlines() == [
        "def forward(values, env, shaped):",
        "    [data, fc_weight, fc_bias, softmax_label] = values",
        *source.splitlines()[2:],
    ]
    assert "    del fc" in source
    assert source.rstrip().endswith("return (softmax,), (), (), ()")


def test_lines_lead_to_nodes():
    graph = net().graph
    made = program_of(graph, False)
    lines = made.source.splitlines()
    named = {graph.nodes[n].name for i in range(1, len(lines) + 1) for n in made.nodes_at(i)}
    assert named == {"fc", "_mulscalar0", "act", "softmax"}
    assert made.nodes_at(1) == []
    assert linecache.getlines(made.filename) == [line + "\n" for line in lines]


def test_the_source_leaves_linecache_with_the_program():
    made = Program(lower(net().graph, False))
    name = made.filename
    assert name in linecache.cache
    linecache.checkcache()
    assert name in linecache.cache
    del made
    gc.collect()
    assert name not in linecache.cache


@pytest.fixture
def hasty_threads():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_the_source_is_written_once_and_only_when_somebody_asks(hasty_threads):
    made, known = Program(lower(net().graph, False)), set(linecache.cache)
    found, start = [], threading.Barrier(8)

    def ask():
        start.wait()
        found.append((made.forward, made.filename))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made.filename not in known
    assert set(found) == {(made.forward, made.filename)}
    assert {name for name in linecache.cache if "dpmodule program" in name} - known == {made.filename}


def test_equal_graphs_share_a_program():
    one, two = net().graph, net().graph
    assert one is not two
    assert program_of(one, True) is program_of(two, True)
    assert program_of(one, True) is not program_of(one, False)
    assert program_of(one, True) is not program_of(net(3.0).graph, True)


def test_the_cache_is_bounded(monkeypatch):
    monkeypatch.setattr(program, "_CACHE_SIZE", 3)
    monkeypatch.setattr(program, "_cache", type(program._cache)())
    first = program_of(net(0.5).graph, False)
    for i in range(10):
        program_of(net(float(i)).graph, False)
    assert len(program._cache) == 3
    assert program_of(net(0.5).graph, False) is not first


def test_threads_get_one_program(monkeypatch):
    monkeypatch.setattr(program, "_CACHE_SIZE", 2)
    monkeypatch.setattr(program, "_cache", type(program._cache)())
    graphs = [net(float(i)).graph for i in range(4)]
    failed = []

    def work():
        try:
            for _ in range(30):
                for graph in graphs:
                    program_of(graph, False)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(program._cache) <= 2


@pytest.mark.parametrize(
    "name",
    [
        "for",
        "None",
        "__debug__",
        "env",
        "values",
        "shaped",
        "forward",
        "2x",
        "a b",
        "a-b",
        "",
        "ﬁ",
        "²",
        "é",
        "新",
        "print",
    ],
)
def test_any_name_makes_a_program(name):
    x = S.Variable(name or "x") if name else S.Variable(" ")
    out = S.relu(x, name=name + "_r") + S.tanh(x, name=name)
    executor = out.bind(mx.cpu(), [mx.nd.array([1.0])])
    assert executor.forward()[0].asscalar() == pytest.approx(1 + np.tanh(1))


def test_names_that_python_holds_for_one_stay_two():
    a, b = S.Variable("ﬁ"), S.Variable("fi")
    out = (a - b).bind(mx.cpu(), {"ﬁ": mx.nd.array([3]), "fi": mx.nd.array([1])})
    assert out.forward()[0].asscalar() == 2


def test_attributes_that_are_equal_numbers_but_differ_stay_two():
    x = S.Variable("x")
    both = S.Group([S._internal._div_scalar(x, scalar=0.0), S._internal._div_scalar(x, scalar=-0.0)])
    found = both.bind(mx.cpu(), [mx.nd.array([1.0])]).forward()
    assert [f.asscalar() for f in found] == [np.inf, -np.inf]


def test_single_pieces_of_operators_with_many_outputs():
    x = S.Variable("x")
    net = S.Group([S.SliceChannel(x, num_outputs=1, axis=0), S.split_v2(x, 1)])
    for out in net.bind(mx.cpu(), [mx.nd.array([1, 2])]).forward():
        assert out.asnumpy().tolist() == [1, 2]


def test_a_head_that_others_read_and_unused_outputs():
    x = S.Variable("x")
    parts = S.SliceChannel(x, num_outputs=3, axis=0)
    net = S.Group([parts[1], parts[1] * 2])
    executor = net.simple_bind(mx.cpu(), x=(3,))
    out = executor.forward(is_train=True, x=np.array([1.0, 2.0, 3.0]))
    assert [o.asscalar() for o in out] == [2, 4]
    executor.backward([mx.nd.ones((1,)), mx.nd.ones((1,))])
    assert executor.grad_dict["x"].asnumpy().tolist() == [0, 3, 0]


def test_a_graph_without_variables():
    assert S.zeros((2,)).bind(mx.cpu(), []).forward()[0].asnumpy().tolist() == [0, 0]
