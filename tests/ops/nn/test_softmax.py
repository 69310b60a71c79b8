import itertools

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import OpError, ShapeError
from dpmodule.ops import get
from dpmodule.ops.spec import Env
from helpers.numeric import check_gradients, environment, gradients, run, shapes, types

rng = np.random.RandomState(7)
DATA = rng.randn(2, 3, 4)


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("temperature", [None, 2.0])
def test_family(axis, temperature):
    attrs = {"axis": axis, "temperature": temperature}
    x = DATA / (temperature or 1.0)
    np.testing.assert_allclose(run("softmax", DATA, **attrs), softmax(x, axis))
    np.testing.assert_allclose(run("log_softmax", DATA, **attrs), np.log(softmax(x, axis)))
    np.testing.assert_allclose(run("softmin", DATA, **attrs), softmax(-x, axis))
    for name in ("softmax", "log_softmax", "softmin"):
        check_gradients(name, DATA, **attrs)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_length(axis):
    length = rng.randint(0, DATA.shape[axis] + 2, [n for i, n in enumerate(DATA.shape) if i != axis])
    out = run("softmax", DATA, length, axis=axis, use_length=True)
    rows = np.moveaxis(DATA, axis, -1)
    want = np.zeros_like(rows)
    for at in np.ndindex(*length.shape):
        n = length[at]
        if n:
            want[at][:n] = softmax(rows[at][:n], -1)
    np.testing.assert_allclose(np.moveaxis(out, axis, -1), want)
    (grad,) = gradients("softmax", DATA, length, head=rng.randn(*DATA.shape), axis=axis, use_length=True)
    assert np.isfinite(grad).all()
    assert not np.moveaxis(grad, axis, -1)[want == 0].any()


def test_output_type():
    half = DATA.astype("float16")
    out = run("softmax", half, dtype="float32")
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, softmax(half.astype("float32"), -1), rtol=1e-6)
    assert run("log_softmax", DATA, dtype="float16").dtype == np.float16
    for name in ("softmax", "log_softmax", "softmin"):
        assert getattr(mx.nd, name)(mx.nd.array(half, dtype="float16"), dtype=None).dtype == np.float16
    assert types("softmax", "float16", dtype="float64") == (["float16"], ["float64"])
    assert types("softmax", "float16", None, use_length=True) == (["float16", None], ["float16"])


def test_shapes():
    assert shapes("softmax", (2, 3, 4), None, axis=1, use_length=True) == ([(2, 3, 4), (2, 4)], [(2, 3, 4)])
    assert shapes("log_softmax", (0, 3), outs=[(5, 0)]) == ([(5, 3)], [(5, 3)])


def test_only_softmax_takes_a_length():
    for name in ("log_softmax", "softmin"):
        with pytest.raises(OpError, match=f"{name} takes no length"):
            run(name, DATA, use_length=True)


def test_activation_form():
    np.testing.assert_allclose(run("SoftmaxActivation", DATA), softmax(DATA, -1))
    np.testing.assert_allclose(run("SoftmaxActivation", DATA, mode="channel"), softmax(DATA, 1))
    for mode in ("instance", "channel"):
        check_gradients("SoftmaxActivation", DATA, mode=mode)


rng_of_softmax_output = np.random.RandomState(8)


