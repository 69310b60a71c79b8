"""Modules, iterators and executors that are fed ragged values."""

from __future__ import annotations

import logging
import pickle

import numpy as np
import pytest

import dpmodule as mx

S, WORDS, DIM = mx.sym, 20, 4
ROWS = [[1, 2, 3], [4], [], [5, 6], [7, 8, 9, 10], [2, 2]]
LABELS = [0, 1, 0, 1, 1, 0]


def net(sparse_grad=False, pool="mean"):
    words = S.Variable("words", stype="ragged")
    table = S.Embedding(words, input_dim=WORDS, output_dim=DIM, sparse_grad=sparse_grad, name="table")
    pooled = S.sequence_pool(table, pool_type=pool, name="pool")
    return S.SoftmaxOutput(
        S.FullyConnected(pooled, num_hidden=2, name="fc"), name="softmax", normalization="null"
    )


def padded_net():
    """Return the same net of padded rows with a mask that divides by the lengths."""
    table = S.Embedding(S.Variable("words"), input_dim=WORDS, output_dim=DIM, name="table")
    mean = S.sum(S.broadcast_mul(table, S.expand_dims(S.Variable("mask"), axis=2)), axis=1)
    return S.SoftmaxOutput(S.FullyConnected(mean, num_hidden=2, name="fc"), name="softmax")


def start():
    """Return parameters that all nets of a test begin with."""
    rng = np.random.RandomState(7)
    shapes = {"table_weight": (WORDS, DIM), "fc_weight": (2, DIM), "fc_bias": (2,)}
    return {name: mx.nd.array(rng.randn(*shape)) for name, shape in shapes.items()}


def batch(rows=ROWS, labels=LABELS, **options):
    return mx.io.DataBatch([mx.nd.ragged_array(rows)], [mx.nd.array(labels)], **options)


def module(symbol, n=6, contexts=None, workload=None, optimizer="sgd", for_training=True, **bind):
    made = mx.mod.Module(
        symbol, ["words"], ["softmax_label"], context=contexts or mx.cpu(), work_load_list=workload
    )
    made.bind(
        [mx.io.DataDesc("words", (n,), "int64", stype="ragged")],
        [("softmax_label", (n,))],
        for_training,
        **bind,
    )
    made.set_params(start(), {})
    if for_training:
        made.init_optimizer(
            optimizer=optimizer, optimizer_params={"learning_rate": 0.5, "rescale_grad": 1 / n}
        )
    return made


def trained(made, data, steps=5):
    for _ in range(steps):
        made.forward_backward(data)
        made.update()
    return {k: v.asnumpy() for k, v in made.get_params()[0].items()}


def test_training_equals_a_padded_net():
    longest = max(map(len, ROWS))
    words = np.array([row + [0] * (longest - len(row)) for row in ROWS])
    mask = np.array([[1 / max(len(row), 1)] * len(row) + [0] * (longest - len(row)) for row in ROWS])
    plain = mx.mod.Module(padded_net(), ["words", "mask"], ["softmax_label"])
    n = len(ROWS)
    plain.bind([("words", (n, longest)), ("mask", (n, longest))], [("softmax_label", (n,))])
    plain.set_params(start(), {})
    plain.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 0.5, "rescale_grad": 1 / n})
    data = mx.io.DataBatch([mx.nd.array(words), mx.nd.array(mask)], [mx.nd.array(LABELS)])
    wanted = trained(plain, data)
    got = trained(module(net()), batch())
    for name, values in wanted.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-5, atol=1e-6)


def test_row_sparse_gradients_train_the_same():
    wanted = trained(module(net()), batch())
    made = module(net(sparse_grad=True))
    got = trained(made, batch())
    for name, values in wanted.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-5, atol=1e-6)
    grad = made.group.execs[0].grad_dict["table_weight"]
    assert grad.stype == "row_sparse"
    assert grad.indices.asnumpy().tolist() == sorted({word for row in ROWS for word in row})


