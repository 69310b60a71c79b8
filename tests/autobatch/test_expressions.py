"""What expressions promise: laziness, constants, graphs of any depth, functions that must not disturb their graph."""

import itertools

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.walk import walks

pytestmark = pytest.mark.usefixtures("engine")


def vector(*numbers):
    return dy.inputTensor(np.array(numbers, np.float64))


def test_nothing_runs_before_a_value_is_asked_for():
    dy.configure(engine="python")
    y, graph = dy.tanh(vector(1, 2)), dy.cg()
    assert graph.plans() == []
    dy.tanh(vector(3, 4)).npvalue()
    y.npvalue()  # came before: its value is there
    assert [(plan.first, plan.end) for plan in graph.plans()] == [(0, 4)]
    dy.exp(y).npvalue()
    assert [(plan.first, plan.end) for plan in graph.plans()] == [(0, 4), (4, 5)], "only the delta"


@pytest.mark.parametrize(
    ("autobatch", "again", "steps"), [(True, None, [5, 5]), (False, None, [1] * 10), (False, True, [5, 5])]
)
def test_batches_of_one_forward(autobatch, again, steps):
    dy.configure(engine="python", autobatch=autobatch)
    dy.renew_cg(autobatching=again)
    xs = [dy.tanh(vector(i, i)) for i in range(5)]
    dy.forward([xs[3], xs[4], xs[1]])
    assert [[len(step.nodes) for step in plan.steps] for plan in dy.cg().plans()] == [steps]


def test_expr_is_updated_unless_told_otherwise():
    w = dy.ParameterCollection().parameters_from_numpy(np.array([1.0, 2.0]))
    dy.squared_norm(w.expr()).backward()
    np.testing.assert_allclose(w.grad_as_array(), [2.0, 4.0])
    dy.sum_elems(dy.cmult(w.expr(update=False), w)).backward()
    np.testing.assert_allclose(w.grad_as_array(), [3.0, 6.0])
    (dy.inputTensor([[1.0, 2.0]]) * w).backward()
    np.testing.assert_allclose(w.grad_as_array(), [4.0, 8.0])


@pytest.mark.parametrize("autobatch", [False, True])
def test_numbers_that_the_loss_does_not_read_spoil_no_gradient(autobatch):
    """In another part of the graph, and in one batch with what it reads."""
    dy.renew_cg(autobatching=autobatch)
    w = dy.ParameterCollection().parameters_from_numpy(np.array([1.0, 4.0]))
    bad = dy.log(w - 5.0) + dy.sparsemax(dy.sqrt(w - 5.0))
    roots = [dy.sqrt(dy.cmult(w, vector(*factors))) for factors in ((1, 1), (0, 0), (2, 2))]
    loss = dy.sum_elems(roots[0]) + dy.sum_elems(roots[2])
    dy.forward([*roots, bad, loss])
    assert np.isnan(bad.npvalue()).all()
    loss.backward()
    np.testing.assert_allclose(w.grad_as_array(), np.array([0.5, 0.25]) * (1 + 2**0.5), rtol=1e-5)


def chain(depth):
    dy.renew_cg()
    y = dy.scalarInput(0.5)
    for _ in range(depth):
        y = y + 1.0
    assert y.scalar_value() == depth + 0.5


def test_deep_graphs_do_not_recurse():
    chain(20_000)
    state = dy.VanillaLSTMBuilder(1, 1, 1, dy.ParameterCollection()).initial_state()
    x = dy.inputVector([1.0])
    for _ in range(30_000):
        state = state.add_input(x)
    del state  # the states before it are given back without recursion


def test_more_kinds_of_nodes_than_the_table_of_recent_ones_has_places():
    for size in range(1, 1500):
        x = dy.inputVector([1.0] * size)
        y = x + x
    x = dy.inputVector([0.5, 1.0])
    for _ in range(2):
        np.testing.assert_allclose((x + x).npvalue(), [1.0, 2.0])
        np.testing.assert_allclose(dy.cmult(x, x).npvalue(), [0.25, 1.0])
    np.testing.assert_allclose(y.npvalue()[:3], 2.0)


