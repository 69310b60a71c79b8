import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import MXNetError, ShapeError
from dpmodule.ops import get
from helpers.numeric import environment, gradients, run, shapes

rng = np.random.RandomState(9)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize(
    ("name", "link", "slope"),
    [
        ("LinearRegressionOutput", lambda x: x, lambda d: d),
        ("LogisticRegressionOutput", sigmoid, lambda d: d),
        ("MAERegressionOutput", lambda x: x, lambda d: np.where(d > 0, 1.0, -1.0)),
    ],
)
@pytest.mark.parametrize(
    ("shape", "label_shape"),
    [((4, 3), (4, 3)), ((4, 1), (4,)), ((4,), (4,)), ((4,), (4, 1)), ((2, 3, 2), (2, 3, 2))],
)
@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_regression(name, link, slope, shape, label_shape, scale):
    data, label = rng.randn(*shape), rng.rand(*label_shape)
    out = run(name, data, label, grad_scale=scale)
    np.testing.assert_allclose(out, link(data))
    (grad,) = gradients(name, data, label, head=rng.randn(*shape), grad_scale=scale)
    per_row = data[0].size if data.ndim > 1 else 1
    np.testing.assert_allclose(grad, slope(out - label.reshape(shape)) * scale / per_row)


def test_absolute_error_at_the_label():
    (grad,) = gradients("MAERegressionOutput", np.zeros(2), np.zeros(2))
    np.testing.assert_array_equal(grad, [-1, -1])


@pytest.mark.parametrize(
    ("data", "label"), [((4, 3), (4, 3)), ((4, 1), (4,)), ((4,), (4,)), ((2, 3, 1), (2, 3, 1))]
)
def test_regression_label_from_data(data, label):
    assert shapes("LinearRegressionOutput", data, None) == ([data, label], [data])


def test_regression_label_given():
    assert shapes("LinearRegressionOutput", (4, 1), (4, 1))[0] == [(4, 1), (4, 1)]
    assert shapes("LinearRegressionOutput", (4,), (4, 1))[0] == [(4,), (4, 1)]
    assert shapes("LinearRegressionOutput", (0, 3), (4, 3))[0] == [(4, 3), (4, 3)]
    with pytest.raises(ShapeError):
        shapes("LinearRegressionOutput", (4, 1), (2, 2))


@pytest.mark.parametrize("label", [(2, 3), (2, 1, 3), (2, 1, 3, 1)])
@pytest.mark.parametrize(
    "name", ["LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"]
)
def test_regression_labels_of_as_many_rows_and_elements(name, label):
    # MXNet takes them all
    assert shapes(name, (2, 3, 1), label) == ([(2, 3, 1), label], [(2, 3, 1)])
    data, labels = np.linspace(-1, 1, 6).reshape(2, 3, 1), np.arange(6.0)
    want = gradients(name, data, labels.reshape(2, 3, 1))[0]
    np.testing.assert_array_equal(gradients(name, data, labels.reshape(label))[0], want)


def test_regression_labels_of_other_rows_or_elements():
    for label in ((6,), (3, 2), (2,), (2, 4)):
        with pytest.raises(ShapeError):
            shapes("LinearRegressionOutput", (2, 3, 1), label)


@pytest.mark.parametrize(("normalization", "divisor"), [("null", 1), ("batch", 3), ("valid", 2)])
def test_make_loss(normalization, divisor):
    data = np.array([[0.05, 0.2], [-0.3, 0.4], [0.1, 0.0]])
    attrs = {"normalization": normalization, "valid_thresh": 0.1, "grad_scale": 3.0}
    np.testing.assert_array_equal(run("MakeLoss", data, **attrs), data)
    (grad,) = gradients("MakeLoss", data, head=data, **attrs)
    np.testing.assert_allclose(grad, np.full((3, 2), 3.0 / divisor))


