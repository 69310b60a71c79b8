"""Memory over many graphs: it does not grow."""

import gc
import weakref

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.both_backends import measures_memory, resident_bytes


def train(rounds, each):
    """Yield the memory in use after every `each` updates of a network with lookups, checkpoints and a builder."""
    m = dy.ParameterCollection()
    w, table = m.add_parameters((16, 16)), m.add_lookup_parameters((50, 16))
    lstm, trainer = dy.VanillaLSTMBuilder(1, 16, 16, m), dy.AdamTrainer(m)
    for i in range(rounds):
        dy.renew_cg()
        xs = [dy.tanh(w * table[(i * 7 + j) % 50] * (1.0 + i)) for j in range(3 + i % 5)]  # new numbers, too
        outputs = lstm.initial_state().transduce(xs[:3])
        if i % 3 == 0:
            dy.cg_checkpoint()
            dy.sin(xs[0]).value()
            dy.cg_revert()
        dy.sum_elems(dy.esum([*xs, *outputs, dy.inputTensor(np.full(16, float(i)))])).backward()
        xs[0].gradient()
        trainer.update()
        if i % each == each - 1:
            gc.collect()
            yield resident_bytes()


SLOW = [pytest.mark.slow, pytest.mark.timeout(1800)]


@measures_memory
@pytest.mark.parametrize(("rounds", "each"), [(900, 300), pytest.param(10_000, 1000, marks=SLOW)])
def test_memory_is_given_back(engine, rounds, each):
    sizes = list(train(rounds, each))
    assert sizes[-1] < 1.01 * sizes[0] + 1e6, sizes


def test_a_builder_that_holds_its_states_is_freed(engine):
    builder = dy.LSTMBuilder(1, 3, 4, dy.ParameterCollection())
    state = builder.initial_state()
    builder.states = [state, state.add_input(x=dy.inputVector([1, 2, 3]))]
    freed = weakref.ref(builder)
    del builder, state
    gc.collect()
    assert freed() is None
