"""Networks of every kind, whose steps native code adds: each way through a sequence as on the other engine."""

from itertools import product

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.both_engines import on_both
from helpers.walk import walks

SIZE, HIDDEN, LAYERS = 3, 4, 2
PLAIN = ["SimpleRNN", "GRU", "VanillaLSTM", "CompactVanillaLSTM", "CoupledLSTM", "FastLSTM"]
KINDS = [*PLAIN, "SparseLSTM", "normalized VanillaLSTM"]


def network(kind, size=SIZE, layers=LAYERS, base=None):
    """Return a network, its collection, and how many vectors its states have."""
    m, options = dy.ParameterCollection(), {"ln_lstm": True} if " " in kind else {}
    builder = (base or getattr(dy, f"{kind.split()[-1]}Builder"))(layers, size, HIDDEN, m, **options)
    draw = np.random.RandomState(0)
    for p in m.parameters_list():
        p.set_value(draw.uniform(-0.6, 0.6, p.shape()))
    return builder, m, layers * (1 if kind in ("SimpleRNN", "GRU") else 2)


def vectors(count, size=SIZE, batch=1, seed=1):
    draw, shape = np.random.RandomState(seed), (size, batch) if batch > 1 else (size,)
    return [dy.inputTensor(draw.uniform(-1, 1, shape), batched=batch > 1) for _ in range(count)]


def measured(m, outputs, inputs):
    """Return the values of outputs, and gradients of a sum of all their elements: of parameters, inputs and outputs."""
    weights = dy.inputTensor(np.linspace(-1, 1, HIDDEN))
    loss = dy.sum_batches(dy.esum([dy.dot_product(weights, dy.square(y) + y) for y in outputs]))
    m.reset_gradient()
    found = dy.npvalues([loss, *outputs])
    loss.backward(full=True)
    found += [p.grad_as_array() for p in m.parameters_list()]
    return found + [x.gradient() for x in (*inputs, *outputs)]


@walks(product([1, 3], KINDS))
def test_sequences_beginnings_and_continuations(batch, kind):
    def program():
        builder, m, count = network(kind)
        xs, first = vectors(5, SIZE, batch), vectors(count, HIDDEN, batch, 2)
        begun = builder.initial_state(first)
        states = begun.add_inputs(xs[:3])
        again = states[0].add_input(xs[3]).add_input(xs[4])  # one state, two continuations
        back, fresh = states[2].prev().add_input(xs[4]), builder.initial_state()
        outputs = [*fresh.transduce(xs), *begun.transduce(xs[:2])]
        outputs += fresh.add_input(xs[1]).transduce(iter(xs[2:]))
        outputs += [states[2].output(), again.output(), back.output(), *again.s(), *states[1].h()]
        one = builder.initial_state_from_raw_vectors([np.linspace(0, 1, HIDDEN)] * count)  # for a minibatch
        return measured(m, [*outputs, *one.add_inputs(xs[:2])[-1].s()], [*xs, *first])

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
        outputs += builder.initial_state().set_h(given[:LAYERS]).add_input(x=xs[2]).s()
        outputs += builder.initial_state([given[0]] * count).add_input(xs[1]).s()  # one vector for all
        return measured(m, outputs, [*xs, *given])

    on_both(program)


def test_states_know_those_before_them(setting):
    builder, _, _ = network("VanillaLSTM")
    state = builder.initial_state()
    assert (state.prev(), state.output(), state.h(), state.s()) == (None, None, (), ())
    after = state.add_input(vectors(1)[0])
    assert (after.prev(), after.b(), len(after.s()), state.transduce([])) == (state, builder, 2 * LAYERS, [])


