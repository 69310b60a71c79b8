"""FeedForward: trained as by real MXNet 1.9.1, arrays and iterators, saving, bad input."""

import importlib.util
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, ShapeError
from dpmodule.model import FeedForward

FOLDER = Path(__file__).parent / "data" / "goldens" / "trainers"
GOLDEN = json.loads((FOLDER / "trainers.json").read_text())


def recipe():
    spec = importlib.util.spec_from_file_location("make_trainers", FOLDER / "make_trainers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CASES = recipe()


def network():
    return CASES.network(mx)[0]


def trained(**kwargs):
    model = FeedForward(network(), num_epoch=2, learning_rate=0.1, **kwargs)
    model.fit(*CASES.data())
    return model


def test_training_ends_where_mxnet_ends():
    found, _ = CASES.feed_forward(mx)
    assert set(found) == set(GOLDEN["feed_forward"])
    for name, value in found.items():
        np.testing.assert_allclose(value, GOLDEN["feed_forward"][name], 2e-4, 2e-5, err_msg=name)


def test_predict_cuts_padding_and_returns_what_was_read():
    _, model = CASES.feed_forward(mx)
    x, y = CASES.data()
    scores, inputs, labels = model.predict(mx.io.NDArrayIter(x, y, 13), return_data=True)
    assert scores.shape == (60, 3)
    np.testing.assert_array_equal(inputs, x)
    np.testing.assert_array_equal(labels, y)
    np.testing.assert_allclose(model.predict(x), scores, rtol=1e-5)
    assert model.predict(mx.io.NDArrayIter(x, y, 16), num_batch=2).shape == (32, 3)
    assert model.score(mx.io.NDArrayIter(x, y, 20)) == np.mean(scores.argmax(1) == y)


def test_rows_that_are_nan_are_told_of(caplog):
    _, model = CASES.feed_forward(mx)
    x, y = CASES.data()
    x = x.copy()
    x[[7, 30]] = np.nan
    model.predict(x)
    model.score(mx.io.NDArrayIter(x, y, 20))
    text = "rows of the outputs are NaN, the first at index 7"
    assert caplog.messages == [f"predict: 2 {text}", f"score: 2 {text}"]


def test_arrays_are_enough():
    x, y = CASES.data()
    seen = []
    model = FeedForward.create(
        network(),
        x,
        y,
        num_epoch=30,
        learning_rate=0.5,
        eval_data=(x, y),
        epoch_end_callback=lambda *args: seen.append(args[0]),
    )
    assert seen == list(range(30))
    assert model.score(mx.io.NDArrayIter(x, y, 20)) > 0.9


def test_saved_loaded_and_pickled_alike(tmp_path):
    model, x = trained(), CASES.data()[0]
    model.save(str(tmp_path / "net"))
    again = FeedForward.load(str(tmp_path / "net"), 2)
    assert again.begin_epoch == 2
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(again)).predict(x), model.predict(x))


def test_buckets_from_a_function():
    batches = mx.io.NDArrayIter(*CASES.data(), 15)
    batches.default_bucket_key = 1
    model = FeedForward(lambda key: network(), num_epoch=1, learning_rate=0.1)
    original = batches.next

    def next_with_key():
        batch = original()
        batch.bucket_key = 1
        return batch

    batches.next = next_with_key
    model.fit(batches)
    assert set(model.arg_params) == set(GOLDEN["feed_forward"]) - {"bn_moving_mean", "bn_moving_var"}
    assert model.predict(CASES.data()[0]).shape == (60, 3)


def test_score_calls_back():
    seen = []
    model = trained()
    model.score(mx.io.NDArrayIter(*CASES.data(), 20), batch_end_callback=lambda p: seen.append(p.nbatch))
    assert seen == [0, 1, 2]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: FeedForward(3), ArgumentError, "symbol is int"),
        (
            lambda: FeedForward(network(), arg_params={"x": mx.nd.ones(1)}),
            ArgumentError,
            "arg_params holds x",
        ),
        (lambda: FeedForward(network()).fit(*CASES.data()), ArgumentError, "num_epoch is None"),
        (lambda: FeedForward(network()).predict(CASES.data()[0]), ArgumentError, "no parameters yet"),
        (lambda: FeedForward(network(), num_epoch=1).fit(CASES.data()[0]), ArgumentError, "y is None"),
        (
            lambda: FeedForward(network(), num_epoch=1).fit(np.ones((4, 8)), np.ones(3)),
            ShapeError,
            r"y has shape \(3,\), expected \(4,\)",
        ),
        (lambda: FeedForward(network()).save("x"), ArgumentError, "epoch is None"),
        (lambda: trained().fit(*CASES.data(), eval_data=(1,)), ArgumentError, "eval_data has 1"),
    ],
)
def test_bad_input(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_extra_parameters_on_request():
    model = FeedForward(network(), arg_params={"x": mx.nd.ones(1)}, allow_extra_params=True)
    assert model.arg_params == {}


@pytest.mark.parametrize("by_create", [True, False])
def test_each_figure_of_the_validation_is_logged_once(by_create, caplog):
    inputs, labels = CASES.data()
    caplog.set_level("INFO")
    seen = []
    callbacks = [mx.callback.LogValidationMetricsCallback(), seen.append]
    options = {"eval_data": (inputs, labels), "eval_metric": ["acc", "ce"]}
    if by_create:
        FeedForward.create(network(), inputs, labels, num_epoch=2, eval_end_callback=seen.append, **options)
    else:
        model = FeedForward(network(), num_epoch=2)
        model.fit(inputs, labels, eval_end_callback=callbacks, **options)
    lines = [record.getMessage().partition("=")[0] for record in caplog.records]
    names = ("accuracy", "cross-entropy")
    assert [line for line in lines if "Validation" in line] == [
        f"Epoch[{epoch}] Validation-{name}" for epoch in range(2) for name in names
    ]
    assert [param.epoch for param in seen] == [0, 1]