@pytest.mark.parametrize("workload", [None, [1, 2], [1, 5]])
@pytest.mark.parametrize("sparse_grad", [False, True])
def test_two_contexts_share_the_rows_by_workload(workload, sparse_grad):
    wanted = trained(module(net()), batch())
    made = module(net(sparse_grad), contexts=[mx.cpu(0), mx.cpu(1)], workload=workload)
    got = trained(made, batch())
    for name, values in wanted.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-5, atol=1e-6)
    shares = [executor.arg_dict["words"] for executor in made.group.execs]
    assert [row for share in shares for row in share.tolist()] == ROWS


def test_batches_of_any_lengths_pass_through_one_binding():
    made = module(net())
    executor = made.group.execs[0]
    for rows in (ROWS, [[1]] * 6, [list(range(19))] * 6, [[]] * 6):
        made.forward_backward(batch(rows))
        made.update()
    assert made.group.execs[0] is executor
    made.forward(batch([[1, 2], []], [0, 1]), is_train=False)  # another number of rows is another shape
    assert made.get_outputs()[0].shape == (2, 2)


def test_rows_that_are_all_empty_change_the_layers_above_alone():
    made = module(net())
    got = trained(made, batch([[]] * 6), 1)
    np.testing.assert_array_equal(got["table_weight"], start()["table_weight"].asnumpy())
    assert (got["fc_bias"] != start()["fc_bias"].asnumpy()).all()


def test_fit_score_and_predict_from_lists_of_rows():
    rows = [[w, w + 1] if w % 3 else [w] for w in range(1, 15)] * 4
    labels = np.array([sum(row) % 2 for row in rows])
    feed = mx.io.NDArrayIter({"words": rows}, {"softmax_label": labels}, batch_size=10, shuffle=True)
    assert feed.provide_data[0].stype == "ragged"
    assert feed.provide_data[0].dtype == np.int64
    made = mx.mod.Module(net(), ["words"], ["softmax_label"], context=[mx.cpu(0), mx.cpu(1)])
    mx.random.seed(3)
    np.random.seed(3)
    made.fit(
        feed,
        num_epoch=40,
        optimizer="adam",
        optimizer_params={"learning_rate": 0.05},
        initializer=mx.init.Normal(0.3),
    )
    assert dict(made.score(feed, "acc"))["accuracy"] == 1
    whole = mx.io.NDArrayIter({"words": rows}, {"softmax_label": labels}, batch_size=10)
    found = made.predict(whole)
    assert found.shape == (56, 2)
    np.testing.assert_array_equal(found.asnumpy().argmax(1), labels)
    one = made.predict(mx.nd.ragged_array(rows[:3]))
    np.testing.assert_allclose(one.asnumpy(), found.asnumpy()[:3], rtol=1e-5)


def test_iterators_cut_and_gather_and_wrap_around():
    feed = mx.io.NDArrayIter({"words": ROWS}, {"softmax_label": np.array(LABELS)}, batch_size=4)
    got = [(one.data[0].tolist(), one.pad) for one in feed]
    assert got == [(ROWS[:4], 0), (ROWS[4:] + ROWS[:2], 2)]
    assert [
        b.data[0].tolist() for b in mx.io.PrefetchingIter(mx.io.NDArrayIter({"words": ROWS}, batch_size=3))
    ] == [
        ROWS[:3],
        ROWS[3:],
    ]


def test_predicting_ragged_outputs_over_two_contexts_joins_rows_and_leaves_padding_out():
    words = S.Variable("words", stype="ragged")
    scores = S.Embedding(words, input_dim=WORDS, output_dim=1, name="table")
    made = mx.mod.Module(scores, ["words"], None, context=[mx.cpu(0), mx.cpu(1)])
    feed = mx.io.NDArrayIter({"words": ROWS}, batch_size=4)
    made.bind(feed.provide_data, None, for_training=False)
    made.set_params({"table_weight": mx.nd.arange(WORDS).reshape((WORDS, 1))}, {})
    found = made.predict(feed)
    assert found.stype == "ragged"
    assert found.tolist() == [[[float(word)] for word in row] for row in ROWS]


