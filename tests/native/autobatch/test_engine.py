"""The native engine as programs meet it: fusion, growing graphs, memory, long chains, failures."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

import dpmodule.autobatch as dy
from dpmodule import native
from helpers.both_backends import measures_memory, resident_bytes
from helpers.raw_graph import RawGraph

pytestmark = pytest.mark.skipif(native.core is None, reason="no native extension")


@pytest.fixture(autouse=True)
def _autobatch():
    dy.configure(engine="native", autobatch=True)
    yield
    dy.configure(engine="auto", autobatch=False)


def batches():
    return dy.cg().machine.batches()


def tree_cell(m, size):
    """Return a TreeLSTM's composition, spelled in single operations."""
    gates = [m.add_parameters((size, 2 * size)) for _ in "iou"]
    forget = [m.add_parameters((size, size)) for _ in "ff"]
    biases = [m.add_parameters(size) for _ in "iouf"]

    def compose(left, right):
        (h1, c1), (h2, c2) = left, right
        e = dy.concatenate([h1, h2])
        i, o = [dy.logistic(dy.affine_transform([b, w, e])) for b, w in zip(biases[:2], gates[:2])]
        u = dy.tanh(dy.affine_transform([biases[2], gates[2], e]))
        f1 = dy.logistic(dy.affine_transform([biases[3], forget[0], h1]))
        f2 = dy.logistic(dy.affine_transform([biases[3], forget[1], h2]))
        c = dy.cmult(i, u) + dy.cmult(f1, c1) + dy.cmult(f2, c2)
        return dy.cmult(o, dy.tanh(c)), c

    return compose


def test_single_operations_are_fused():
    m = dy.ParameterCollection()
    compose, words = tree_cell(m, 6), m.add_lookup_parameters((45, 6))
    dy.renew_cg()
    roots = []
    for sentence in range(5):
        leaves = [(words[9 * sentence + k], words[9 * sentence + k + 1]) for k in range(8)]
        while len(leaves) > 1:
            leaves = [compose(*pair) for pair in zip(leaves[::2], leaves[1::2])]
        roots.append(leaves[0][0])
    dy.forward(roots)
    assert dy.cg().size > 5 * 7 * 15
    assert (
        len(batches()) <= 3 * 4
    )  # concatenation, memory and output for each of three levels, and the roots'
    assert max(rows for _, rows, *_ in batches()) == 20


def test_batches_are_described():
    m = dy.ParameterCollection()
    w = m.add_parameters((4, 3))
    dy.renew_cg()
    losses = [dy.pickneglogsoftmax(w * dy.inputTensor([1.0, 2.0, float(k)]), k % 4) for k in range(6)]
    dy.esum(losses).npvalue()
    assert dy.explain().sequence == (
        ("multiply + pickneglogsoftmax", "multiply + pickneglogsoftmax {4,3} {3} -> {1}", 6),
        ("sum", "sum {1} -> {1}", 1),
    )
    assert set(dy.cg().seconds()) >= {"schedule", "run", "backward"}


def test_values_of_inner_nodes():
    m = dy.ParameterCollection()
    w = m.parameters_from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3))
    dy.renew_cg()
    product = w * dy.inputTensor([1.0, 2.0, 3.0])
    squashed = dy.tanh(product * 0.1)
    loss = dy.sum_elems(dy.square(squashed))
    wanted = np.array([8.0, 26.0])
    assert loss.scalar_value() == pytest.approx(np.sum(np.tanh(wanted * 0.1) ** 2), rel=1e-5)
    np.testing.assert_allclose(product.npvalue(), wanted, rtol=1e-6)
    np.testing.assert_allclose(squashed.npvalue(), np.tanh(wanted * 0.1), rtol=1e-6)
    np.testing.assert_allclose((product + squashed).npvalue(), wanted + np.tanh(wanted * 0.1), rtol=1e-6)


def test_gradients_of_inner_nodes_and_slices():
    m = dy.ParameterCollection()
    w = m.parameters_from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3) / 10)
    dy.renew_cg()
    product = w * dy.inputTensor([1.0, 2.0, 3.0])
    first = product[0:1]
    loss = dy.sum_elems(dy.square(product)) + dy.sum_elems(first * 5.0)
    loss.backward()
    before = w.grad_as_array()
    np.testing.assert_allclose(product.gradient(), 2 * product.npvalue() + [5, 0], rtol=1e-5)
    np.testing.assert_allclose(first.gradient(), [5.0], rtol=1e-6)
    np.testing.assert_array_equal(w.grad_as_array(), before)