def test_many_products_with_few_matrices():
    """Attention: the queries of a sentence share its matrix."""
    draw = np.random.RandomState(0)
    arrays, vectors = draw.uniform(-1, 1, (3, 4, 5)), draw.uniform(-1, 1, (3, 20, 5))
    w = dy.ParameterCollection().parameters_from_numpy(np.eye(4))
    matrices = [w * dy.inputTensor(a) for a in arrays]
    products = [[matrix * dy.inputTensor(v) for v in row] for matrix, row in zip(matrices, vectors)]
    dy.esum([dy.sum_elems(p) for row in products for p in row]).backward(full=True)
    for matrix, array, row, found in zip(matrices, arrays, vectors, products):
        np.testing.assert_allclose(dy.npvalues(found), row @ array.T, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(matrix.gradient(), np.tile(row.sum(0), (4, 1)), rtol=1e-4, atol=1e-5)


def test_elements_of_results_are_picked_again():
    x = dy.inputTensor(np.arange(6.0).reshape(3, 2))
    assert dy.values([x[1][0], (x * x[0])[2], dy.pick(x, 2)[1], x[0:2][1][1]]) == [2.0, 5.0, 5.0, 3.0]


def test_generators_in_place_of_lists():
    xs = [vector(1, 2, 3) * float(number) for number in range(6)]
    assert dy.values(iter(xs))[2] == [2.0, 4.0, 6.0]
    assert dy.npvalues(x for x in xs)[1].tolist() == [1.0, 2.0, 3.0]
    assert dy.reshape(xs[0], (size for size in (1, 3))).dim() == ((1, 3), 1)
    before = dy.cg().size
    with pytest.raises(dy.ForeignValueError, match="npvalue"):
        np.mean([xs[0], xs[0]])
    assert dy.cg().size == before, "nothing was picked from it"


DISTURBS = {each.__name__: each for each in (dy.renew_cg, dy.cg_checkpoint, dy.cg_revert)}
DISTURBS["configure"] = lambda: dy.configure(autobatch=False)


@walks(itertools.product(DISTURBS, [True, False, None], ["call", "value"]))
def test_a_function_that_disturbs_the_graph_that_calls_it(what, rows, when):
    is_quiet = [when == "value"]

    def disturbs(x):
        if not is_quiet[0]:
            DISTURBS[what]()
        return 2 * x

    x, function = vector(1, 2, 3), dy.wrap(disturbs, rows=rows)
    if when == "value":
        y = function(x)
        is_quiet[0] = False
    with pytest.raises(dy.StateError, match=rf"{what} was called inside disturbs.*test_expressions"):
        y.npvalue() if when == "value" else function(x)
    is_quiet[0] = True
    np.testing.assert_allclose(function(x).npvalue(), [2.0, 4.0, 6.0])
    dy.renew_cg()
    assert vector(1, 2).vec_value() == [1.0, 2.0]


def test_an_operation_must_not_use_the_graph_that_runs_it():
    later = []

    def asks(x):
        dy.forward(later)
        return 2 * x

    outer = dy.wrap(asks, rows=True)(dy.sin(vector(1, 2, 3)))
    later.append(dy.tanh(vector(1, 2, 3)))
    with pytest.raises(dy.StateError, match="must not use it"):
        outer.npvalue()
    dy.renew_cg()
    assert vector(1, 2).vec_value() == [1.0, 2.0]


def test_graphviz_text(capsys):
    dy.tanh(dy.ParameterCollection().add_parameters((2, 2)) * vector(1, 2))
    dy.print_text_graphviz()
    out = capsys.readouterr().out
    assert out.startswith("digraph G {")
    assert "tanh" in out
