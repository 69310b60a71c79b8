"""FeedForward: trained as by real MXNet 1.9.1, arrays and iterators, saving."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError
from dpmodule.model import FeedForward
from helpers import trainer_cases as CASES

FOLDER = Path(__file__).parent / "data" / "goldens" / "trainers"
GOLDEN = json.loads((FOLDER / "trainers.json").read_text())["feed_forward"]
X, Y = CASES.data()


def network():
    return CASES.network(mx)[0]


def test_training_ends_where_mxnet_ends():
    found, _ = CASES.feed_forward(mx)
    assert set(found) == set(GOLDEN)
    for name, value in found.items():
        np.testing.assert_allclose(value, GOLDEN[name], 2e-4, 2e-5, err_msg=name)


def test_predict_cuts_padding_and_returns_what_was_read(caplog, tmp_path):
    _, model = CASES.feed_forward(mx)
    scores, inputs, labels = model.predict(mx.io.NDArrayIter(X, Y, 13), return_data=True)
    assert scores.shape == (60, 3)
    np.testing.assert_array_equal(inputs, X)
    np.testing.assert_array_equal(labels, Y)
    np.testing.assert_allclose(model.predict(X), scores, rtol=1e-5)
    assert model.predict(mx.io.NDArrayIter(X, Y, 16), num_batch=2).shape == (32, 3)
    seen = []
    found = model.score(mx.io.NDArrayIter(X, Y, 20), batch_end_callback=lambda p: seen.append(p.nbatch))
    assert (found, seen) == (np.mean(scores.argmax(1) == Y), [0, 1, 2])
    spoilt = np.where(np.isin(np.arange(60), [7, 30])[:, None], np.nan, X)
    model.predict(spoilt)
    model.score(mx.io.NDArrayIter(spoilt, Y, 20))
    text = "rows of the outputs are NaN, the first at index 7"
    assert caplog.messages == [f"predict: 2 {text}", f"score: 2 {text}"]
    model.save(str(tmp_path / "net"))
    again = FeedForward.load(str(tmp_path / "net"), model.num_epoch)
    assert again.begin_epoch == model.num_epoch
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(again)).predict(X), model.predict(X))


def test_fit_resets_its_iterator_first():
    data, seen = mx.io.NDArrayIter(X, Y, 20), []
    next(data)
    model = FeedForward(network(), num_epoch=1, learning_rate=0.1)
    model.fit(data, batch_end_callback=lambda param: seen.append(param.nbatch))
    assert seen == [1, 2, 3]


class Rows(mx.operator.CustomOp):
    """Identity that records the shapes of its inputs."""

    seen: list = []

    def forward(self, is_train, req, in_data, out_data, aux):
        self.seen.append(in_data[0].shape)
        self.assign(out_data[0], req[0], in_data[0])


@mx.operator.register("rows_of_predictions")
class RowsProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Rows()


def test_predictions_of_several_contexts_run_on_the_first():
    net = mx.sym.Custom(mx.sym.var("data"), op_type="rows_of_predictions")
    model = FeedForward(net, ctx=[mx.cpu(0), mx.cpu(1)], arg_params={}, aux_params={})
    np.testing.assert_array_equal(model.predict(mx.io.NDArrayIter(X, batch_size=20)), X)
    assert Rows.seen == [(20, X.shape[1])] * 3


def test_buckets_from_a_function():
    class Batches(mx.io.NDArrayIter):
        default_bucket_key = 1

        def next(self):
            batch = super().next()
            batch.bucket_key = 1
            return batch

    model = FeedForward(lambda key: network(), num_epoch=1, learning_rate=0.1)
    model.fit(Batches(X, Y, 15))
    assert set(model.arg_params) == set(GOLDEN) - {"bn_moving_mean", "bn_moving_var"}
    assert model.predict(X).shape == (60, 3)


def test_extra_parameters_on_request():
    model = FeedForward(network(), arg_params={"x": mx.nd.ones(1)}, allow_extra_params=True)
    assert model.arg_params == {}


def test_extra_parameters_are_ignored_by_fit_and_refused_by_predict():
    model = FeedForward(network(), num_epoch=1, arg_params={"extra": mx.nd.ones(1)})
    model.fit(X, Y)
    assert "extra" not in model.arg_params
    more = {**model.arg_params, "extra": mx.nd.ones(1)}
    other = FeedForward(network(), arg_params=more, aux_params=model.aux_params)
    with pytest.raises(ArgumentError, match="extra"):
        other.predict(X)


@pytest.mark.parametrize("by_create", [True, False])
def test_each_figure_of_the_validation_is_logged_once(by_create, caplog):
    caplog.set_level("INFO")
    seen, options = [], {"eval_data": (X, Y), "eval_metric": ["acc", "ce"]}
    if by_create:
        FeedForward.create(network(), X, Y, num_epoch=2, eval_end_callback=seen.append, **options)
    else:
        callbacks = [mx.callback.LogValidationMetricsCallback(), seen.append]
        FeedForward(network(), num_epoch=2).fit(X, Y, eval_end_callback=callbacks, **options)
    lines = [record.getMessage().partition("=")[0] for record in caplog.records]
    assert [line for line in lines if "Validation" in line] == [
        f"Epoch[{epoch}] Validation-{name}" for epoch in range(2) for name in ("accuracy", "cross-entropy")
    ]
    assert [param.epoch for param in seen] == [0, 1]


def test_batch_callbacks_count_from_1():
    """As in MXNet's FeedForward; those of Module and of evaluations count from 0."""
    trained, evaluated = [], []
    FeedForward(network(), num_epoch=1, numpy_batch_size=20).fit(
        X,
        Y,
        eval_data=mx.io.NDArrayIter(X, Y, 20),
        batch_end_callback=lambda param: trained.append(param.nbatch),
        eval_batch_end_callback=lambda param: evaluated.append(param.nbatch),
    )
    assert trained == [count + 1 for count in evaluated] == list(range(1, 1 + -(-len(X) // 20)))


def test_labels_may_be_a_column():
    model = FeedForward(network(), num_epoch=2, initializer=mx.init.One())
    model.fit(X, Y)
    column = FeedForward(network(), num_epoch=2, initializer=mx.init.One())
    column.fit(X, Y[:, None])
    np.testing.assert_allclose(column.predict(X), model.predict(X), rtol=1e-4)  # rows are shuffled
