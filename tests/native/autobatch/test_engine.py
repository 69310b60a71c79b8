"""The native engine: accuracy, rounding of sums, memory; what it computes once, and without calls of Python."""

from itertools import product

import numpy as np
import pytest
import torch

import dpmodule.autobatch as dy
from dpmodule import native
from helpers.walk import walks

pytestmark = pytest.mark.skipif(native.core is None, reason="no native extension")
MANY, NODES, TENTH = 500_000, 120_000, float(np.float32(0.1))
EXAMPLES = [[1, 2, 3], [4, 5, 6, 7, 8], [3, 1, 2], [5, 5], [6], [7, 1, 1, 2, 8, 3, 4]]
WORDS = [3, 1, 3, 3, 2, 1, 3, 0, 1, 3, 3, 1, 2, 3, 1, 3]


@pytest.fixture(params=[False, True], autouse=True, ids=["off", "on"])
def _autobatch(request):
    dy.configure(autobatch=request.param, engine="native")
    yield
    dy.configure(autobatch=False, engine="auto")


def test_large_graphs_and_parts_taken_back_are_given_back():
    dy.renew_cg(autobatching=True)
    machine, x, sizes = dy.cg().machine, dy.inputTensor(np.ones(100)), []
    for _ in range(50):
        dy.cg_checkpoint()
        dy.esum([dy.tanh(x * float(k % 7)) for k in range(20)]).npvalue()
        dy.cg_revert()
        sizes.append(machine.bytes)
    assert sizes[-1] == sizes[5]
    dy.esum([dy.tanh(x * float(k % 3)) for k in range(50_000)]).npvalue()
    assert machine.bytes > 20_000_000
    for _ in range(3):
        dy.renew_cg()
        dy.tanh(dy.inputTensor(np.ones(100))).npvalue()
    assert machine.bytes < 2_000_000


def test_matrices_of_attention_need_no_calls():
    dy.renew_cg(autobatching=True)
    m, losses = dy.ParameterCollection(), []
    w1, w2, v, u, o = (m.add_parameters(shape) for shape in ((6, 5), (6, 5), (1, 6), (5, 10), (4, 5)))
    words = m.add_lookup_parameters((9, 5))
    for example in EXAMPLES:
        states, state = dy.concatenate_cols([words[i] for i in example]), words[0]
        keys = w1 * states
        for i in example[:4]:
            scores = v * dy.tanh(dy.colwise_add(keys, w2 * state))
            context = states * dy.softmax(dy.transpose(scores))
            state = dy.tanh(u * dy.concatenate([context, words[i]]))
            losses.append(dy.pickneglogsoftmax(o * state, i % 4))
    dy.esum(losses).value()
    operations = [dy.cg().operation(each) for kinds, *_ in dy.cg().machine.batches() for each in kinds]
    assert not [each.name for each in operations if each.call is not None], "these run in torch"
    assert "colwise_add + tanh + multiply" in {row.operation for row in dy.explain().rows}


def test_equal_operations_are_computed_once():
    """Those on equal rows of a table, as words repeat; but not what draws numbers."""
    dy.renew_cg(autobatching=True)
    m = dy.ParameterCollection()
    table, weights = m.add_lookup_parameters((4, 3)), m.add_parameters((3, 3))
    dy.forward([dy.tanh(weights * table[word]) for word in WORDS])
    (row,) = dy.explain().rows
    assert (row.largest, row.repeats, row.nodes) == (4, 12, 32)
    assert "12 equal to others, computed once" in str(dy.explain())
    dy.renew_cg(autobatching=True)
    dy.forward([dy.tanh(weights * dy.dropout(table[word], 0.5)) for word in WORDS])
    assert [row.repeats for row in dy.explain().rows] == [0, 0]


@pytest.mark.parametrize(
    ("ours", "theirs"), [(dy.tanh, torch.tanh), (dy.logistic, torch.sigmoid), (dy.exp, torch.exp)]
)
def test_accuracy(ours, theirs):
    x = np.concatenate([np.linspace(-30, 30, 20001), np.linspace(-1, 1, 20001), [1e-30, -1e-30, 0.0]])
    found = ours(dy.inputTensor(x)).npvalue()
    np.testing.assert_allclose(found, theirs(torch.tensor(x.astype("f4")).double()), rtol=5e-7, atol=0)
    odd = [np.inf, -np.inf, np.nan, 100.0, -200.0, 88.0]
    np.testing.assert_allclose(
        ours(dy.inputTensor(odd)).npvalue(), theirs(torch.tensor(odd)), rtol=1e-6, atol=1e-37
    )


