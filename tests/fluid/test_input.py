"""`fluid.data` and `fluid.embedding`: shapes of batches, as Paddle 1.8 has them."""

import numpy as np
import pytest

import dpmodule.fluid as fluid
from dpmodule.base import ArgumentError, ShapeError

IDS = np.array([[3], [0], [3]])


@pytest.fixture
def run():
    """Return a function that runs a new program on a feed, and returns its fetches."""

    def call(make, feed):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
            fetches = make()
            executor = fluid.Executor()
            executor.run(startup)
            table = np.array(fluid.global_scope().find_var("table").get_tensor())
            return executor.run(main, feed, fetches), table

    return call


def test_all_axes_are_kept(run):
    def make():
        column = fluid.data("column", [None, 1], "int64")
        pairs = fluid.data("pairs", [-1, 2], dtype="int64")
        one = fluid.data("one", [None], "int64")
        tables = [fluid.embedding(ids, [5, 4], param_attr="table") for ids in (column, pairs, one)]
        padded = fluid.embedding(column, [5, 4], param_attr="table", padding_idx=0)
        old = fluid.layers.embedding(column, [5, 4], param_attr="table")
        assert [each.shape for each in (*tables, old)] == [(-1, 1, 4), (-1, 2, 4), (-1, 4), (-1, 4)]
        return [*tables, padded, old]

    pairs = np.array([[1, 2], [3, 4], [0, 0]])
    found, table = run(make, {"column": IDS, "pairs": pairs, "one": IDS[:, 0]})
    np.testing.assert_array_equal(found[0], table[IDS])
    np.testing.assert_array_equal(found[1], table[pairs])
    np.testing.assert_array_equal(found[2], table[IDS[:, 0]])
    np.testing.assert_array_equal(found[3], table[IDS] * (IDS != 0)[..., None])
    np.testing.assert_array_equal(found[4], table[IDS[:, 0]])


@pytest.mark.parametrize("shape", [[None, 1], [None]])
def test_sequences(run, shape):
    def make():
        words = fluid.data("words", shape, "int64", lod_level=1)
        return [fluid.layers.sequence_pool(fluid.embedding(words, [5, 4], param_attr="table"), "sum")]

    (found,), table = run(make, {"words": [[1, 2], [4]]})
    assert found.shape == (2, *[1] * (len(shape) - 1), 4)  # an axis of length 1 stays, as in Paddle
    np.testing.assert_allclose(found.reshape(2, 4), [table[1] + table[2], table[4]], rtol=1e-6)


def test_what_cannot_be_is_an_error():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        with pytest.raises(ShapeError, match=r"data 'x': shape is 3, expected a list such as \[None, 1\]"):
            fluid.data("x", 3)
        with pytest.raises(ShapeError, match="expected sizes from 1, or -1 for open ones"):
            fluid.data("x", [4, 0])
        ids = fluid.data("x", [None, 1], "int64")
        with pytest.raises(ArgumentError, match="the program already has"):
            fluid.data("x", [None, 2], "int64")
        with pytest.raises(ShapeError, match="embedding: size is 5"):
            fluid.embedding(ids, 5)


def test_axes_that_differ_between_batches_and_data_without_a_batch():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        words = fluid.data("words", [None, None], "int64")
        table = fluid.layers.data("table", [4, 1], append_batch_size=False, dtype="int64")
        rows = fluid.embedding(words, [6, 3], param_attr="rows")
        whole = fluid.layers.embedding(table, [6, 3], param_attr="rows")
        scores = fluid.layers.matmul(fluid.layers.reduce_sum(rows, dim=1), whole, transpose_y=True)
        assert (rows.shape, whole.shape, scores.shape) == ((-1, -1, 3), (4, 3), (-1, 4))
        executor = fluid.Executor()
        executor.run(startup)
        values = np.array(fluid.global_scope().find_var("rows").get_tensor())
        for numbers in ([[1, 2], [3, 3], [0, 5]], [[4, 0, 1]]):
            feed = {"words": numbers, "table": [[2], [3], [5], [0]]}
            (found,) = executor.run(main, feed, [scores])
            np.testing.assert_allclose(found, values[numbers].sum(1) @ values[[2, 3, 5, 0]].T, rtol=1e-5)
        with pytest.raises(ShapeError, match=r"'table' has shape \(3, 1\), expected \(4, 1\)"):
            executor.run(main, {"words": [[1]], "table": [[2], [3], [5]]}, [scores])