@walks(product([1, 3], KINDS))
def test_dropout(batch, kind):
    """Masks are drawn in one order by both engines, once for a sequence, whichever way it goes."""

    def program(engine, drops=True):
        dy.configure(engine=engine, autobatch=False, random_seed=5)
        builder, m, _ = network(kind)
        builder.set_dropouts(0.4, 0.3)
        if not drops:
            builder.disable_dropout()
        xs, outputs = vectors(4, SIZE, batch), []
        for _ in range(2):
            state = builder.initial_state()
            builder.set_dropout_masks(batch)
            outputs += state.transduce(xs)
            for x in xs:
                state = state.add_input(x)
            outputs += state.s()
        return measured(m, outputs, xs)

    wanted = program("python")
    for native, python in zip(program("auto"), wanted, strict=True):
        np.testing.assert_allclose(native, python, rtol=1e-4, atol=1e-5)
    assert any(np.abs(a - b).max() > 1e-3 for a, b in zip(wanted, program("python", drops=False)))


@walks(KINDS)
def test_masks_are_drawn_at_the_first_input_and_stay(kind, setting):
    """The mask of the input is the same at all positions, and another one in the next sequence."""
    builder, _, _ = network(kind, 60, 1)
    builder.set_dropouts(0.5, 0.0)
    draw = np.random.RandomState(3)
    xs, gradients = [dy.inputTensor(draw.uniform(0.5, 1, 60)) for _ in range(2)], []
    for each in (lambda s: s.transduce(xs)[-1], lambda s: s.add_inputs(xs)[-1].output()):
        dy.sum_elems(each(builder.initial_state())).backward(full=True)
        gradients.append([x.gradient() != 0 for x in xs])
    for first, second in gradients:
        assert 5 < first.sum() < 55
        np.testing.assert_array_equal(first, second)
    assert (gradients[0][0] != gradients[1][0]).any()


@walks(PLAIN)
def test_constant_parameters_beside_others(kind, setting):
    (builder, m, _), xs = network(kind), vectors(3)
    plain, constant = builder.initial_state(), builder.initial_state(update=False)
    for outputs in (constant.transduce(xs), [constant.add_input(xs[0]).add_input(xs[1]).output()]):
        dy.sum_elems(outputs[-1]).backward(full=True)
        assert xs[0].gradient().any()
        assert not any(p.grad_as_array().any() for p in m.parameters_list())
    found = [dy.npvalues(state.transduce(xs)) for state in (plain, constant)]
    np.testing.assert_allclose(*found, rtol=1e-5)
    dy.sum_elems(builder.initial_state().transduce(xs)[-1]).backward()
    assert builder.get_parameters()[0][0].grad_as_array().any()


@walks(product(["before", "inside"], [True, False], [0.0, 0.5], KINDS))
def test_masks_and_weights_are_taken_back_with_the_graph(begins, update, dropout, kind, setting):
    """A sequence goes on behind `cg_revert`, whatever was entered between `cg_checkpoint` and that."""
    builder, _, _ = network(kind)
    builder.set_dropout(dropout)

    def outcome(is_cut):
        dy.renew_cg()
        (x,), state = vectors(1), builder.initial_state(update=update)
        if is_cut:
            dy.cg_checkpoint()
            again = builder.initial_state(update=update)
            later = again.add_input(x)
            dy.cg_revert()
            with pytest.raises(dy.StaleExpressionError):
                later.add_input(x)
            state = state if begins == "before" else again
            vectors(50)  # nodes with the numbers of those that were taken back
            assert len(builder.get_parameter_expressions()) == LAYERS
        output = state.add_input(x).output()
        dy.set_random_seed(3)
        return state, output.npvalue()

    (state, found), (_, wanted) = outcome(True), outcome(False)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    for use in (lambda: state.add_input(vectors(1)[0]), lambda: state.transduce(vectors(1))):
        with pytest.raises(dy.StaleExpressionError):
            use()


@walks(PLAIN)
def test_a_class_derived_computes_its_own_cell(kind, setting):
    class Doubled(getattr(dy, f"{kind}Builder")):
        def cell(self, weights, x, old, mask):
            h, *rest = super().cell(weights, x, old, mask)
            return (h * 2.0, *rest)

    (x,) = vectors(1)
    own, usual = (network(kind, layers=1, base=base)[0] for base in (Doubled, None))
    found, single = (each.initial_state().add_input(x).output().npvalue() for each in (own, usual))
    np.testing.assert_allclose(found, 2 * single, rtol=1e-5)
