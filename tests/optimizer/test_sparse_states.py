"""States of row-sparse parameters: as MXNet 1.9.1 writes them, and without memory for rows that no update names."""

import base64

import numpy as np

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
    table, before = allocate((90_000, 128), mx.cpu(), "float32"), resident_bytes()
    state = mx.optimizer.SGD(momentum=0.9).create_state(0, table)
    assert resident_bytes() - before < 2**22
    assert state.shape == table.shape
