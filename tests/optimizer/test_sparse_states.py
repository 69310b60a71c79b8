"""States of row-sparse parameters: as MXNet 1.9.1 writes them, and without memory for rows that no update names."""

import base64
import copy
import inspect

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.executor import allocate
from helpers.processes import resident_bytes

# bytes of `get_updater(SGD(learning_rate=0.1, momentum=0.9)).get_states()` in MXNet 1.9.1, after one update of a
# row-sparse parameter named "w" of ones, (4, 2), with a row-sparse gradient of ones
RECORDED = base64.b64decode(
    """
gASV8gAAAAAAAAB9lIwBd5SMFG14bmV0Lm5kYXJyYXkuc3BhcnNllIwQUm93U3BhcnNlTkRBcnJheZSTlE6FlFKUfZSMBmhhbmRs
ZZSMCGJ1aWx0aW5zlIwJYnl0ZWFycmF5lJOUQ4zJ+pP5AQAAAAIAAAAEAAAAAAAAAAIAAAAAAAAAAgAAAAQAAAAAAAAAAgAAAAAA
AAABAAAAAAAAAAAAAAAGAAAAAQAAAAQAAAAAAAAAzczMvc3MzL3NzMy9zczMvc3MzL3NzMy9zczMvc3MzL0AAAAAAAAAAAEAAAAA
AAAAAgAAAAAAAAADAAAAAAAAAJSFlFKUc2JzLg==
"""
)


def test_row_sparse_momentum_of_mxnet_is_read_and_used():
    update = mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=0.1, momentum=0.9))
    update.set_states(RECORDED)
    np.testing.assert_allclose(update.states["w"].asnumpy(), np.full((4, 2), -0.1), rtol=1e-6)
    weight = mx.nd.full((4, 2), 0.9).tostype("row_sparse")
    update("w", mx.nd.ones((4, 2)).tostype("row_sparse"), weight)
    np.testing.assert_allclose(weight.asnumpy(), np.full((4, 2), 0.71), rtol=1e-6)


def test_the_state_of_a_large_table_takes_no_memory_before_its_rows_are_updated():
    table = allocate((90_000, 128), mx.cpu(), "float32")
    before = resident_bytes()
    state = mx.optimizer.SGD(momentum=0.9).create_state(0, table)
    assert resident_bytes() - before < 2**22
    assert state.shape == table.shape


EXTRA = {"rmsprop": {"centered": True}, "lars": {"eta": 0.5}}
HALVES = (
    "adam adagrad sgd ftrl signum nag lbsgd adadelta adamax nadam ftml lamb dcasgd rmsprop groupadagrad lars"
)


@pytest.mark.parametrize("name", HALVES.split())
@pytest.mark.parametrize("stored", ["default", "row_sparse"])
def test_masters_of_halves_take_gradients_of_some_rows(name, stored):
    """States are tuples of tuples there; a gradient of all rows gives the parameters of a dense one."""
    kind = mx.optimizer.Optimizer.opt_registry[name]
    options = {"lazy_update": False} if "lazy_update" in inspect.signature(kind).parameters else {}
    rule = mx.optimizer.create(
        name, multi_precision=True, learning_rate=0.1, **EXTRA.get(name, {}), **options
    )
    rng = np.random.default_rng(3)
    start, slopes = rng.normal(size=(5, 3)), rng.normal(size=(3, 5, 3))
    updates = [mx.optimizer.get_updater(copy.deepcopy(rule)) for _ in range(2)]
    dense = mx.nd.array(start, dtype="float16")
    sparse = mx.nd.array(start, dtype="float16").tostype(stored)
    for slope in slopes:
        slope = mx.nd.array(slope, dtype="float16")
        updates[0](0, slope, dense)
        updates[1]([0], [slope.tostype("row_sparse")], [sparse])  # one call of several parameters
    np.testing.assert_allclose(sparse.asnumpy(), dense.asnumpy(), rtol=2e-3, atol=2e-3)
    assert (dense.asnumpy() != start.astype("float16")).all()
    before = sparse.asnumpy()
    rows = mx.nd.sparse.row_sparse_array(([[9.0] * 3], [2]), shape=(5, 3), dtype="float16")
    updates[1](0, rows, sparse)
    assert (sparse.asnumpy()[2] != before[2]).all()