@walks(product([1, 2, 5, 13, 64, 700], [(1, 1), (3, 5), (50, 200), (400, 9)]))
def test_products(rows, sizes):
    """Of a matrix with so many vectors; the vectors are words of a table, some of them the same."""
    (inner, outer), draw, m = sizes, np.random.RandomState(rows), dy.ParameterCollection()
    shapes = ((outer, inner), (outer,), (max(1, rows * 2 // 3), inner))
    arrays = [(draw.normal(size=shape) / shape[-1] ** 0.5).astype("f4") for shape in shapes]
    w, b = (m.parameters_from_numpy(array) for array in arrays[:2])
    table, places = m.lookup_parameters_from_numpy(arrays[2]), [k % len(arrays[2]) for k in range(rows)]
    found = [dy.affine_transform([b, w, table[place]]) for place in places]
    dy.esum([dy.squared_norm(dy.tanh(each)) for each in found]).backward()
    tw, tb, tt = (torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in arrays)
    wanted = tt[places] @ tw.T + tb
    torch.tanh(wanted).square().sum().backward()
    pairs = [(p.grad_as_array(), t.grad) for p, t in zip((w, b, table), (tw, tb, tt))]
    for one, other in [*pairs, (dy.npvalues(found), wanted.detach())]:
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * max(1, float(other.abs().max())))


def close(found, wanted):
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=1e-5)


def test_numbers_of_one_array():
    x, xs = dy.inputTensor(np.full(MANY, 0.1)), dy.inputTensor(np.full((2, MANY // 2), 0.1), batched=True)
    for found, wanted in (
        *[(dy.sum_elems(x), MANY * TENTH), (dy.dot_product(x, x), MANY * TENTH**2)],
        *[(dy.squared_norm(x), MANY * TENTH**2), (dy.hinge(x, 3, 0.2), (MANY - 1) * float(np.float32(0.2)))],
        *[(dy.pickneglogsoftmax(x, 7), np.log(MANY)), (dy.log_softmax(x), -np.log(MANY))],
        (dy.sum_batches(xs), MANY / 2 * TENTH),
        (dy.sum_elems(dy.inputTensor(np.full((MANY // 2, 2), 0.1), batched=True)), MANY / 2 * TENTH),
    ):
        close(found.npvalue(), np.full(found.npvalue().shape, wanted))


@pytest.mark.parametrize("width", [1, 2, 70])
def test_values_of_many_nodes(width):
    xs = [dy.inputTensor(np.linspace(0.1, 0.2, width)) for _ in range(10)]
    close(dy.esum(xs * (NODES // 10)).npvalue(), NODES * np.linspace(0.1, 0.2, width).astype(np.float32))


def of_reductions(m, p, x):
    kinds = (lambda: dy.sum_dim(p, [0]) * 3.0, lambda: dy.max_dim(p), lambda: dy.hinge(p, 1))
    wanted = NODES / 3 * TENTH * np.array([3.0 + 1 + 1, 3.0 - 1])
    return [make() * TENTH for make in kinds for _ in range(NODES // 3)], [(p, wanted)]


def of_a_value(m, p, x):
    """What is behind it receives the whole gradient."""
    both, half = p * 2.0, NODES / 2
    losses = [
        dy.cmult(part(), x)
        for part in (lambda: dy.pick(both, 1), lambda: both[0:1])
        for _ in range(NODES // 2)
    ]
    return losses, [(both, np.full(2, half * TENTH)), (p, np.full(2, NODES * TENTH)), (x, half * (0.5 + 1.0))]


def of_one_wide_product(m, p, x):
    wide = dy.inputTensor(np.full((MANY, 2), 0.1))
    return [dy.sum_elems(dy.cmult(wide, x))], [(x, [2 * MANY * TENTH])]


def of_maps(m, p, x):
    table = m.lookup_parameters_from_numpy(np.array([[0.1, 0.2], [0.3, 0.4]]))
    W, b = m.parameters_from_numpy(np.ones((1, 2))), m.parameters_from_numpy(np.ones(1))
    loss = dy.esum([dy.affine_transform([b, W, table[k % 2]]) for k in range(NODES)]) * TENTH
    wanted = [(W, NODES * TENTH * np.array([[0.2, 0.3]])), (b, [NODES * TENTH])]
    return [loss], [*wanted, (table, np.full((2, 2), NODES / 2 * TENTH))]


@walks([of_reductions, of_a_value, of_one_wide_product, of_maps])
def test_gradients_of_many_nodes(make):
    m = dy.ParameterCollection()
    losses, wanted = make(m, m.parameters_from_numpy(np.array([0.5, 0.25])), dy.inputTensor([TENTH]))
    dy.esum(losses).backward(full=True)
    for each, gradient in wanted:
        close(each.grad_as_array() if hasattr(each, "grad_as_array") else each.gradient(), gradient)


@walks(product([2, 3, 30], [(1, 1), (3, 5), (17, 16), (130, 65), (800, 9)]))
def test_a_row_alone_has_the_value_it_has_among_others(rows, sizes):
    (inner, outer), draw, m = sizes, np.random.RandomState(0), dy.ParameterCollection()
    W, b = (m.parameters_from_numpy(draw.normal(size=shape)) for shape in ((outer, inner), outer))
    arrays = draw.normal(size=(rows, inner))

    def run(arrays):
        dy.renew_cg()
        xs = [dy.inputTensor(array) for array in arrays]
        losses = [dy.sum_elems(dy.tanh(dy.affine_transform([b, W, x]))) for x in xs]
        dy.esum(losses).backward(full=True)
        return [np.concatenate([each.npvalue(), x.gradient()]) for each, x in zip(losses, xs)]

    for array, found in zip(arrays, run(arrays)):
        np.testing.assert_array_equal(run([array])[0], found)
