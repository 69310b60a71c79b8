"""Memory over many graphs: as large after ten thousand as after a thousand."""

from __future__ import annotations

import gc

import pytest

import dpmodule.autobatch as dy
from helpers.both_backends import measures_memory, resident_bytes


def train(rounds):
    """Yield the memory in use after every thousand updates of a network with lookups, checkpoints and a builder."""
    m = dy.ParameterCollection()
    w, table = m.add_parameters((16, 16)), m.add_lookup_parameters((50, 16))
    lstm, trainer = dy.VanillaLSTMBuilder(1, 16, 16, m), dy.AdamTrainer(m)
    for i in range(rounds):
        dy.renew_cg()
        xs = [dy.tanh(w * table[(i * 7 + j) % 50]) for j in range(3 + i % 5)]
        outputs = lstm.initial_state().transduce(xs[:3])
        if i % 3 == 0:
            dy.cg_checkpoint()
            dy.sin(xs[0]).value()
            dy.cg_revert()
        dy.sum_elems(dy.esum(xs + outputs)).backward()
        xs[0].gradient()
        trainer.update()
        if i % 1000 == 999:
            gc.collect()
            yield resident_bytes()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@measures_memory
@pytest.mark.parametrize("engine", ["python", "auto"])
def test_ten_thousand_rounds(engine):
    dy.configure(engine=engine, autobatch=True)
    try:
        sizes = list(train(10_000))
    finally:
        dy.configure(engine="auto", autobatch=False)
    assert sizes[-1] < 1.01 * sizes[0], sizes
