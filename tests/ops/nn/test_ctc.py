import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import MXNetError
from helpers.numeric import gradients, run, shapes

rng = np.random.RandomState(3)


def test_every_name():
    data, labels = mx.nd.array(rng.randn(4, 2, 3)), mx.nd.array([[1, 0], [2, 2]])
    want = mx.nd.CTCLoss(data, labels).asnumpy()
    for function in (mx.nd.ctc_loss, mx.nd.contrib.CTCLoss, mx.nd.contrib.ctc_loss):
        np.testing.assert_array_equal(function(data, labels).asnumpy(), want)


def test_what_follows_padding_does_not_count():
    data = rng.randn(6, 3, 4)
    labels = np.array([[1, 0, 3], [2, 1, 0], [3, 3, 3]], "f4")
    short = np.array([[1, 0, 0], [2, 1, 0], [3, 3, 3]], "f4")
    np.testing.assert_array_equal(run("CTCLoss", data, labels), run("CTCLoss", data, short))
    last = run("CTCLoss", np.roll(data, -1, 2), np.where(short > 0, short - 1, -1), blank_label="last")
    np.testing.assert_allclose(last, run("CTCLoss", data, short), rtol=1e-12)


def test_lengths():
    data, labels = rng.randn(6, 2, 4), np.array([[1, 2, 3], [2, 1, 0]], "f4")
    steps, counts = np.array([4, 6], "f4"), np.array([2, 1], "i4")
    both = run("CTCLoss", data, labels, steps, counts, use_data_lengths=True, use_label_lengths=True)
    first = run("CTCLoss", data[:4, :1], np.array([[1, 2]], "f4"))
    second = run("CTCLoss", data[:, 1:], np.array([[2]], "f4"))
    np.testing.assert_allclose(both, np.concatenate([first, second]), rtol=1e-12)
    (grad,) = gradients("CTCLoss", data, labels, steps, use_data_lengths=True)
    assert not grad[4:, 0].any()
    assert grad[4:, 1].all()


def test_labels_that_no_alignment_fits_cost_nothing():
    data, labels = rng.randn(3, 2, 4), np.array([[1, 1, 1], [1, 2, 0]], "f4")
    loss = run("CTCLoss", data, labels)
    (grad,) = gradients("CTCLoss", data, labels)
    assert loss[0] == 0 < loss[1]
    assert not grad[:, 0].any()


@pytest.mark.parametrize(("dtype", "tolerance"), [("f2", 1e-2), ("f4", 1e-5), ("f8", 1e-12)])
def test_types_of_data_and_labels(dtype, tolerance):
    data = rng.randn(4, 1, 3)
    want = run("CTCLoss", data, np.array([[1, 2]], "f8"))
    for kind in ("i4", "u1", "f4"):
        found = run("CTCLoss", data.astype(dtype), np.array([[1, 2]], kind))
        assert found.dtype == dtype
        np.testing.assert_allclose(found, want, rtol=tolerance)


def test_shapes_come_from_each_other():
    assert shapes("CTCLoss", (5, 0, 3), (4, 2)) == ([(5, 4, 3), (4, 2)], [(4,)])
    attrs = {"use_data_lengths": True, "use_label_lengths": True}
    found = shapes("CTCLoss", (5, 4, 3), (4, 2), None, None, **attrs)
    assert found == ([(5, 4, 3), (4, 2), (4,), (4,)], [(4,)])


@pytest.mark.parametrize(
    ("labels", "more", "message"),
    [
        ([[1, 2, 1, 2, 1]], {}, "at most the 4 steps"),
        ([[1, 2], [1, 2]], {}, "label has shape"),
        ([[1, 3]], {}, "label holds numbers from 1 to 3, expected 0 to 2"),
        ([[1, 2]], {"data_lengths": [5]}, "data_lengths holds numbers from 5 to 5, expected 0 to 4"),
        ([[1, 2]], {"label_lengths": [3]}, "label_lengths holds numbers from 3 to 3, expected 0 to 2"),
    ],
)
def test_refusals(labels, more, message):
    flags = {f"use_{key}": True for key in more}
    arrays = {key: mx.nd.array(value) for key, value in more.items()}
    with pytest.raises(MXNetError, match=message):
        mx.nd.CTCLoss(mx.nd.zeros((4, 1, 3)), mx.nd.array(labels), **arrays, **flags).asnumpy()


def test_trains_through_a_module():
    symbol = mx.sym.MakeLoss(mx.sym.CTCLoss(mx.sym.Variable("data"), mx.sym.Variable("label")))
    bound = symbol.simple_bind(
        mx.cpu(), data=(5, 1, 3), label=(1, 2), grad_req={"data": "write", "label": "null"}
    )
    bound.arg_dict["label"][:] = [[1, 2]]
    losses = []
    for _ in range(30):
        losses.append(float(bound.forward(is_train=True)[0].asnumpy()[0]))
        bound.backward()
        bound.arg_dict["data"][:] -= bound.grad_dict["data"]
    assert losses[-1] < 0.2 < losses[0]


def test_steps_beyond_the_length_may_hold_anything():
    data, labels, steps = rng.randn(5, 1, 3), np.array([[1, 2]], "f4"), np.array([4], "f4")
    want = gradients("CTCLoss", data, labels, steps, use_data_lengths=True)[0]
    data[4] = np.nan
    np.testing.assert_array_equal(gradients("CTCLoss", data, labels, steps, use_data_lengths=True)[0], want)
    assert not want[4].any()