@pytest.mark.parametrize(
    ("shape", "divisor"),
    [((6,), 1), ((4, 3), 4), ((5, 1), 5), ((2, 3, 4), 6), ((3, 1, 2), 3), ((2, 3, 4, 5), 24)],
)
def test_make_loss_divides_by_all_axes_but_the_last_as_mxnet_does(shape, divisor):
    (grad,) = gradients("MakeLoss", np.zeros(shape), normalization="batch", grad_scale=2.0)
    np.testing.assert_allclose(grad, np.full(shape, 2.0 / divisor))


def test_make_loss_without_a_valid_element():
    (grad,) = gradients("MakeLoss", np.zeros((2, 2)), normalization="valid", valid_thresh=1)
    np.testing.assert_array_equal(grad, np.ones((2, 2)))


def test_plain_make_loss():
    op = get("make_loss")
    assert op.output_names(op.parse({})) == ("loss",)
    (grad,) = gradients("make_loss", np.zeros((2, 2)), head=np.full((2, 2), 5.0))
    np.testing.assert_array_equal(grad, np.ones((2, 2)))


@pytest.mark.parametrize("linear", [True, False])
def test_svm(linear):
    data, label = rng.randn(5, 3), np.array([0.0, 2.0, 1.0, -1.0, 9.0])
    attrs = {"margin": 0.8, "regularization_coefficient": 0.7, "use_linear": linear}
    want = np.zeros_like(data)
    for row, c in np.ndindex(*data.shape):
        side = 1.0 if c == label[row] else -1.0
        missing = 0.8 - side * data[row, c]
        if missing > 0:
            want[row, c] = -0.7 * side * (1.0 if linear else 2 * missing)
    np.testing.assert_array_equal(run("SVMOutput", data, label, **attrs), data)
    (grad,) = gradients("SVMOutput", data, label, **attrs)
    np.testing.assert_allclose(grad, want)
    assert shapes("SVMOutput", (2, 4, 3), None)[0] == [(2, 4, 3), (2, 4)]


@pytest.mark.parametrize(
    "name", ["LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput", "SVMOutput"]
)
def test_cut_gradient_leaves_its_inputs_alone(name):
    """An executor calls the rule without autograd, on an output that may be the data itself."""
    op = get(name)
    a = op.parse({})
    data, label = torch.randn(4, 3), torch.zeros(4, 3) if name != "SVMOutput" else torch.zeros(4)
    before = data.clone()
    out = op.loss.forward(a, environment(), data, label)
    op.loss.grad(a, environment(), out, data, label)
    assert torch.equal(data, before)
    assert op.is_loss(a)


rng_of_kl_sparse = np.random.RandomState(4)


def bound(data, average, **attrs):
    symbol = mx.sym.IdentityAttachKLSparseReg(mx.sym.Variable("data"), name="reg", **attrs)
    executor = symbol.simple_bind(mx.cpu(), data=data.shape)
    executor.arg_dict["data"][:] = data
    executor.aux_dict["reg_moving_avg"][:] = average
    return executor


def test_backward_moves_the_average_and_adds_the_penalty():
    data, average, head = rng_of_kl_sparse.rand(4, 3), np.full(3, 0.4), rng_of_kl_sparse.randn(4, 3)
    executor = bound(data, average, sparseness_target=0.2, penalty=0.5, momentum=0.7)
    np.testing.assert_allclose(executor.forward(is_train=True)[0].asnumpy(), data, rtol=1e-6)
    np.testing.assert_allclose(executor.aux_dict["reg_moving_avg"].asnumpy(), average, rtol=1e-6)
    executor.backward(mx.nd.array(head))
    moved = 0.7 * average + 0.3 * data.mean(0)
    np.testing.assert_allclose(executor.aux_dict["reg_moving_avg"].asnumpy(), moved, rtol=1e-5)
    want = head + 0.5 * (-0.2 / moved + 0.8 / (1 - moved))
    np.testing.assert_allclose(executor.grad_dict["data"].asnumpy(), want, rtol=1e-4)


