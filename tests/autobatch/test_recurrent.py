"""Networks of every kind, whose steps native code adds: each way through a sequence as on the other engine."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.both_engines import on_both
from helpers.walk import walks

SIZE, HIDDEN, LAYERS = 3, 4, 2
KINDS = ["Simple", "GRU", "Vanilla", "Compact", "Coupled", "Fast", "Sparse", "Norm"]
NAMES = {
    "Simple": "SimpleRNNBuilder",
    "GRU": "GRUBuilder",
    "Vanilla": "VanillaLSTMBuilder",
    "Compact": "CompactVanillaLSTMBuilder",
    "Coupled": "CoupledLSTMBuilder",
    "Fast": "FastLSTMBuilder",
    "Sparse": "SparseLSTMBuilder",
    "Norm": "VanillaLSTMBuilder",
}
PLAIN = [kind for kind in KINDS if kind not in ("Sparse", "Norm")]


def network(kind, size=SIZE, layers=LAYERS):
    """Return a network, its collection, and how many vectors its states have."""
    m = dy.ParameterCollection()
    builder = getattr(dy, NAMES[kind])(
        layers, size, HIDDEN, m, **({"ln_lstm": True} if kind == "Norm" else {})
    )
    draw = np.random.RandomState(0)
    for p in m.parameters_list():
        p.set_value(draw.uniform(-0.6, 0.6, p.shape()))
    return builder, m, layers * (1 if kind in ("Simple", "GRU") else 2)


def vectors(count, size, batch=1, seed=1):
    draw = np.random.RandomState(seed)
    if batch == 1:
        return [dy.inputTensor(draw.uniform(-1, 1, size)) for _ in range(count)]
    return [dy.inputTensor(draw.uniform(-1, 1, (size, batch)), batched=True) for _ in range(count)]


def measured(m, outputs, inputs):
    """Return the values of outputs, and the gradients of a sum of all their elements to parameters and inputs."""
    weights = dy.inputTensor(np.linspace(-1, 1, HIDDEN))
    loss = dy.sum_batches(dy.esum([dy.dot_product(weights, dy.square(y) + y) for y in outputs]))
    m.reset_gradient()
    found = [loss.npvalue(), *(y.npvalue() for y in outputs)]
    loss.backward(full=True)
    return found + [p.grad_as_array() for p in m.parameters_list()] + [x.gradient() for x in inputs]


@pytest.fixture(autouse=True)
def _as_before():
    yield
    dy.configure(engine="auto", autobatch=False, dtype="float32")


@walks(product([1, 3], KINDS))
def test_sequences_beginnings_and_continuations(batch, kind):
    def program():
        builder, m, count = network(kind)
        xs, first = vectors(5, SIZE, batch), vectors(count, HIDDEN, batch, 2)
        begun = builder.initial_state(first)
        states = begun.add_inputs(xs[:3])
        again = states[0].add_input(xs[3]).add_input(xs[4])  # one state, two continuations
        back = states[2].prev().add_input(xs[4])
        fresh = builder.initial_state()
        outputs = [*fresh.transduce(xs), *begun.transduce(xs[:2]), *fresh.add_input(xs[1]).transduce(xs[2:])]
        outputs += [states[2].output(), again.output(), back.output(), *again.s(), *states[1].h()]
        return measured(m, outputs, [*xs, *first])

    on_both(program)


@walks(product([1, 2], KINDS))
def test_states_that_are_set(batch, kind):
    def program():
        builder, m, count = network(kind)
        xs, given = vectors(3, SIZE, batch), vectors(count, HIDDEN, batch, 2)
        state = builder.initial_state().add_input(xs[0])
        outputs = [*state.set_h(given[:LAYERS]).add_input(xs[1]).s()]
        outputs += state.set_s(given).add_input(xs[1]).add_input(xs[2]).s()
        outputs += state.set_s(given[:LAYERS]).add_input(xs[2]).s()
        outputs += builder.initial_state().set_h(given[:LAYERS]).add_input(xs[2]).s()
        outputs += builder.initial_state([given[0]] * count).add_input(xs[1]).s()  # one vector for all
        return measured(m, outputs, [*xs, *given])

    on_both(program)


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_out_goes_in(kind):
    def program():
        builder, m, _ = network(kind, HIDDEN)
        (x,) = xs = vectors(1, HIDDEN)
        states = [builder.initial_state().add_input(x)]
        for _ in range(4):
            states.append(states[-1].add_input(states[-1].output()))
        return measured(m, [state.output() for state in states], xs)

    on_both(program)


@pytest.mark.parametrize("kind", KINDS)
def test_a_minibatch_goes_on_from_one_vector(kind):
    def program():
        builder, m, count = network(kind)
        xs, first = vectors(2, SIZE, 3), vectors(count, HIDDEN)
        return measured(m, builder.initial_state(first).add_inputs(xs)[-1].s(), [*xs, *first])

    on_both(program)


@pytest.mark.parametrize("kind", PLAIN)
def test_columns_are_vectors(kind):
    builder, _, _ = network(kind)
    array = np.linspace(-1, 1, SIZE)
    found = [
        builder.initial_state().add_inputs([x, x])[-1].output().npvalue().ravel()
        for x in (dy.inputTensor(array), dy.inputTensor(array[:, None]))
    ]
    np.testing.assert_allclose(*found, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_graph_grows_between_values(kind):
    def program():
        builder, m, _ = network(kind)
        xs = vectors(4, SIZE)
        state, outputs, seen = builder.initial_state(), [], []
        for x in xs:
            state = state.add_input(x)
            outputs.append(state.output())
            seen.append(state.output().npvalue())
        return seen + measured(m, outputs, xs)

    on_both(program)


@walks(product([False, True], KINDS))
def test_gradients_of_states(autobatch, kind):
    """Of outputs and memories in the middle, which others read, too."""

    def gradients(engine):
        dy.configure(engine=engine, autobatch=autobatch)
        dy.renew_cg()
        builder, _, _ = network(kind)
        states = builder.initial_state().add_inputs(vectors(3, SIZE))
        loss = dy.esum([dy.squared_norm(each) for each in (*states[2].s(), *states[1].s())])
        loss.backward(full=True)
        return [each.gradient() for state in states for each in state.s()]

    for native, python in zip(gradients("auto"), gradients("python")):
        np.testing.assert_allclose(native, python, rtol=1e-4, atol=1e-6)


@walks(product([1, 3], KINDS))
def test_dropout(batch, kind):
    """Masks are drawn in one order by both engines, once for a sequence, whichever way it goes."""

    def program(engine, autobatch=False):
        dy.configure(engine=engine, autobatch=autobatch, random_seed=5)
        dy.renew_cg()
        builder, m, _ = network(kind)
        builder.set_dropouts(0.4, 0.3)
        xs = vectors(4, SIZE, batch)
        outputs = []
        for _ in range(2):
            state = builder.initial_state()
            builder.set_dropout_masks(batch)
            outputs += state.transduce(xs)
            for x in xs:
                state = state.add_input(x)
            outputs += state.s()
        return measured(m, outputs, xs)

    wanted = program("python")
    for found in (program("auto"), program("auto")):
        for native, python in zip(found, wanted):
            np.testing.assert_allclose(native, python, rtol=1e-4, atol=1e-5)
    program("auto", True)
    assert any(np.abs(a - b).max() > 1e-3 for a, b in zip(wanted, program_without_dropout(kind, batch)))


def program_without_dropout(kind, batch):
    dy.renew_cg()
    builder, m, _ = network(kind)
    builder.set_dropout(0.5)
    builder.disable_dropout()
    xs = vectors(4, SIZE, batch)
    outputs = []
    for _ in range(2):
        outputs += builder.initial_state().transduce(xs)
        outputs += builder.initial_state().add_inputs(xs)[-1].s()
    return measured(m, outputs, xs)


@walks(KINDS)
@pytest.mark.usefixtures("setting")
def test_masks_are_drawn_at_the_first_input_and_stay(kind):
    """What the input is multiplied with is the same at all positions, and another one in the next sequence."""
    builder, _, _ = network(kind, 60, 1)
    builder.set_dropouts(0.5, 0.0)
    draw = np.random.RandomState(3)
    xs = [dy.inputTensor(draw.uniform(0.5, 1, 60)) for _ in range(2)]
    gradients = []
    for each in (lambda s: s.transduce(xs)[-1], lambda s: s.add_inputs(xs)[-1].output()):
        loss = dy.sum_elems(each(builder.initial_state()))
        loss.backward(full=True)
        gradients.append([x.gradient() != 0 for x in xs])
    for first, second in gradients:
        assert 5 < first.sum() < 55
        np.testing.assert_array_equal(first, second)
    assert (gradients[0][0] != gradients[1][0]).any()


@walks(PLAIN)
@pytest.mark.usefixtures("setting")
def test_constant_parameters_beside_others(kind):
    builder, m, _ = network(kind)
    xs = vectors(3, SIZE)
    plain, constant = builder.initial_state(), builder.initial_state(update=False)
    for outputs in (constant.transduce(xs), [constant.add_input(xs[0]).add_input(xs[1]).output()]):
        dy.sum_elems(outputs[-1]).backward(full=True)
        assert xs[0].gradient().any()
        assert not any(p.grad_as_array().any() for p in m.parameters_list())
    np.testing.assert_allclose(
        plain.transduce(xs)[-1].npvalue(), constant.transduce(xs)[-1].npvalue(), rtol=1e-5
    )
    dy.sum_elems(builder.initial_state().transduce(xs)[-1]).backward()
    assert builder.get_parameters()[0][0].grad_as_array().any()


@walks(PLAIN)
@pytest.mark.usefixtures("setting")
def test_stale_states_and_wrong_inputs(kind):
    builder, _, _ = network(kind)
    state = builder.initial_state()
    with pytest.raises(dy.ShapeError, match=r"test_recurrent\.py"):
        state.add_input(dy.inputVector([1.0] * (SIZE + 1)))
    x, y = vectors(2, SIZE)
    state = state.add_input(x)
    dy.cg_checkpoint()
    later = state.add_input(y)
    dy.cg_revert()
    with pytest.raises(dy.StaleExpressionError):
        later.add_input(x)
    wanted = state.add_input(x).output().npvalue()
    dy.renew_cg()
    with pytest.raises(dy.StaleExpressionError):
        state.add_input(dy.inputVector([1.0] * SIZE))
    (x, _), state = vectors(2, SIZE), builder.initial_state()
    np.testing.assert_array_equal(state.add_input(x).add_input(x).output().npvalue(), wanted)


@walks(
    [(a, *b, c) for a, b, c in product(["before", "inside"], [(True, 0.0), (False, 0.0), (True, 0.5)], KINDS)]
)
@pytest.mark.usefixtures("setting")
def test_masks_and_weights_are_taken_back_with_the_graph(begins, update, dropout, kind):
    """A sequence goes on behind `cg_revert`, whatever was entered between `cg_checkpoint` and that."""
    builder, _, _ = network(kind)
    builder.set_dropout(dropout)

    def outcome(is_cut):
        dy.renew_cg()
        (x,) = vectors(1, SIZE)
        state = builder.initial_state(update=update)
        if is_cut:
            dy.cg_checkpoint()
            again = builder.initial_state(update=update)
            again.add_input(x).output()
            dy.cg_revert()
            state = state if begins == "before" else again
            vectors(50, SIZE)  # nodes with the numbers of those that were taken back
            assert len(builder.get_parameter_expressions()) == LAYERS
        output = state.add_input(x).output()
        dy.set_random_seed(3)
        return output.npvalue()

    np.testing.assert_allclose(outcome(True), outcome(False), rtol=1e-5, atol=1e-6)


@walks(PLAIN)
@pytest.mark.usefixtures("setting")
def test_a_class_derived_computes_its_own_cell(kind):
    class Doubled(getattr(dy, NAMES[kind])):
        def cell(self, weights, x, old, mask):
            h, *rest = super().cell(weights, x, old, mask)
            return (h * 2.0, *rest)

    own = Doubled(1, SIZE, HIDDEN, dy.ParameterCollection())
    usual = getattr(dy, NAMES[kind])(1, SIZE, HIDDEN, dy.ParameterCollection())
    for a, b in zip(own.get_parameters()[0], usual.get_parameters()[0]):
        b.set_value(a.as_array())
    (x,) = vectors(1, SIZE)
    found, single = (each.initial_state().add_input(x).output().npvalue() for each in (own, usual))
    np.testing.assert_allclose(found, 2 * single, rtol=1e-5)


@pytest.mark.parametrize("kind", ["Simple", "GRU", "Coupled", "Fast"])
def test_explain_tells_of_the_operations_of_a_step(kind):
    """As many on both engines, and in one call for each step of all sequences on the native one."""

    def told(engine):
        dy.configure(engine=engine, autobatch=True)
        dy.renew_cg()
        builder, _, _ = network(kind, layers=1)
        xs = vectors(3, SIZE)
        dy.forward([builder.initial_state().transduce(xs)[-1] for _ in range(5)])
        return dy.explain()

    native, python = told("auto"), told("python")
    assert native.nodes == python.nodes
    assert native.batches < python.batches or native.engine == "python"
    assert "tanh" in str(native)


@pytest.mark.parametrize("layers", [0, -1, 1 << 70])
def test_numbers_of_layers_that_cannot_be(layers):
    for builder in (dy.VanillaLSTMBuilder, dy.GRUBuilder):
        with pytest.raises(dy.ArgumentError, match="layers"):
            builder(layers, SIZE, HIDDEN, dy.ParameterCollection())
    with pytest.raises(dy.ArgumentError, match="num_layers"):
        dy.BiRNNBuilder(layers, SIZE, HIDDEN, dy.ParameterCollection(), dy.GRUBuilder)


@walks(product([False, True], [0, 1]))
def test_the_gradient_of_a_memory_counts_the_output_of_its_own_step(full, left_out, setting):
    """As of a memory spelled in single operations."""
    network = dy.VanillaLSTMBuilder(1, SIZE, HIDDEN, dy.ParameterCollection())
    Wx, Wh, b = network.parameters[0]

    def spelled(x, h, c):
        gates = dy.affine_transform([b, Wx, x] if h is None else [b, Wx, x, Wh, h])
        i, f, o, u = (dy.pick_range(gates, at * HIDDEN, (at + 1) * HIDDEN) for at in range(4))
        new = dy.cmult(dy.logistic(i), dy.tanh(u))
        if c is not None:
            new = new + dy.cmult(dy.logistic(f + 1.0), c)
        return dy.cmult(dy.logistic(o), dy.tanh(new)), new

    def gradients(step):
        dy.renew_cg()
        cs, hs = [], []
        for count in (1, 3, 2):
            h = c = None
            for x in vectors(count, SIZE):
                h, c = step(x, h, c)
                cs.append(c)
                hs.append(h)
        dy.esum([dy.squared_norm(h) for h in hs[left_out:]]).backward(full=full)
        return [c.gradient() for c in cs[left_out:]]

    def built(x, h, c):
        state = network.initial_state(None if h is None else [c, h]).add_input(x)
        return state.output(), state.s()[0]

    for found, expected in zip(gradients(built), gradients(spelled), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)
        assert np.abs(expected).max() > 1e-3