def test_second_consumer_after_forward():
    """A node that was fused away is used again: values and gradients flow through both uses."""
    m = dy.ParameterCollection()
    w = m.parameters_from_numpy(np.eye(3, dtype=np.float32))
    dy.renew_cg()
    inner = w * dy.inputTensor([0.1, 0.2, 0.3])
    outer = dy.tanh(inner)
    outer.npvalue()
    loss = dy.sum_elems(outer + dy.square(inner))
    loss.backward()
    x = np.array([0.1, 0.2, 0.3])
    np.testing.assert_allclose(w.grad_as_array(), np.outer(1 - np.tanh(x) ** 2 + 2 * x, x), rtol=1e-5)


def test_chain_of_a_million():
    dy.renew_cg()
    x = y = dy.inputTensor(np.full(4, 0.5))
    for _ in range(1_000_000):
        y = dy.tanh(y)
    loss = dy.sum_elems(y)
    assert 0 < loss.scalar_value() < 0.01
    loss.backward(full=True)
    assert np.isfinite(x.gradient()).all()
    dy.renew_cg()


@measures_memory
def test_memory_stays():
    m = dy.ParameterCollection()
    lstm, words, top = (
        dy.VanillaLSTMBuilder(1, 8, 8, m),
        m.add_lookup_parameters((20, 8)),
        m.add_parameters((3, 8)),
    )

    def once(k):
        dy.renew_cg()
        states = [
            lstm.initial_state().transduce([words[i] for i in range(2 + n + k % 3)])[-1] for n in range(3)
        ]
        loss = dy.esum(
            [dy.pickneglogsoftmax(top * h, 1) * (1.0 + k) for h in states]
        )  # ever new numbers, too
        loss.scalar_value()
        loss.backward()

    for k in range(1000):
        once(k)
    gc.collect()
    before = resident_bytes()
    for k in range(1000, 10_000):
        once(k)
    gc.collect()
    assert resident_bytes() < before * 1.01 + 1e6


def test_large_graph_is_given_back():
    dy.renew_cg()
    machine = dy.cg().machine
    x = dy.inputTensor(np.ones(100))
    y = dy.esum([dy.tanh(x * float(k % 3)) for k in range(50_000)])
    y.npvalue()
    assert machine.bytes > 20_000_000
    for _ in range(3):
        dy.renew_cg()
        dy.tanh(dy.inputTensor(np.ones(100))).npvalue()
    assert machine.bytes < 2_000_000


def test_parameters_that_are_gone_are_forgotten():
    words = dy.ParameterCollection().add_lookup_parameters((4, 2), init=1.0)
    machines = set()
    for _ in range(600):
        dy.renew_cg()
        w = dy.ParameterCollection().add_parameters((2, 2), init=1.0)
        np.testing.assert_allclose((w * words[3]).npvalue(), [2.0, 2.0])
        machines.add(dy.cg().machine.serial)
    assert len(machines) > 1


def test_without_autobatch_every_node_is_alone():
    dy.renew_cg(autobatching=False)
    m = dy.ParameterCollection()
    w = m.add_parameters((2, 2), init=1.0)
    outputs = [dy.tanh(w * dy.inputTensor([0.1 * k, 0.2])) for k in range(5)]
    loss = dy.esum([dy.sum_elems(each) for each in outputs])
    loss.backward()
    assert {rows for _, rows, *_ in batches()} == {1}
    xs = np.array([[0.1 * k, 0.2] for k in range(5)])
    wanted = sum(np.outer(1 - np.tanh(np.ones((2, 2)) @ x) ** 2, x) for x in xs)
    np.testing.assert_allclose(w.grad_as_array(), wanted, rtol=1e-5)


def test_revert_gives_memory_back():
    dy.renew_cg()
    x = dy.inputTensor(np.ones(1000))
    dy.tanh(x).npvalue()
    machine = dy.cg().machine
    sizes = []
    for _ in range(50):
        dy.cg_checkpoint()
        dy.esum([dy.tanh(x * float(k % 7)) for k in range(20)]).npvalue()
        dy.cg_revert()
        sizes.append(machine.bytes)
    assert sizes[-1] == sizes[5]
    np.testing.assert_allclose(dy.tanh(x).npvalue(), np.tanh(np.ones(1000)), rtol=1e-6)


