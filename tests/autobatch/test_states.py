"""Steps of LSTMs, which native code adds where it can: every other way gives the same."""

from __future__ import annotations

import numpy as np
import pytest

import dpmodule.autobatch as dy

SIZE, WIDTH = 3, 4


@pytest.fixture(autouse=True)
def _new_graph():
    dy.renew_cg()


def network(layers=1, cls=dy.VanillaLSTMBuilder):
    return cls(layers, SIZE, WIDTH, dy.ParameterCollection())


def inputs(count):
    random = np.random.RandomState(0)
    return [dy.inputVector(random.standard_normal(SIZE)) for _ in range(count)]


def expected(builder, xs):
    """The outputs of all layers after the last input, in numpy."""
    logistic = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731
    outputs = []
    for wx, wh, b in builder.get_parameters():
        wx, wh, b = (each.as_array() for each in (wx, wh, b))
        h, c, after = np.zeros(WIDTH), np.zeros(WIDTH), []
        for x in xs:
            i, f, o, u = np.split(wx @ x + wh @ h + b, 4)
            c = logistic(f + 1.0) * c + logistic(i) * np.tanh(u)
            h = logistic(o) * np.tanh(c)
            after.append(h)
        xs = after
        outputs.append(h)
    return outputs


@pytest.mark.parametrize("layers", [1, 2, 4, 5])
def test_steps_of_all_layers_are_those_of_numpy(layers):
    builder, xs = network(layers), inputs(6)
    state = builder.initial_state()
    for x in xs:
        state = state.add_input(x)
    wanted = expected(builder, [x.npvalue() for x in xs])
    found = [each.npvalue() for each in state.h()]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state.output().npvalue(), wanted[-1], rtol=1e-5, atol=1e-6)
    together = builder.initial_state().transduce(xs)
    np.testing.assert_allclose(together[-1].npvalue(), wanted[-1], rtol=1e-5, atol=1e-6)
    assert len(state.s()) == 2 * layers


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_any_iterable_is_transduced(kind):
    builder, xs = network(2), inputs(4)
    one_by_one = [state.output().npvalue() for state in builder.initial_state().add_inputs(xs)]
    found = [each.npvalue() for each in builder.initial_state().transduce(kind(xs))]
    np.testing.assert_allclose(found, one_by_one, rtol=1e-5, atol=1e-7)
    assert builder.initial_state().transduce([]) == []


def test_an_input_may_be_a_parameter_or_a_keyword():
    builder = network()
    p = dy.ParameterCollection().add_parameters((SIZE,), init=0.5)
    a = builder.initial_state().add_input(p)
    b = builder.initial_state().add_input(x=dy.inputVector([0.5] * SIZE))
    np.testing.assert_allclose(a.output().npvalue(), b.output().npvalue(), rtol=1e-6)


def test_previous_states_and_the_network():
    builder = network()
    first = builder.initial_state()
    second = first.add_input(inputs(1)[0])
    assert second.prev() is first
    assert first.prev() is None
    assert first.output() is None
    assert second.b() is builder


def test_given_states_are_continued():
    builder, (x, y) = network(2), inputs(2)
    after = builder.initial_state().add_input(x)
    wanted = after.add_input(y).output().npvalue()
    again = builder.initial_state(list(after.s())).add_input(y)
    np.testing.assert_allclose(again.output().npvalue(), wanted, rtol=1e-6)
    replaced = builder.initial_state().add_input(y).set_s(list(after.s())).add_input(y)
    np.testing.assert_allclose(replaced.output().npvalue(), wanted, rtol=1e-6)


def test_dropout_switched_on_amid_a_sequence_counts_from_then_on():
    builder, (x, y) = network(), inputs(2)
    state = builder.initial_state().add_input(x)
    plain = state.add_input(y).output().npvalue()
    builder.set_dropouts(0.0, 0.999)
    assert not np.allclose(state.add_input(y).output().npvalue(), plain)
    builder.disable_dropout()
    np.testing.assert_allclose(state.add_input(y).output().npvalue(), plain, rtol=1e-6)


