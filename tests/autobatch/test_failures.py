"""Operations that fail when they are computed: an error of what depends on them, and of nothing else."""

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.walk import walks

pytestmark = pytest.mark.usefixtures("setting")


class Fragile:
    """Doubles numbers; fails where one is above 5, as long as it is broken. Counts its calls."""

    def __init__(self, results=1, error=KeyError):
        self.is_broken, self.calls, self._results, self._error = True, 0, results, error
        self.wrapped = dy.wrap(self._double, rows=True)

    def _double(self, x):
        self.calls += 1
        if self.is_broken and bool((x > 5).any()):
            raise self._error("too large")
        return 2 * x if self._results == 1 else (2 * x, 3 * x)


def fails(expression, error=KeyError):
    with pytest.raises(error, match="too large"):
        expression.value()


class Four:
    """Four examples, of which the third one fails: inputs, healthy values, doubled ones, and sums of both."""

    def __init__(self):
        self.m, self.fragile = dy.ParameterCollection(), Fragile()
        add = self.m.parameters_from_numpy
        self.w, self.b = add(np.eye(3) * 0.5), add(np.array([0.1, 0.2, 0.3]))
        self.build()

    def build(self):
        self.xs = [dy.inputVector([number, 1.0, 2.0]) for number in (0.0, 1.0, 9.0, 3.0)]
        self.healthy = [dy.tanh(self.w * x + self.b) for x in self.xs]
        self.doubled = [self.fragile.wrapped(x) for x in self.xs]
        self.sums = [dy.sum_elems(dy.cmult(y, h)) for y, h in zip(self.doubled, self.healthy)]
        self.total = dy.esum(self.sums)


def test_healthy_expressions_of_the_same_batch():
    four = Four()
    fails(four.total)
    fails(four.total)
    four.fragile.calls = 0
    inputs = [x.npvalue() for x in four.xs]
    wanted = [np.tanh(four.w.as_array() @ x + four.b.as_array()) for x in inputs]
    np.testing.assert_allclose(dy.npvalues(four.healthy), wanted, rtol=1e-5)
    for number in (0, 1, 3):
        np.testing.assert_array_equal(four.doubled[number].npvalue(), 2 * inputs[number])
        assert four.sums[number].value() == pytest.approx(2 * inputs[number] @ wanted[number], rel=1e-5)
    assert four.fragile.calls == 0, "their values are there"
    fails(dy.cmult(four.sums[2], four.total))
    for ask in (dy.forward, dy.values, dy.npvalues):
        with pytest.raises(KeyError, match="too large"):
            ask([dy.square(four.sums[2]), four.healthy[0], dy.scalarInput(1.0)])
    dy.esum([four.sums[0], four.sums[1], four.sums[3]]).backward()
    slopes = [2 * inputs[number] * (1 - wanted[number] ** 2) for number in (0, 1, 3)]
    np.testing.assert_allclose(four.b.grad_as_array(), sum(slopes), rtol=1e-4)


def test_a_matrix_that_has_no_inverse():
    singular, regular = np.ones((3, 3)), np.diag([1.0, 2.0, 4.0])
    sums = [dy.sum_elems(dy.inverse(dy.inputTensor(each))) for each in (regular, singular, 2 * regular)]
    for bad in (dy.esum(sums), sums[1]):
        with pytest.raises(dy.ArgumentError, match="singular"):
            bad.value()
    assert [sums[0].value(), sums[2].value()] == [1.75, 0.875]


def test_parts_of_a_graph_that_are_taken_back():
    fragile, x = Fragile(), dy.inputVector([9.0])
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


@walks(["VanillaLSTMBuilder", "GRUBuilder", "CoupledLSTMBuilder"])
def test_sequences_with_an_input_that_fails_at_first(name):
    fragile, m, draw = Fragile(), dy.ParameterCollection(), np.random.RandomState(0)
    network = getattr(dy, name)(2, 3, 4, m)
    for p in m.parameters_list():
        p.set_value(draw.uniform(-1, 1, p.shape()))
    table = m.lookup_parameters_from_numpy(np.vstack([draw.uniform(-1, 1, (3, 3)), [[9.0, 1.0, 0.0]]]))
    found = []
    for is_broken in (True, False):
        dy.renew_cg()
        good = network.initial_state().transduce([table[k] for k in (0, 1, 2, 0)])
        inputs = [table[k] if k < 3 else fragile.wrapped(table[k]) for k in (0, 1, 3, 2)]
        states = network.initial_state().add_inputs(inputs)
        ends = [*good, *[each.output() for each in states], *states[-1].s()]
        total = dy.esum([dy.sum_elems(each) for each in ends])
        if is_broken:
            for each in (total, states[-1].output(), states[2].s()[0]):
                fails(each)
            dy.npvalues([*good, states[1].output()])
            fragile.is_broken = False
        values = dy.npvalues([*good, states[1].output(), states[-1].output(), total])
        total.backward()
        found.append(values + [each.grad_as_array() for each in (*m.parameters_list(), table)])
        m.reset_gradient()
    for one, other in zip(*found):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_an_interrupt_is_no_failure_of_an_expression():
    fragile = Fragile(error=KeyboardInterrupt)
    y = fragile.wrapped(dy.inputVector([9.0]))
    fails(y, KeyboardInterrupt)
    fragile.is_broken = False
    assert y.value() == 18.0