def softmax_of_softmax_output(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def expected(data, label, form, a):
    """Return output and gradient, row by row and label by label."""
    if form == "multi":
        rows = np.moveaxis(data, 1, -1)
    elif form == "preserve":
        rows = data
    else:
        rows = data.reshape(data.shape[0], -1)
    p = softmax_of_softmax_output(rows).reshape(-1, rows.shape[-1])
    classes = p.shape[1]
    grad = np.zeros_like(p)
    labels = label.reshape(-1).astype(int)
    for row, k in enumerate(labels[: len(p)]):
        smooth = a["smooth_alpha"] if form != "multi" else 0.0
        for c in range(classes):
            target = 1.0 - smooth if c == k else smooth / (classes - 1) if smooth else 0.0
            grad[row, c] = p[row, c] - target
        if a["use_ignore"] and k == int(a["ignore_label"]):
            grad[row] = 0.0
    scale = a["grad_scale"]
    if a["normalization"] == "valid":
        scale /= max((labels != int(a["ignore_label"])).sum(), 1)
    elif form == "multi":
        scale /= labels.size / data.shape[0]
    if a["normalization"] == "batch":
        scale /= data.shape[0] if form == "multi" else labels.size
    grad *= scale
    if a["out_grad"]:
        grad *= p
    back = (
        (lambda x: np.moveaxis(x.reshape(rows.shape), -1, 1))
        if form == "multi"
        else (lambda x: x.reshape(data.shape))
    )
    return back(p), back(grad)


FORMS = {
    "rows": ({}, (5, 4), (5,)),
    "blocks": ({}, (3, 2, 4), (3, 2)),
    "multi": ({"multi_output": True}, (2, 4, 3, 2), (2, 3, 2)),
    "preserve": ({"preserve_shape": True}, (3, 2, 4), (3, 2)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("normalization", ["null", "batch", "valid"])
def test_every_combination(form, normalization):
    fixed, shape, label_shape = FORMS[form]
    data = rng_of_softmax_output.randn(*shape)
    label = rng_of_softmax_output.randint(-1, 5, label_shape).astype(float)
    choices = itertools.product([1.0, 2.5], [-1.0, 1.0], [False, True], [0.0, 0.2], [False, True])
    for scale, ignored, use, smooth, out_grad in choices:
        attrs = {
            "grad_scale": scale,
            "ignore_label": ignored,
            "use_ignore": use,
            "smooth_alpha": smooth,
            "out_grad": out_grad,
            "normalization": normalization,
        }
        out, grad = expected(data, label, form, attrs)
        attrs.update(fixed)
        np.testing.assert_allclose(run("SoftmaxOutput", data, label, **attrs), out)
        # the head gradient has no say
        (found,) = gradients("SoftmaxOutput", data, label, head=rng_of_softmax_output.randn(*shape), **attrs)
        np.testing.assert_allclose(found, grad, atol=1e-14, err_msg=str(attrs))
        (cut,) = [loss_gradient(data, label, attrs)]
        np.testing.assert_allclose(cut, grad, atol=1e-14)


def loss_gradient(data, label, attrs):
    """Return the gradient as an executor asks for it, without autograd."""
    op = get("SoftmaxOutput")
    a, env = op.parse(attrs), environment()
    tensors = torch.from_numpy(data), torch.from_numpy(label)
    return op.loss.grad(a, env, op.loss.forward(a, env, *tensors), *tensors).numpy()


def test_labels_that_are_probabilities():
    data, label = (
        rng_of_softmax_output.randn(4, 3),
        softmax_of_softmax_output(rng_of_softmax_output.randn(4, 3)),
    )
    attrs = {"grad_scale": 2.0, "normalization": "batch", "smooth_alpha": 0.1, "use_ignore": True}
    (grad,) = gradients("SoftmaxOutput", data, label, **attrs)
    np.testing.assert_allclose(grad, 2.0 * (softmax_of_softmax_output(data) - label))


@pytest.mark.parametrize("label", [[0.0, 5.0, -1.0, 2.0], [0.9, 1.1, 0.0, 2.999]])
def test_odd_labels(label):
    """A number that is no class takes nothing away; fractions are cut off."""
    data = rng_of_softmax_output.randn(4, 3)
    want = softmax_of_softmax_output(data)
    for row, k in enumerate(label):
        if 0 <= k < 3:
            want[row, int(k)] -= 1
    for dtype in ("float64", "float32"):
        (grad,) = gradients("SoftmaxOutput", data.astype(dtype), np.array(label, dtype))
        np.testing.assert_allclose(grad, want, rtol=1e-5, atol=1e-6)


def test_the_output_is_left_alone():
    data, label = torch.randn(4, 3), torch.zeros(4)
    op = get("SoftmaxOutput")
    a = op.parse({"grad_scale": 3.0, "out_grad": True})
    out = op.loss.forward(a, environment(), data, label)
    before = out.clone()
    op.loss.grad(a, environment(), out, data, label)
    assert torch.equal(out, before)


@pytest.mark.parametrize(
    ("data", "attrs", "label"),
    [
        ((4, 3), {}, (4,)),
        ((2, 3, 4), {}, (2, 3)),
        ((2, 3, 4), {"preserve_shape": True}, (2, 3)),
        ((2, 3, 4, 5), {"multi_output": True}, (2, 20)),
        ((4, 3), {"multi_output": True}, (4, 1)),
    ],
)
def test_label_shape_from_data(data, attrs, label):
    assert shapes("SoftmaxOutput", data, None, **attrs) == ([data, label], [data])


@pytest.mark.parametrize("label", [(2, 20), (2, 4, 5), (2, 1, 4, 5), (2, 3, 4, 5)])
def test_label_shapes_of_multi_output(label):
    assert shapes("SoftmaxOutput", (2, 3, 4, 5), label, multi_output=True)[0] == [(2, 3, 4, 5), label]


@pytest.mark.parametrize("label", [(4,), (4, 1), (4, 3)])
def test_label_shapes_of_multi_output_without_further_axes(label):
    assert shapes("SoftmaxOutput", (4, 3), label, multi_output=True)[0] == [(4, 3), label]


def test_smoothing_of_one_class():
    # 1.9.1: simple_bind of SoftmaxOutput(smooth_alpha=0.1) for data (3, 1)
    np.testing.assert_allclose(
        loss_gradient(np.ones((3, 1)), np.zeros(3), {"smooth_alpha": 0.1}), np.full((3, 1), 0.1)
    )


def test_wrong_label_shape():
    with pytest.raises(ShapeError, match=r"label has shape \(5,\), expected \(4,\) from data \(4, 3\)"):
        shapes("SoftmaxOutput", (4, 3), (5,))
    with pytest.raises(ShapeError, match="at least 2 axes with multi_output"):
        shapes("SoftmaxOutput", (4,), None, multi_output=True)


def test_types_are_one():
    assert types("SoftmaxOutput", "float64", None) == (["float64", "float64"], ["float64"])
    assert types("SoftmaxOutput", None, None, outs=["float16"]) == (["float16", "float16"], ["float16"])


def test_cross_entropy():
    data = np.array([[1.0, 2.0, 3.0], [200.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    label = np.array([0.0, 1.0, 7.0])
    p = softmax_of_softmax_output(data)
    want = -np.log(p[0, 0]) - 2 * np.log(1e-8)
    out = run("softmax_cross_entropy", data, label)
    np.testing.assert_allclose(out, [want])
    (grad,) = gradients("softmax_cross_entropy", data, label, head=np.array([2.0]))
    p[0, 0] -= 1
    p[1, 1] -= 1
    np.testing.assert_allclose(grad, 2 * p, atol=1e-12)
    assert shapes("softmax_cross_entropy", (4, 3), None) == ([(4, 3), (4,)], [(1,)])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("shape", "attrs"),
    [
        ((4, 3), {}),
        ((4, 3, 2), {}),
        ((4, 3, 2), {"multi_output": True}),
        ((4, 2, 3), {"preserve_shape": True}),
    ],
)
def test_the_probe_is_finite_only_if_the_output_is(shape, attrs, bad):
    record = get("SoftmaxOutput")
    a = record.parse(attrs)
    env = Env(torch.device("cpu"), None, False)
    for position in range(int(np.prod(shape))):
        for value in (0.5, bad):
            data = torch.randn(shape)
            data.view(-1)[position] = value
            out = record.loss.forward(a, env, data, torch.zeros(shape[0]))
            probe = record.loss.probe(a, out)
            assert probe.numel() < out.numel()
            assert bool(torch.isfinite(probe).all()) == bool(torch.isfinite(out).all()) == (value == 0.5)