def test_failing_operation_leaves_the_graph_usable():
    graph = RawGraph(native.core)
    graph.renew()
    machine, shape = graph.machine, graph.machine.shape((2,))
    calls = []

    def fail(*arguments):
        calls.append(arguments)
        raise ZeroDivisionError("on purpose")

    machine.set_caller(fail, fail, fail, [])
    x = graph.input([1.0, 2.0])
    good = graph.one("tanh", x)
    bad = machine.append(machine.call_signature(0, shape, (2,), 0, 1, (-1,), False), (good,))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="on purpose"):
            machine.value(bad)
    graph.check_value(good)
    assert len(calls) == 2


def test_operation_must_not_use_its_own_graph():
    graph = RawGraph(native.core)
    graph.renew()
    machine = graph.machine
    x = graph.input([1.0, 2.0])
    machine.set_caller(lambda *arguments: machine.renew(7), lambda *arguments: None, print, [])
    bad = machine.append(machine.call_signature(0, machine.shape((2,)), (2,), 0, 1, (-1,), False), (x,))
    with pytest.raises(RuntimeError, match="being computed"):
        machine.value(bad)


def test_wrong_numbers_are_refused():
    graph = RawGraph(native.core)
    table, machine = graph.table(4, 2), graph.machine
    machine.renew(1)
    of_nodes = [machine.value, machine.forward, machine.backward, machine.dim, machine.gradient]
    for call in (*of_nodes, machine.parameter, machine.passed, machine.touched):
        with pytest.raises(IndexError):
            call(3)
    for call in (machine.set_gradient, machine.set_table_gradient):
        with pytest.raises(IndexError):
            call(3, 0)
    with pytest.raises(IndexError):
        machine.append(10**6, (0,))
    with pytest.raises(ValueError, match="size"):
        machine.input(machine.input_signature(machine.shape((3,))), np.zeros(2, np.float32))
    for row in (-1, 4):
        with pytest.raises(IndexError):
            machine.lookup(table, row)


def test_parameters_may_be_replaced():
    m = dy.ParameterCollection()
    w = m.parameters_from_numpy(np.ones((2, 2), np.float32))
    for factor in (1.0, 2.0):
        dy.renew_cg()
        w.storage.tensor = torch.full((2, 2), factor)
        np.testing.assert_allclose((w * dy.inputTensor([1.0, 1.0])).npvalue(), [2 * factor] * 2)
    w.storage.tensor.mul_(3.0)  # written to inside one graph: the next forward reads it
    np.testing.assert_allclose((w * dy.inputTensor([1.0, 0.0])).npvalue(), [6.0] * 2)


@pytest.mark.parametrize("autobatch", [False, True])
@pytest.mark.parametrize("trainer", ["SimpleSGDTrainer", "AdamTrainer"])
def test_training_equals_the_engine_in_python(trainer, autobatch):
    """Twenty updates of a tagger with a tree on top give the same losses and parameters."""
    found = []
    for engine in ("python", "native"):
        dy.configure(engine=engine, autobatch=autobatch)
        rng = np.random.default_rng(3)
        m = dy.ParameterCollection()
        words = m.add_lookup_parameters((30, 7), init=rng.normal(size=(30, 7)))
        lstm, compose = dy.VanillaLSTMBuilder(2, 7, 5, m), tree_cell(m, 5)
        top = m.add_parameters((4, 5), init=rng.normal(size=(4, 5)))
        for each in m.parameters_list():
            each.set_value(rng.normal(size=each.shape()) * 0.3)
        update = getattr(dy, trainer)(m)
        losses = []
        for step in range(20):
            dy.renew_cg()
            parts = []
            for sentence in range(4):
                ids = [(3 * step + 5 * sentence + k) % 30 for k in range(2 + sentence)]
                hs = lstm.initial_state().transduce([words[i] for i in ids])
                state = (hs[0], hs[0])
                for h in hs[1:]:
                    state = compose(state, (h, h))
                parts += [dy.pickneglogsoftmax(top * h, k % 4) for k, h in enumerate([*hs, state[0]])]
            loss = dy.average(parts)
            losses.append(loss.scalar_value())
            loss.backward()
            update.update()
        found.append((losses, [x.as_array() for x in (*m.parameters_list(), *m.lookup_parameters_list())]))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-4)
    for a, b in zip(found[0][1], found[1][1]):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)