def test_nan_in_a_ragged_output_names_its_row(caplog):
    made = mx.mod.Module(S.exp(S.Variable("words", stype="ragged")), ["words"], None)
    made.bind([mx.io.DataDesc("words", (3,), stype="ragged")], None, for_training=False)
    made.init_params()
    data = mx.nd.ragged_array([[1.0, 2.0], [], [float("nan")]])
    with caplog.at_level(logging.WARNING):
        made.predict(data)
    assert "1 row of the outputs is NaN, the first at index 2" in caplog.text


def test_gradients_of_ragged_inputs_and_head_gradients_over_two_contexts():
    x = S.Variable("words", stype="ragged")
    made = mx.mod.Module(x * x, ["words"], None, context=[mx.cpu(0), mx.cpu(1)])
    made.bind([mx.io.DataDesc("words", (3,), stype="ragged")], None, inputs_need_grad=True)
    made.init_params()
    data = mx.nd.ragged_array([[1.0, 2.0], [], [3.0]])
    made.forward(mx.io.DataBatch([data]), is_train=True)
    assert made.get_outputs()[0].tolist() == [[1, 4], [], [9]]
    made.backward([mx.nd.ragged_array([[1.0, 10.0], [], [100.0]])])
    assert made.get_input_grads()[0].tolist() == [[2, 40], [], [600]]
    with pytest.raises(mx.base.ArgumentError, match="out_grads"):
        made.backward([mx.nd.ones((3,))])


def test_gradients_that_add_up():
    x = S.Variable("x", stype="ragged")
    data = mx.nd.ragged_array([[1.0, 2.0], [3.0]])
    executor = (x * x).bind(
        mx.cpu(), {"x": data}, {"x": mx.nd.ragged_array([[0.0, 0.0], [0.0]])}, grad_req="add"
    )
    for _ in range(2):
        executor.forward(is_train=True)
        executor.backward([mx.nd.ragged_array([[1.0, 1.0], [1.0]])])
    assert executor.grad_dict["x"].tolist() == [[4, 8], [12]]
    executor.arg_dict["x"][:] = mx.nd.ragged_array([[1.0], [2.0, 3.0]])
    executor.forward(is_train=True)
    with pytest.raises(mx.base.StateError, match="other lengths"):
        executor.backward([mx.nd.ragged_array([[1.0], [1.0, 1.0]])])


# binding and saving


def test_the_saved_symbol_keeps_the_storage_type():
    symbol = net()
    again = S.load_json(symbol.tojson())
    assert again.attr_dict()["words"]["__storage_type__"] == "101"
    wanted, got = module(symbol, for_training=False), module(again, for_training=False)
    for made in (wanted, got):
        made.forward(batch())
    np.testing.assert_array_equal(wanted.get_outputs()[0].asnumpy(), got.get_outputs()[0].asnumpy())


def test_checkpoints_train_on(tmp_path):
    made = module(net())
    trained(made, batch(), 2)
    made.save_checkpoint(str(tmp_path / "bow"), 1)
    loaded = mx.mod.Module.load(str(tmp_path / "bow"), 1, data_names=["words"])
    loaded.bind(
        [mx.io.DataDesc("words", (6,), "int64", stype="ragged")],
        [("softmax_label", (6,))],
        for_training=False,
    )
    made.forward(batch(), is_train=False)
    loaded.forward(batch(), is_train=False)
    np.testing.assert_array_equal(made.get_outputs()[0].asnumpy(), loaded.get_outputs()[0].asnumpy())