def test_constant_parameters_get_no_gradient():
    builder, xs = network(), inputs(3)
    builder.initial_state().add_input(xs[0])  # the same network with gradients, in the same graph
    constant = builder.initial_state(update=False)
    for outputs in (constant.transduce(xs), [constant.add_input(xs[0]).output()]):
        dy.sum_elems(outputs[-1]).backward()
    assert all(not each.grad_as_array().any() for each in builder.get_parameters()[0])
    dy.sum_elems(builder.initial_state().transduce(xs)[-1]).backward()
    assert builder.get_parameters()[0][0].grad_as_array().any()


def test_a_derived_class_computes_its_own_cell():
    class Doubled(dy.VanillaLSTMBuilder):
        def cell(self, weights, x, old, mask):
            h, c = super().cell(weights, x, old, mask)
            return h * 2.0, c

    builder, (x,) = network(cls=Doubled), inputs(1)
    wanted = 2 * expected(builder, [x.npvalue()])[0]
    np.testing.assert_allclose(builder.initial_state().add_input(x).output().npvalue(), wanted, rtol=1e-5)


def test_bad_inputs_name_the_line():
    state = network().initial_state()
    with pytest.raises(dy.ShapeError, match=r"test_states\.py"):
        state.add_input(dy.inputVector([1.0] * (SIZE + 1)))
    with pytest.raises(dy.ForeignValueError):
        state.add_input(3)
    with pytest.raises(TypeError):
        state.add_input()


def test_states_of_earlier_graphs_and_of_a_part_taken_back():
    builder = network()
    x, y = inputs(2)
    state = builder.initial_state().add_input(x)
    dy.cg_checkpoint()
    later = state.add_input(y)
    dy.cg_revert()
    with pytest.raises(dy.StaleExpressionError):
        later.add_input(x)
    with pytest.raises(dy.StaleExpressionError):
        later.output().value()
    assert state.add_input(y).output().npvalue().shape == (WIDTH,)
    dy.renew_cg()
    with pytest.raises(dy.StaleExpressionError):
        state.add_input(dy.inputVector([1.0] * SIZE))
    with pytest.raises(dy.StaleExpressionError):
        state.transduce([dy.inputVector([1.0] * SIZE)])


def test_a_long_chain_of_states_is_given_back_without_recursion():
    state, x = network().initial_state(), inputs(1)[0]
    for _ in range(30_000):
        state = state.add_input(x)
    del state


def test_more_kinds_of_nodes_than_the_table_of_recent_ones_has_places():
    for size in range(1, 1500):
        x = dy.inputVector([1.0] * size)
        y = x + x
    x = dy.inputVector([0.5, 1.0])
    for _ in range(2):
        np.testing.assert_allclose((x + x).npvalue(), [1.0, 2.0])
        np.testing.assert_allclose(dy.cmult(x, x).npvalue(), [0.25, 1.0])
    np.testing.assert_allclose(y.npvalue()[:3], 2.0)


def test_states_begin_with_lists_of_numbers():
    lstm = dy.VanillaLSTMBuilder(1, 2, 3, dy.ParameterCollection())
    c, h = [0.1, 0.2, 0.3], np.array([0.4, 0.5, 0.6])
    given = lstm.initial_state([dy.inputVector(c), dy.inputVector(h)]).add_input(dy.inputVector([1.0, 2.0]))
    raw = lstm.initial_state_from_raw_vectors([c, h]).add_input(dy.inputVector([1.0, 2.0]))
    np.testing.assert_array_equal(raw.output().npvalue(), given.output().npvalue())
    with pytest.raises(dy.ForeignValueError, match="vecs"):
        lstm.initial_state_from_raw_vectors(None)
