"""Modules, iterators and executors that are fed ragged values; training: test_equivalence.py."""

import logging

import numpy as np
import pytest

import dpmodule as mx

S, WORDS, DIM = mx.sym, 20, 4
ROWS = [[1, 2, 3], [4], [], [5, 6], [7, 8, 9, 10], [2, 2]]
BOTH = [mx.cpu(0), mx.cpu(1)]
SMALL = mx.nd.ragged_array([[1.0, 2.0], [], [3.0]])
INPUT = S.Variable("words", stype="ragged")


def plain(symbol, n=3, contexts=None, **options):
    """Return a module of a symbol without parameters or labels."""
    made = mx.mod.Module(symbol, ["words"], None, context=contexts or mx.cpu())
    made.bind([mx.io.DataDesc("words", (n,), stype="ragged")], None, **options)
    made.init_params()
    return made


def test_iterators_cut_and_gather_and_wrap_around():
    feed = mx.io.NDArrayIter({"words": ROWS}, {"label": np.ones(6)}, batch_size=4)
    assert [(one.data[0].tolist(), one.pad) for one in feed] == [(ROWS[:4], 0), (ROWS[4:] + ROWS[:2], 2)]
    ahead = mx.io.PrefetchingIter(mx.io.NDArrayIter({"words": ROWS}, batch_size=3))
    assert [b.data[0].tolist() for b in ahead] == [ROWS[:3], ROWS[3:]]


def test_predicting_ragged_outputs_over_two_contexts_joins_rows_and_leaves_padding_out():
    scores = S.Embedding(INPUT, input_dim=WORDS, output_dim=1, name="table")
    made = plain(scores, 4, BOTH, for_training=False)
    made.set_params({"table_weight": mx.nd.arange(WORDS).reshape((WORDS, 1))}, {})
    found = made.predict(mx.io.NDArrayIter({"words": ROWS}, batch_size=4))
    assert (found.stype, found.tolist()) == ("ragged", [[[float(word)] for word in row] for row in ROWS])


def test_nan_in_a_ragged_output_names_its_row(caplog):
    with caplog.at_level(logging.WARNING):
        plain(S.exp(INPUT), for_training=False).predict(mx.nd.ragged_array([[1.0, 2.0], [], [float("nan")]]))
    assert "1 row of the outputs is NaN, the first at index 2" in caplog.text


def test_gradients_of_ragged_inputs_and_head_gradients_over_two_contexts():
    made = plain(INPUT * INPUT, 3, BOTH, inputs_need_grad=True)
    made.forward(mx.io.DataBatch([SMALL]), is_train=True)
    assert made.get_outputs()[0].tolist() == [[1, 4], [], [9]]
    made.backward([mx.nd.ragged_array([[1.0, 10.0], [], [100.0]])])
    assert made.get_input_grads()[0].tolist() == [[2, 40], [], [600]]
    with pytest.raises(mx.base.ArgumentError, match="out_grads"):
        made.backward([mx.nd.ones((3,))])


def test_gradients_that_add_up():
    x, ones = S.Variable("x", stype="ragged"), mx.nd.ragged_array([[1.0, 1.0], [1.0]])
    args, grads = {"x": mx.nd.ragged_array([[1.0, 2.0], [3.0]])}, {"x": ones * 0}
    executor = (x * x).bind(mx.cpu(), args, grads, grad_req="add")
    for _ in range(2):
        executor.forward(is_train=True)
        executor.backward([ones])
    assert executor.grad_dict["x"].tolist() == [[4, 8], [12]]
    other = mx.nd.ragged_array([[1.0], [2.0, 3.0]])
    executor.arg_dict["x"][:] = other
    executor.forward(is_train=True)
    with pytest.raises(mx.base.StateError, match="other lengths"):
        executor.backward([other])


def test_descriptions_and_storage_types_make_an_input_ragged():
    made = plain(S.sequence_pool(S.Variable("words"), pool_type="sum"), 2, for_training=False)
    data = mx.nd.ragged_array([[1.0, 2.0], []])
    made.forward(mx.io.DataBatch([data]))
    assert made.get_outputs()[0].asnumpy().tolist() == [3, 0]
    pooled = S.sequence_pool(S.Variable("x"), pool_type="sum")
    executor = pooled.simple_bind(mx.cpu(), x=(2,), stype_dict={"x": "ragged"})
    assert (executor.arg_dict["x"].stype, executor.grad_dict["x"].stype) == ("ragged", "ragged")
    assert executor.forward(is_train=True, x=data)[0].asnumpy().tolist() == [3, 0]
    executor.backward(mx.nd.array([5, 6]))
    assert executor.grad_dict["x"].tolist() == [[5, 5], []]
    bigger = executor.reshape(x=(3,), allow_up_sizing=True)
    assert bigger.forward(x=mx.nd.ragged_array([[1], [2], [3, 4]]))[0].asnumpy().tolist() == [1, 2, 7]


# looking inside


def test_monitors_see_ragged_values():
    seen, monitor = {}, mx.monitor.Monitor(1)
    made = plain(S.sequence_pool(S.exp(INPUT, name="up"), pool_type="sum", name="pool"))
    executor = made.group.execs[0]
    executor.set_monitor_callback(lambda name, array: seen.setdefault(name, array.stype), monitor_all=True)
    executor.forward(is_train=True, words=SMALL)
    executor.backward(mx.nd.ones((3,)))
    assert (seen["words"], seen["up_output"], seen["pool_output"]) == ("ragged", "ragged", "default")
    made.install_monitor(monitor)
    monitor.tic()
    made.forward(mx.io.DataBatch([SMALL]), is_train=True)
    assert {name for _, name, _ in monitor.toc()} >= {"words", "up_output"}


def test_explain_counts_one_element_a_row():
    table = S.Embedding(INPUT, input_dim=WORDS, output_dim=DIM, name="table")
    conv = S.sequence_conv(table, num_filters=5, name="conv")
    states = [S.zeros((1, 0, 2))] * 2
    run = S.RNN(conv, None, *states, mode="lstm", state_size=2, num_layers=1, name="run")
    executor = S.sequence_pool(run, pool_type="last", name="last").simple_bind(mx.cpu(), words=(6,))
    executor.arg_dict["words"][:] = mx.nd.ragged_array(ROWS)
    found = executor.explain(times=True, measure_memory=True)
    steps = {step.name: step for step in found.steps}
    assert [steps[name].ragged for name in ("table", "conv", "run", "last")] == [True, True, True, False]
    assert (steps["conv"].flops, steps["run"].flops) == (2 * 6 * 5 * 3 * DIM, 2 * 6 * 4 * 2 * (5 + 2))
    assert "float32, ragged" in found.table
    assert "one element in each row" in found.totals
