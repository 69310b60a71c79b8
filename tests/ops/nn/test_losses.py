import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import ShapeError
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
