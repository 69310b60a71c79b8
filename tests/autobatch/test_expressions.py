"""What expressions promise: laziness, caching, deltas, errors at the call, graphs of any depth."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest

import dpmodule.autobatch as dy
from dpmodule.autobatch.errors import (
    BoundsError,
    EmptySequenceError,
    ForeignValueError,
    NoGradientError,
    NotScalarError,
    ShapeError,
    StaleExpressionError,
    StateError,
)
from dpmodule.autobatch.session import pop_arguments
from helpers.both_backends import measures_memory, resident_bytes

pytestmark = pytest.mark.usefixtures("engine")


def vector(*numbers):
    return dy.inputTensor(np.array(numbers, np.float64))


def test_values_in_every_form():
    matrix = dy.inputTensor(np.arange(6.0).reshape(2, 3))
    assert matrix.vec_value() == [0, 3, 1, 4, 2, 5]
    assert matrix.value().shape == (2, 3)
    assert vector(1, 2).value() == [1.0, 2.0]
    assert dy.scalarInput(3).value() == 3.0
    assert dy.scalarInput(3).npvalue().shape == (1,)
    batch = dy.inputTensor(np.arange(6.0).reshape(2, 3), batched=True)
    assert batch.dim() == ((2,), 3)
    assert batch.npvalue().shape == (2, 3)
    np.testing.assert_array_equal(
        dy.inputMatrix([1, 2, 3, 4, 5, 6], (2, 3)).npvalue(), [[1, 3, 5], [2, 4, 6]]
    )


def test_nothing_runs_before_a_value_is_asked_for():
    dy.configure(engine="python")
    x = vector(1, 2)
    y = dy.tanh(x)
    graph = dy.cg()
    assert graph.plans() == []
    later = dy.tanh(vector(3, 4))
    later.npvalue()
    assert [plan.end for plan in graph.plans()] == [4]
    y.npvalue()
    assert len(graph.plans()) == 1, "y came before later: its value is there"
    dy.exp(y).npvalue()
    assert [(plan.first, plan.end) for plan in graph.plans()] == [(0, 4), (4, 5)], "only the delta"


def test_forward_of_several_is_one_plan():
    dy.configure(engine="python")
    xs = [dy.tanh(vector(i, i)) for i in range(5)]
    dy.forward([xs[3], xs[4], xs[1]])
    assert len(dy.cg().plans()) == 1
    assert [len(step.nodes) for step in dy.cg().plans()[0].steps] == [5, 5]


def test_autobatching_off_runs_one_by_one():
    dy.configure(engine="python", autobatch=False)
    xs = [dy.tanh(vector(i, i)) for i in range(5)]
    dy.forward(xs)
    assert [len(step.nodes) for step in dy.cg().plans()[0].steps] == [1] * 10
    dy.renew_cg(autobatching=True)
    xs = [dy.tanh(vector(i, i)) for i in range(5)]
    dy.forward(xs)
    assert len(dy.cg().plans()[0].steps) == 2


def test_backward_after_incremental_forwards():
    m = dy.ParameterCollection()
    w = m.parameters_from_numpy(np.array([2.0, 3.0]))
    y = dy.cmult(w, vector(1, 2))
    y.npvalue()
    z = dy.square(y)
    z.npvalue()
    loss = dy.sum_elems(z)
    loss.backward()
    np.testing.assert_allclose(w.grad_as_array(), [4.0, 24.0])
    np.testing.assert_allclose(y.gradient(), [4.0, 12.0])


def test_gradients_add_up_and_full_reaches_inputs():
    m = dy.ParameterCollection()
    b = m.parameters_from_numpy(np.array([2.0, 2.0, 2.0]))
    x = vector(1, 2, 3)
    y = x * 2
    loss = dy.dot_product(y, b)
    loss.backward()
    np.testing.assert_array_equal(x.gradient(), [0, 0, 0])
    other = dy.squared_norm(b)
    other.backward()
    np.testing.assert_allclose(b.grad_as_array(), [6, 8, 10])
    np.testing.assert_allclose(b.gradient(), [4, 4, 4])
    loss.backward(full=True)
    np.testing.assert_allclose(x.gradient(), [4, 4, 4])
    np.testing.assert_allclose(y.gradient(), [2, 2, 2])


def test_parts_that_the_loss_does_not_need_do_not_disturb():
    m = dy.ParameterCollection()
    w = m.parameters_from_numpy(np.array([0.0, 4.0]))
    bad = dy.sum_elems(dy.sqrt(w - 1.0))  # not a number
    loss = dy.sum_elems(dy.square(w))
    bad.forward()
    loss.backward()
    np.testing.assert_allclose(w.grad_as_array(), [0.0, 8.0])


def test_parts_in_one_batch_with_what_the_loss_needs_do_not_disturb():
    m = dy.ParameterCollection()
    w = m.parameters_from_numpy(np.array([1.0, 4.0]))
    roots = [dy.sqrt(dy.cmult(w, vector(*factors))) for factors in ((1, 1), (0, 0), (2, 2))]
    loss = dy.sum_elems(roots[0]) + dy.sum_elems(roots[2])
    dy.sum_elems(roots[1]).forward()
    dy.forward([*roots, loss])
    loss.backward()
    np.testing.assert_allclose(w.grad_as_array(), np.array([0.5, 0.25]) * (1 + 2**0.5), rtol=1e-5)


def test_expr_is_updated_unless_told_otherwise():
    m = dy.ParameterCollection()
    w = m.parameters_from_numpy(np.array([1.0, 2.0]))
    dy.squared_norm(w.expr()).backward()
    np.testing.assert_allclose(w.grad_as_array(), [2.0, 4.0])


def test_updates_leave_constants_alone():
    m = dy.ParameterCollection()
    w = m.parameters_from_numpy(np.array([1.0, 2.0]))
    loss = dy.sum_elems(dy.cmult(w.expr(update=False), w))
    loss.backward()
    np.testing.assert_allclose(w.grad_as_array(), [1.0, 2.0])


def test_reset_inputs():
    x = dy.vecInput(2)
    y = x * 2
    x.set([1, 2])
    assert y.vec_value() == [2, 4]
    x.set([3, 4])
    assert y.vec_value() == [6, 8]
    assert y.npvalue(recalculate=True).tolist() == [6, 8]


def test_checkpoint_and_revert():
    x = vector(1, 2)
    y = dy.tanh(x)
    y.npvalue()
    size = dy.cg().size
    dy.cg_checkpoint()
    z = dy.exp(y)
    z.npvalue()
    dy.cg_revert()
    assert dy.cg().size == size
    for use in (z.npvalue, z.dim, lambda: dy.tanh(z), lambda: z + y):
        with pytest.raises(StaleExpressionError, match=r"node 2 was removed by cg_revert .*test_expressions"):
            use()
    np.testing.assert_allclose((y + 1.0).npvalue(), np.tanh([1, 2]) + 1, rtol=1e-6)


def test_parameters_enter_anew_after_revert():
    m = dy.ParameterCollection()
    w, table = (
        m.parameters_from_numpy(np.array([[1.0, 2.0]])),
        m.lookup_parameters_from_numpy(np.array([[5.0, 7.0]])),
    )
    x = vector(3, 4)
    dy.cg_checkpoint()
    assert (w * x + w.expr(update=False) * table[0]).value() == 11 + 19
    dy.cg_revert()
    others = [vector(i) for i in range(9)]  # take the numbers of the nodes that are gone
    assert (w * x + w.expr(update=False) * table[0]).value() == 11 + 19
    assert others[3].value() == 3


def test_stale_expressions():
    x = vector(1, 2)
    y = dy.tanh(x)
    dy.renew_cg()
    for call in (x.npvalue, x.dim, x.gradient, lambda: x + 1, lambda: dy.tanh(y), lambda: dy.esum([x, y])):
        with pytest.raises(StaleExpressionError, match="renew") as caught:
            call()
        assert isinstance(caught.value, RuntimeError)
        assert isinstance(caught.value, ValueError)


def test_shape_errors_at_the_call_name_shapes_and_line():
    m = dy.ParameterCollection()
    w, x, table = m.add_parameters((3, 4)), vector(1, 2, 3), m.add_lookup_parameters((5, 3))
    for call, text in (
        (lambda: w * x, "{3,4} {3}"),
        (lambda: x + vector(1, 2), "{3} {2}"),
        (lambda: dy.concatenate([w, x]), "{3,4} {3}"),
        (lambda: dy.affine_transform([x, w, x]), "{3} {3,4} {3}"),
        (lambda: dy.softmax(x, 2), "{3}"),
        (lambda: dy.pick_range(x, 1, 7), "{3}"),
        (lambda: dy.reshape(x, (2, 2)), "{2,2} {3}"),
        (lambda: dy.dot_product(w, x), "{3,4} {3}"),
        (lambda: dy.lookup_batch(table, [1, 2]) + dy.inputTensor(np.ones((3, 4)), batched=True), "{3X2} {3X4}"),
    ):  # fmt: skip
        with pytest.raises(ShapeError) as caught:
            call()
        assert text in str(caught.value)
        assert "test_expressions.py" in str(caught.value)
        assert isinstance(caught.value, ValueError)


def test_bounds():
    m = dy.ParameterCollection()
    table, x = m.add_lookup_parameters((5, 2)), vector(1, 2)
    calls = [
        lambda: table[5],
        lambda: table[-1],
        lambda: dy.lookup(table, 9),
        lambda: dy.lookup_batch(table, [1, 6]),
        lambda: dy.pick(x, 2),
        lambda: x[2],
        lambda: dy.pickneglogsoftmax(x, 2),
        lambda: dy.pickneglogsoftmax(x, -1),
        lambda: dy.pickneglogsoftmax_batch(x, [0, 3]),
        lambda: dy.hinge(x, 4),
        lambda: dy.one_hot(3, 3),
        lambda: x[1:1],
        lambda: dy.pick_batch_elem(x, 1),
    ]
    for call in calls:
        with pytest.raises(BoundsError) as caught:
            call()
        assert isinstance(caught.value, ValueError)
    for call in (lambda: table[-1], lambda: dy.pick(x, -1)):
        with pytest.raises(OverflowError):  # as DyNet
            call()


def test_other_errors():
    m = dy.ParameterCollection()
    w, x = m.add_parameters((2, 2)), vector(1, 2)
    for call in (dy.esum, dy.concatenate, dy.average, dy.emax, dy.concatenate_cols):
        with pytest.raises(EmptySequenceError):
            call([])
    with pytest.raises(NotScalarError, match=r"dimension: \{2\}"):
        (w * x).backward()
    with pytest.raises(NotScalarError):
        x.scalar_value()
    with pytest.raises(NoGradientError):
        x.gradient()
    loss = dy.sum_elems(w * x)
    loss.backward()
    with pytest.raises(StateError, match="twice"):
        loss.backward()
    with pytest.raises(NoGradientError):
        (x * 2).gradient()
    with pytest.raises(ForeignValueError):
        dy.inputTensor(["a"])
    with pytest.raises((ForeignValueError, TypeError)):
        dy.esum([x, 3])
    with pytest.raises(TypeError):
        x + "a"
    lstm = dy.LSTMBuilder(1, 2, 2, m)
    assert lstm.initial_state().transduce([]) == []
    state = lstm.initial_state()
    dy.renew_cg()
    with pytest.raises(StaleExpressionError):
        state.add_input(vector(1, 2))
    with pytest.raises(ValueError, match="stale"):
        lstm.get_parameter_expressions()


def test_check_validity_and_immediate_compute():
    dy.renew_cg(immediate_compute=True, check_validity=True)
    x = vector(1, 0)
    with pytest.raises(ArithmeticError, match="not finite"):
        dy.log(x)


def chain(depth):
    dy.renew_cg()
    y = dy.scalarInput(0.5)
    for _ in range(depth):
        y = y + 1.0
    assert y.scalar_value() == depth + 0.5


def calls_of(function, *args):
    """Return how many functions are called, those written in C among them."""
    count = 0

    def note(frame, event, arg):
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function(*args)
    finally:
        sys.setprofile(before)
    return count


def test_deep_graphs_do_not_recurse_and_take_linear_work():
    chain(20_000)
    assert calls_of(chain, 4_000) < 4.1 * calls_of(chain, 1_000)


def test_wide_graphs_of_a_million_nodes():
    dy.renew_cg()
    x = dy.scalarInput(1.0)
    xs = [x + float(i % 7) for i in range(400_000)]
    total = dy.esum([dy.tanh(y) for y in xs])
    assert total.scalar_value() == pytest.approx(float(np.tanh(np.arange(400_000) % 7 + 1).sum()), rel=1e-4)
    dy.renew_cg()


@measures_memory
def test_memory_is_given_back():
    m = dy.ParameterCollection()
    w = m.add_parameters((16, 16))

    def rounds(count):
        for i in range(count):
            dy.renew_cg()
            xs = [dy.tanh(w * dy.inputTensor(np.full(16, float(j)))) for j in range(3 + i % 5)]
            dy.sum_elems(dy.esum(xs)).backward()
            w.storage.clear_gradient()

    rounds(300)
    gc.collect()
    before = resident_bytes()
    rounds(600)
    gc.collect()
    assert resident_bytes() < before * 1.01 + 1e6


def test_arguments_are_taken_from_the_command_line():
    argv = ["prog", "a", "--dynet-autobatch", "1", "--dynet-seed", "7", "--dynet-mem=512", "b", "--dynet-viz"]
    found = pop_arguments(argv)
    assert argv == ["prog", "a", "b"]
    assert found["autobatch"] == "1"
    assert found["random_seed"] == "7"
    with pytest.raises(ValueError, match="needs a value"):
        pop_arguments(["prog", "--dynet-seed"])
    with pytest.raises(ValueError, match="needs a value"):
        pop_arguments(["prog", "--dynet-seed="])


def test_many_products_with_few_matrices():
    """Attention: the queries of a sentence share its matrix."""
    draw = np.random.RandomState(0)
    arrays = [draw.uniform(-1, 1, (4, 5)) for _ in range(3)]
    vectors = draw.uniform(-1, 1, (3, 20, 5))
    m = dy.ParameterCollection()
    w = m.parameters_from_numpy(np.eye(4))
    matrices = [w * dy.inputTensor(a) for a in arrays]
    products = [[matrix * dy.inputTensor(v) for v in row] for matrix, row in zip(matrices, vectors)]
    loss = dy.esum([dy.sum_elems(p) for row in products for p in row])
    loss.backward(full=True)
    for matrix, array, row, found in zip(matrices, arrays, vectors, products):
        for v, p in zip(row, found):
            np.testing.assert_allclose(p.npvalue(), array @ v, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(matrix.gradient(), np.tile(row.sum(0), (4, 1)), rtol=1e-4, atol=1e-5)


def test_seeds_repeat_dropout():
    values = []
    for _ in range(2):
        dy.set_random_seed(5)
        dy.renew_cg()
        values.append(dy.dropout(dy.ones(50), 0.5).npvalue())
    np.testing.assert_array_equal(values[0], values[1])
    assert set(values[0].tolist()) == {0.0, 2.0}


def test_every_example_has_a_mask_of_its_own():
    xs = [dy.dropout(dy.ones(40), 0.5) for _ in range(4)]
    dy.forward(xs)
    assert len({tuple(x.vec_value()) for x in xs}) == 4


def test_graphviz_text(capsys):
    m = dy.ParameterCollection()
    dy.renew_cg()
    dy.tanh(m.add_parameters((2, 2)) * vector(1, 2))
    dy.print_text_graphviz()
    out = capsys.readouterr().out
    assert out.startswith("digraph G {")
    assert "tanh" in out
