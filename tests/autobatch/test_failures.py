"""Operations that fail when they are computed: an error of what depends on them, and of nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dpmodule.autobatch as dy

pytestmark = pytest.mark.usefixtures("setting")


class Fragile:
    """Doubles numbers; fails where one is above 5, as long as it is broken. Counts its calls."""

    def __init__(self, results=1):
        self.is_broken, self.calls, self._results = True, 0, results
        self.wrapped = dy.wrap(self._double, rows=True)

    def _double(self, x):
        self.calls += 1
        if self.is_broken and bool((x > 5).any()):
            raise KeyError("too large")
        return 2 * x if self._results == 1 else (2 * x, 3 * x)


def parameters():
    m = dy.ParameterCollection()
    return m, m.parameters_from_numpy(np.eye(3) * 0.5), m.parameters_from_numpy(np.array([0.1, 0.2, 0.3]))


def four(fragile, w, b):
    """Return four examples, of which the third one fails: inputs, what is healthy in all, what fails, and its sum."""
    xs = [dy.inputVector([number, 1.0, 2.0]) for number in (0.0, 1.0, 9.0, 3.0)]
    healthy = [dy.tanh(w * x + b) for x in xs]
    doubled = [fragile.wrapped(x) for x in xs]
    sums = [dy.sum_elems(dy.cmult(y, h)) for y, h in zip(doubled, healthy)]
    return xs, healthy, doubled, sums


def fails(expression):
    with pytest.raises(KeyError, match="too large"):
        expression.value()


def test_healthy_expressions_of_the_same_batch():
    m, w, b = parameters()
    fragile = Fragile()
    xs, healthy, doubled, sums = four(fragile, w, b)
    total = dy.esum(sums)
    fails(total)
    fails(total)
    fragile.calls = 0
    for number, (x, h, y, s) in enumerate(zip(xs, healthy, doubled, sums)):
        wanted = np.tanh(w.as_array() @ x.npvalue() + b.as_array())
        np.testing.assert_allclose(h.npvalue(), wanted, rtol=1e-5)
        if number == 2:
            continue
        np.testing.assert_array_equal(y.npvalue(), 2 * x.npvalue())
        assert s.value() == pytest.approx(float(2 * x.npvalue() @ wanted), rel=1e-5)
    assert fragile.calls == 0, "their values are there"
    fails(sums[2])
    fails(doubled[2])
    later = dy.square(sums[1]) + dy.scalarInput(1.0)
    assert later.value() == pytest.approx(sums[1].value() ** 2 + 1, rel=1e-5)
    fails(dy.square(sums[2]))
    dy.esum([sums[0], sums[1], sums[3]]).backward()
    wanted = sum(2 * x.npvalue() * (1 - h.npvalue() ** 2) for x, h in zip(xs, healthy) if x is not xs[2])
    np.testing.assert_allclose(b.grad_as_array(), wanted, rtol=1e-4)
    dy.SimpleSGDTrainer(m).update()
    assert np.isfinite(b.as_array()).all()


def test_what_has_failed_is_tried_again():
    _, w, b = parameters()
    fragile = Fragile()
    _, _, doubled, sums = four(fragile, w, b)
    total = dy.esum(sums)
    after = dy.square(total)
    for each in (total, doubled[2], after):
        fails(each)
    fragile.is_broken = False
    found = [each.value() for each in (after, total, sums[2])]
    after.backward(full=True)
    gradients = [b.grad_as_array(), doubled[2].gradient(), sums[2].gradient()]
    dy.renew_cg()
    b.storage.clear_gradient()
    _, _, doubled, sums = four(fragile, w, b)
    total = dy.esum(sums)
    after = dy.square(total)
    np.testing.assert_allclose(found, [each.value() for each in (after, total, sums[2])], rtol=1e-5)
    after.backward(full=True)
    for one, other in zip(gradients, [b.grad_as_array(), doubled[2].gradient(), sums[2].gradient()]):
        np.testing.assert_allclose(one, other, rtol=1e-4)


def test_several_expressions_in_one_go():
    _, w, b = parameters()
    _, healthy, _, sums = four(Fragile(), w, b)
    for ask in (dy.forward, dy.values, dy.npvalues):
        with pytest.raises(KeyError, match="too large"):
            ask([sums[2], healthy[0], dy.scalarInput(1.0)])
    dy.forward([sums[0], sums[3], *healthy])


def test_a_matrix_that_has_no_inverse():
    singular, regular = np.ones((3, 3)), np.diag([1.0, 2.0, 4.0])
    found = [dy.inverse(dy.inputTensor(each)) for each in (regular, singular, 2 * regular)]
    sums = [dy.sum_elems(each) for each in found]
    with pytest.raises(dy.ArgumentError, match="singular"):
        dy.esum(sums).value()
    assert [sums[0].value(), sums[2].value()] == [1.75, 0.875]
    with pytest.raises(dy.ArgumentError, match="singular"):
        sums[1].value()


def test_two_that_fail_each_with_its_own_error():
    def refuses(kind):
        def function(x):
            if bool((x != 0).any()):
                raise kind(kind.__name__)
            return x

        return dy.wrap(function, rows=True)

    x = dy.inputVector([1.0, 2.0])
    one, other = dy.tanh(refuses(KeyError)(x)), dy.tanh(refuses(ZeroDivisionError)(x))
    both = dy.concatenate([other, one])
    for expression, kind in ((one, KeyError), (other, ZeroDivisionError), (one, KeyError)):
        with pytest.raises(kind):
            expression.value()
    with pytest.raises((KeyError, ZeroDivisionError)):
        both.value()
    assert dy.sin(x).npvalue().shape == (2,)


def test_functions_with_two_results():
    fragile = Fragile(results=2)
    pairs = [fragile.wrapped(dy.inputVector([number])) for number in (9.0, 1.0)]
    fails(dy.esum([each for pair in pairs for each in pair]))
    assert [each.value() for each in pairs[1]] == [2.0, 3.0]
    for each in pairs[0]:
        fails(each)
    fragile.is_broken = False
    assert [each.value() for each in reversed(pairs[0])] == [27.0, 18.0]


def test_parts_of_a_graph_that_are_taken_back():
    fragile = Fragile()
    x = dy.inputVector([9.0])
    bad, good = fragile.wrapped(x), dy.sin(x)
    fails(bad + good)
    dy.cg_checkpoint()
    fragile.is_broken = False
    assert (bad * 1.0).value() == 18.0
    dy.cg_revert()
    fragile.is_broken = True
    fails(bad)
    assert good.value() == pytest.approx(np.sin(9.0), rel=1e-6)
    x.set([1.0])
    assert (bad + 0.0).value() == 2.0, "all is computed anew"
    assert good.value() == pytest.approx(np.sin(1.0), rel=1e-6)


def test_expressions_that_are_computed_at_once():
    fragile = Fragile()
    fragile.wrapped(dy.inputVector([1.0]))
    dy.renew_cg(immediate_compute=True)
    x = dy.inputVector([9.0])
    for _ in range(2):
        with pytest.raises(KeyError):
            fragile.wrapped(x)
    assert dy.square(x).value() == 81.0


@pytest.mark.parametrize("name", ["VanillaLSTMBuilder", "GRUBuilder", "CoupledLSTMBuilder"])
def test_sequences_with_an_input_that_fails_at_first(name):
    fragile, m = Fragile(), dy.ParameterCollection()
    network = getattr(dy, name)(2, 3, 4, m)
    draw = np.random.RandomState(0)
    for p in m.parameters_list():
        p.set_value(draw.uniform(-1, 1, p.shape()))
    table = m.lookup_parameters_from_numpy(np.vstack([draw.uniform(-1, 1, (3, 3)), [[9.0, 1.0, 0.0]]]))

    def build():
        good = network.initial_state().transduce([table[k] for k in (0, 1, 2, 0)])
        inputs = [table[k] if k < 3 else fragile.wrapped(table[k]) for k in (0, 1, 3, 2)]
        states = network.initial_state().add_inputs(inputs)
        ends = [*good, *[each.output() for each in states], *states[-1].s()]
        return good, states, dy.esum([dy.sum_elems(each) for each in ends])

    def gradients():
        found = [p.grad_as_array() for p in m.parameters_list()] + [table.grad_as_array()]
        m.reset_gradient()
        return found

    good, states, total = build()
    for each in (total, states[-1].output(), states[2].s()[0]):
        fails(each)
    values = [each.npvalue() for each in (*good, states[1].output())]
    fragile.is_broken = False
    values += [states[-1].output().npvalue(), total.npvalue()]
    total.backward()
    found = gradients()
    dy.renew_cg()
    good, states, total = build()
    wanted = [each.npvalue() for each in (*good, states[1].output(), states[-1].output(), total)]
    total.backward()
    for one, other in zip(values + found, wanted + gradients()):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_gradient_of_random_numbers_beside_what_fails():
    """The native engine computes a graph once more for some gradients, and must not draw anew."""
    fragile = Fragile()
    _, w, b = parameters()
    masked = [dy.dropout(dy.tanh(w * dy.inputVector([0.5, 1.0, 2.0]) + b), 0.5) for _ in range(3)]
    fails(dy.sum_elems(fragile.wrapped(dy.inputVector([9.0] * 3))) + dy.sum_elems(masked[0]))
    before = [each.npvalue() for each in masked]
    inner = w * dy.inputVector([1.0, 0.0, 0.0])
    dy.esum([dy.sum_elems(each + inner) for each in masked]).backward()
    np.testing.assert_allclose(inner.gradient(), [3.0] * 3)
    np.testing.assert_array_equal([each.npvalue() for each in masked], before)


def test_an_interrupt_is_no_failure_of_an_expression():
    asked = [True]

    def interrupted(x):
        if asked[0] and bool((x != 0).any()):
            raise KeyboardInterrupt
        return torch.sin(x)

    y = dy.wrap(interrupted, rows=True)(dy.inputVector([1.0]))
    with pytest.raises(KeyboardInterrupt):
        y.value()
    asked[0] = False
    assert y.value() == pytest.approx(np.sin(1.0), rel=1e-6)