def test_prediction_leaves_the_average():
    executor = bound(rng_of_kl_sparse.rand(4, 3), np.full(3, 0.4))
    executor.forward(is_train=False)
    np.testing.assert_allclose(executor.aux_dict["reg_moving_avg"].asnumpy(), 0.4, rtol=1e-6)


def test_refusals():
    with pytest.raises(ShapeError, match="flatten"):
        shapes("IdentityAttachKLSparseReg", (2, 3, 4), None)
    with pytest.raises(mx.base.MXNetError, match="momentum"):
        mx.sym.IdentityAttachKLSparseReg(mx.sym.Variable("data"), momentum=1.5)


rng_of_ctc = np.random.RandomState(3)


def test_every_name():
    data, labels = mx.nd.array(rng_of_ctc.randn(4, 2, 3)), mx.nd.array([[1, 0], [2, 2]])
    want = mx.nd.CTCLoss(data, labels).asnumpy()
    for function in (mx.nd.ctc_loss, mx.nd.contrib.CTCLoss, mx.nd.contrib.ctc_loss):
        np.testing.assert_array_equal(function(data, labels).asnumpy(), want)


def test_what_follows_padding_does_not_count():
    data = rng_of_ctc.randn(6, 3, 4)
    labels = np.array([[1, 0, 3], [2, 1, 0], [3, 3, 3]], "f4")
    short = np.array([[1, 0, 0], [2, 1, 0], [3, 3, 3]], "f4")
    np.testing.assert_array_equal(run("CTCLoss", data, labels), run("CTCLoss", data, short))
    last = run("CTCLoss", np.roll(data, -1, 2), np.where(short > 0, short - 1, -1), blank_label="last")
    np.testing.assert_allclose(last, run("CTCLoss", data, short), rtol=1e-12)


def test_lengths():
    data, labels = rng_of_ctc.randn(6, 2, 4), np.array([[1, 2, 3], [2, 1, 0]], "f4")
    steps, counts = np.array([4, 6], "f4"), np.array([2, 1], "i4")
    both = run("CTCLoss", data, labels, steps, counts, use_data_lengths=True, use_label_lengths=True)
    first = run("CTCLoss", data[:4, :1], np.array([[1, 2]], "f4"))
    second = run("CTCLoss", data[:, 1:], np.array([[2]], "f4"))
    np.testing.assert_allclose(both, np.concatenate([first, second]), rtol=1e-12)
    (grad,) = gradients("CTCLoss", data, labels, steps, use_data_lengths=True)
    assert not grad[4:, 0].any()
    assert grad[4:, 1].all()


def test_labels_that_no_alignment_fits_cost_nothing():
    data, labels = rng_of_ctc.randn(3, 2, 4), np.array([[1, 1, 1], [1, 2, 0]], "f4")
    loss = run("CTCLoss", data, labels)
    (grad,) = gradients("CTCLoss", data, labels)
    assert loss[0] == 0 < loss[1]
    assert not grad[:, 0].any()


@pytest.mark.parametrize(("dtype", "tolerance"), [("f2", 1e-2), ("f4", 1e-5), ("f8", 1e-12)])
def test_types_of_data_and_labels(dtype, tolerance):
    data = rng_of_ctc.randn(4, 1, 3)
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
        ([[1, 3]], {}, "label has values from 1 to 3, expected 0 to 2"),
        ([[1, 2]], {"data_lengths": [5]}, "data_lengths has values from 5 to 5, expected 0 to 4"),
        ([[1, 2]], {"label_lengths": [3]}, "label_lengths has values from 3 to 3, expected 0 to 2"),
    ],
)
def test_refusals_of_ctc(labels, more, message):
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
    data, labels, steps = rng_of_ctc.randn(5, 1, 3), np.array([[1, 2]], "f4"), np.array([4], "f4")
    want = gradients("CTCLoss", data, labels, steps, use_data_lengths=True)[0]
    data[4] = np.nan
    np.testing.assert_array_equal(gradients("CTCLoss", data, labels, steps, use_data_lengths=True)[0], want)
    assert not want[4].any()