def test_the_description_alone_makes_an_input_ragged():
    plain = S.sequence_pool(S.Variable("words"), pool_type="sum")
    made = mx.mod.Module(plain, ["words"], None)
    with pytest.raises(mx.base.OpError, match="sequence_pool takes ragged"):
        made.bind([("words", (2,))], None, for_training=False)
    made.bind([mx.io.DataDesc("words", (2,), stype="ragged")], None, for_training=False)
    made.init_params()
    made.forward(mx.io.DataBatch([mx.nd.ragged_array([[1, 2], []])]))
    assert made.get_outputs()[0].asnumpy().tolist() == [3, 0]


def test_simple_bind_takes_storage_types_and_the_executor_copies_what_it_is_given():
    executor = S.sequence_pool(S.Variable("x"), pool_type="sum").simple_bind(
        mx.cpu(), x=(2,), stype_dict={"x": "ragged"}
    )
    assert (executor.arg_dict["x"].stype, executor.grad_dict["x"].stype) == ("ragged", "ragged")
    (out,) = executor.forward(is_train=True, x=mx.nd.ragged_array([[1, 2], []]))
    assert out.asnumpy().tolist() == [3, 0]
    executor.backward(mx.nd.array([5, 6]))
    assert executor.grad_dict["x"].tolist() == [[5, 5], []]


def test_reshaping_an_executor_keeps_ragged_arguments():
    executor = S.sequence_pool(S.Variable("x", stype="ragged")).simple_bind(mx.cpu(), x=(2,))
    bigger = executor.reshape(x=(3,), allow_up_sizing=True)
    assert bigger.forward(x=mx.nd.ragged_array([[1], [2], [3, 4]]))[0].asnumpy().tolist() == [1, 2, 7]


def test_repr_copies_and_pickles_of_descriptions():
    desc = mx.io.DataDesc("words", (3,), "int64", stype="ragged")
    assert "ragged" in repr(desc)
    for other in (pickle.loads(pickle.dumps(desc)), desc._replace(shape=(4,))):
        assert (other.stype, other.dtype) == ("ragged", np.int64)
    with pytest.raises(mx.base.ArgumentError, match="stype is 'rugged'"):
        mx.io.DataDesc("words", (3,), stype="rugged")


# what is refused


def test_no_rows_are_refused_as_elsewhere():
    made = mx.mod.Module(net(), ["words"], ["softmax_label"])
    with pytest.raises(mx.base.ShapeError, match="the batch is empty"):
        made.bind([mx.io.DataDesc("words", (0,), stype="ragged")], [("softmax_label", (0,))])


def test_a_dense_array_for_a_ragged_input_and_the_reverse():
    made = module(net())
    with pytest.raises(
        mx.base.ArgumentError, match=r"words is an array of shape \(6,\), but the bound array is ragged"
    ):
        made.forward(mx.io.DataBatch([mx.nd.ones((6,))], [mx.nd.array(LABELS)]))
    dense = mx.mod.Module(
        S.Embedding(S.Variable("words"), input_dim=WORDS, output_dim=2, name="e"), ["words"], None
    )
    dense.bind([("words", (6,))], None, for_training=False)
    dense.init_params()
    with pytest.raises(mx.base.ArgumentError, match="words is ragged, but the bound array is default"):
        dense.forward(batch())


def test_gradients_of_another_storage_type_are_refused():
    x, plain = S.Variable("x", stype="ragged"), mx.nd.ones((2,))
    data = mx.nd.ragged_array([[1.0], [2.0]])
    for args, grads in (({"x": data}, {"x": plain}), ({"x": plain}, {"x": data})):
        with pytest.raises(mx.base.ArgumentError, match="args_grad: x is stored as"):
            S.exp(x).bind(mx.cpu(), args, grads)
    with pytest.raises(mx.base.ArgumentError, match="the gradient is stored as default"):
        mx.autograd.mark_variables([data], [plain])
    with pytest.raises(mx.base.OpError, match="cast_storage takes no ragged"):
        mx.nd.cast_storage(data, "csr")


# looking inside


def test_monitors_see_ragged_values():
    seen = {}
    executor = module(net()).group.execs[0]
    executor.set_monitor_callback(lambda name, array: seen.setdefault(name, array.stype), monitor_all=True)
    executor.forward(is_train=True, words=mx.nd.ragged_array(ROWS), softmax_label=mx.nd.array(LABELS))
    executor.backward()
    assert (seen["words"], seen["table_output"], seen["pool_output"]) == ("ragged", "ragged", "default")
    monitor = mx.monitor.Monitor(1)
    made = module(net())
    made.install_monitor(monitor)
    monitor.tic()
    made.forward_backward(batch())
    assert {name for _, name, _ in monitor.toc()} >= {"words", "table_output"}


def test_explain_and_memory():
    made = module(net())
    made.forward_backward(batch())
    executor = made.group.execs[0]
    found = executor.explain(times=True)
    assert [step.name for step in found.steps] == ["pool", "fc", "softmax"]
    assert "sequence_pool" in str(found)
    assert executor.memory().peak > 0
    assert executor.held_bytes()["arguments"] > 0
    assert executor.debug_str()
    assert "words (6,)" in repr(executor)


def test_explain_counts_one_element_a_row():
    words = S.Variable("words", stype="ragged")
    conv = S.sequence_conv(
        S.Embedding(words, input_dim=WORDS, output_dim=DIM, name="table"), num_filters=5, name="conv"
    )
    states = [S.zeros((1, 0, 2)), S.zeros((1, 0, 2))]
    run = S.RNN(conv, None, *states, mode="lstm", state_size=2, num_layers=1, name="run")
    executor = S.sequence_pool(run, pool_type="last", name="last").simple_bind(mx.cpu(), words=(6,))
    executor.arg_dict["words"][:] = mx.nd.ragged_array(ROWS)
    found = executor.explain(times=True, measure_memory=True)
    steps = {step.name: step for step in found.steps}
    assert [steps[name].ragged for name in ("table", "conv", "run", "last")] == [True, True, True, False]
    assert steps["conv"].flops == 2 * 6 * 5 * 3 * DIM
    assert steps["run"].flops == 2 * 6 * 4 * 2 * (5 + 2)
    assert "float32, ragged" in found.table
    assert "one element in each row" in found.totals


def test_failures_name_the_node():
    x, y = (S.Variable(name, stype="ragged") for name in "xy")
    executor = S.elemwise_add(x, y, name="both").simple_bind(mx.cpu(), x=(2,), y=(2,))
    with pytest.raises(mx.base.NodeError, match=r"both[\s\S]*different row lengths"):
        executor.forward(x=mx.nd.ragged_array([[1], [2]]), y=mx.nd.ragged_array([[1, 2], []]))


def test_bucketing_modules_take_ragged_inputs():
    made = mx.mod.BucketingModule(lambda key: (net(), ["words"], ["softmax_label"]), default_bucket_key=0)
    descs = [mx.io.DataDesc("words", (6,), "int64", stype="ragged")], [mx.io.DataDesc("softmax_label", (6,))]
    made.bind(*descs)
    made.init_params()
    made.init_optimizer()
    for key in (0, 1, 0):
        made.forward_backward(batch(bucket_key=key, provide_data=descs[0], provide_label=descs[1]))
        made.update()
    assert made.get_outputs()[0].shape == (6, 2)


def test_feed_forward_models_take_ragged_inputs():
    feed = mx.io.NDArrayIter({"words": ROWS}, {"softmax_label": np.array(LABELS)}, batch_size=3)
    model = mx.model.FeedForward(
        net(), ctx=[mx.cpu(0), mx.cpu(1)], num_epoch=1, initializer=mx.init.Normal(0.1)
    )
    model.fit(feed)
    assert model.predict(feed).shape == (6, 2)
