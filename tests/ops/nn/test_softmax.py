from itertools import product

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import native
from dpmodule.ops import get
from dpmodule.ops.nn.softmax import _is_small, row_softmax
from helpers.arrays import INF, NAN, randn
from helpers.op_case import OpCase, check_gradient, environment, gradients, rules_test, run, types
from helpers.walk import walks

DATA = randn(2, 3, 4)


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


FAMILY = {
    "softmax": softmax,
    "log_softmax": lambda x, a: np.log(softmax(x, a)),
    "softmin": lambda x, a: softmax(-x, a),
}


@walks(product(FAMILY, [-1, 0, 1], [None, 2.0]))
def test_family(name, axis, temperature):
    attrs = {"axis": axis, "temperature": temperature}
    want = FAMILY[name](DATA / (temperature or 1.0), axis)
    np.testing.assert_allclose(run(name, DATA, **attrs), want)
    check_gradient(OpCase(name, (DATA,), attrs), tol=1e-5)
    half = mx.nd.array(DATA, dtype="float16")
    assert getattr(mx.nd, name)(half, dtype=None, **attrs).dtype == np.float16


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_length(axis):
    shape = [n for i, n in enumerate(DATA.shape) if i != axis]
    length = np.random.RandomState(7).randint(0, DATA.shape[axis] + 2, shape)
    out = run("softmax", DATA, length, axis=axis, use_length=True)
    rows = np.moveaxis(DATA, axis, -1)
    want = np.zeros_like(rows)
    for at in np.ndindex(*length.shape):
        if n := length[at]:
            want[at][:n] = softmax(rows[at][:n])
    np.testing.assert_allclose(np.moveaxis(out, axis, -1), want)
    grad = gradients("softmax", DATA, length, head=randn(*DATA.shape, seed=1), axis=axis, use_length=True)[0]
    assert np.isfinite(grad).all()
    assert not np.moveaxis(grad, axis, -1)[want == 0].any()


def test_output_type():
    out = run("softmax", DATA.astype("float16"), dtype="float32")
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, softmax(DATA.astype("float16").astype("float32")), rtol=1e-6)
    assert run("log_softmax", DATA, dtype="float16").dtype == np.float16


@walks([("instance", -1), ("channel", 1)])
def test_activation_form(mode, axis):
    np.testing.assert_allclose(run("SoftmaxActivation", DATA, mode=mode), softmax(DATA, axis))
    check_gradient(OpCase("SoftmaxActivation", (DATA,), {"mode": mode}), tol=1e-5)


# with a loss


def expected(data, label, form, a):
    """Return output and gradient, row by row and label by label."""
    rows = {"multi": np.moveaxis(data, 1, -1), "preserve": data}.get(form, data.reshape(len(data), -1))
    p = softmax(rows).reshape(-1, rows.shape[-1])
    classes, labels = p.shape[1], label.reshape(-1).astype(int)
    smooth, scale = a["smooth_alpha"] if form != "multi" else 0.0, a["grad_scale"]
    target = np.full_like(p, smooth / (classes - 1))
    for row, k in enumerate(labels[: len(p)]):
        if 0 <= k < classes:
            target[row, k] = 1.0 - smooth
    grad = p - target
    if a["use_ignore"]:
        grad[labels[: len(p)] == int(a["ignore_label"])] = 0
    if a["normalization"] == "valid":
        scale /= max((labels != int(a["ignore_label"])).sum(), 1)
    elif form == "multi":
        scale /= labels.size / data.shape[0]
    if a["normalization"] == "batch":
        scale /= data.shape[0] if form == "multi" else labels.size
    grad *= scale * (p if a["out_grad"] else 1)
    return [
        np.moveaxis(x.reshape(rows.shape), -1, 1) if form == "multi" else x.reshape(data.shape)
        for x in (p, grad)
    ]


FORMS = {
    "rows": ({}, (5, 4), (5,)),
    "blocks": ({}, (3, 2, 4), (3, 2)),
    "multi": ({"multi_output": True}, (2, 4, 3, 2), (2, 3, 2)),
    "preserve": ({"preserve_shape": True}, (3, 2, 4), (3, 2)),
}
NAMES = ("grad_scale", "ignore_label", "use_ignore", "smooth_alpha", "out_grad", "normalization")
CHOICES = product(
    [1.0, 2.5], [-1.0, 1.0], [False, True], [0.0, 0.2], [False, True], ["null", "batch", "valid"]
)


def loss_gradient(data, label, attrs):
    """Return the gradient as an executor asks for it, without autograd."""
    op = get("SoftmaxOutput")
    a, env = op.parse(attrs), environment()
    tensors = torch.from_numpy(data), torch.from_numpy(label)
    return op.loss.grad(a, env, op.loss.forward(a, env, *tensors), *tensors).numpy()


@walks(product(FORMS, CHOICES), family=lambda form, choice: form)
def test_every_combination(form, choice):
    fixed, shape, label_shape = FORMS[form]
    data, attrs = randn(*shape), dict(zip(NAMES, choice, strict=True))
    label = np.random.RandomState(8).randint(-1, 5, label_shape).astype(float)
    out, grad = expected(data, label, form, attrs)
    attrs.update(fixed)
    np.testing.assert_allclose(run("SoftmaxOutput", data, label, **attrs), out)
    found = gradients("SoftmaxOutput", data, label, head=randn(*shape, seed=1), **attrs)[
        0
    ]  # the head has no say
    np.testing.assert_allclose(found, grad, atol=1e-14)
    np.testing.assert_allclose(loss_gradient(data, label, attrs), grad, atol=1e-14)


def test_labels_that_are_probabilities():
    data, label = randn(4, 3), softmax(randn(4, 3, seed=1))
    attrs = {"grad_scale": 2.0, "normalization": "batch", "smooth_alpha": 0.1, "use_ignore": True}
    np.testing.assert_allclose(
        gradients("SoftmaxOutput", data, label, **attrs)[0], 2.0 * (softmax(data) - label)
    )


@walks(product([[0.0, 5.0, -1.0, 2.0], [0.9, 1.1, 0.0, 2.999]], ["float64", "float32"]))
def test_odd_labels(label, dtype):
    """A number that is no class takes nothing away; fractions are cut off."""
    data = randn(4, 3)
    want = softmax(data) - (np.array(label)[:, None].astype(int) == np.arange(3))
    grad = gradients("SoftmaxOutput", data.astype(dtype), np.array(label, dtype))[0]
    np.testing.assert_allclose(grad, want, rtol=1e-5, atol=1e-6)


def test_smoothing_of_one_class():
    # 1.9.1: simple_bind of SoftmaxOutput(smooth_alpha=0.1) for data (3, 1)
    found = loss_gradient(np.ones((3, 1)), np.zeros(3), {"smooth_alpha": 0.1})
    np.testing.assert_allclose(found, np.full((3, 1), 0.1))


OUTPUT, MULTI, WIDE = "SoftmaxOutput", {"multi_output": True}, (2, 3, 4, 5)
test_shapes = rules_test(
    [
        ("softmax", [(2, 3, 4), None], {"axis": 1, "use_length": True}, [(2, 3, 4), (2, 4)], [(2, 3, 4)]),
        ("log_softmax", [(0, 3)], {}, [(5, 3)], [(5, 3)], [(5, 0)]),
        (OUTPUT, [(4, 3), None], {}, [(4, 3), (4,)], [(4, 3)]),
        (OUTPUT, [(2, 3, 4), None], {}, [(2, 3, 4), (2, 3)], [(2, 3, 4)]),
        (OUTPUT, [(2, 3, 4), None], {"preserve_shape": True}, [(2, 3, 4), (2, 3)], [(2, 3, 4)]),
        (OUTPUT, [WIDE, None], MULTI, [WIDE, (2, 20)], [WIDE]),
        (OUTPUT, [(4, 3), None], MULTI, [(4, 3), (4, 1)], [(4, 3)]),
        *[
            (OUTPUT, [WIDE, label], MULTI, [WIDE, label], None)
            for label in [(2, 20), (2, 4, 5), (2, 1, 4, 5), WIDE]
        ],
        *[(OUTPUT, [(4, 3), label], MULTI, [(4, 3), label], None) for label in [(4,), (4, 1), (4, 3)]],
        ("softmax_cross_entropy", [(4, 3), None], {}, [(4, 3), (4,)], [(1,)]),
    ]
)
test_types = rules_test(
    [
        ("softmax", ["float16"], {"dtype": "float64"}, ["float16"], ["float64"]),
        ("softmax", ["float16", None], {"use_length": True}, ["float16", None], ["float16"]),
        (OUTPUT, ["float64", None], {}, ["float64", "float64"], ["float64"]),
        (OUTPUT, [None, None], {}, ["float16", "float16"], ["float16"], ["float16"]),
    ],
    types,
)


def test_cross_entropy():
    data, label = np.array([[1.0, 2.0, 3.0], [200.0, 0.0, 0.0], [1.0, 1.0, 0.0]]), np.array([0.0, 1.0, 7.0])
    p = softmax(data)
    np.testing.assert_allclose(
        run("softmax_cross_entropy", data, label), [-np.log(p[0, 0]) - 2 * np.log(1e-8)]
    )
    grad = gradients("softmax_cross_entropy", data, label, head=[2.0])[0]
    np.testing.assert_allclose(grad, 2 * (p - [[1, 0, 0], [0, 1, 0], [0, 0, 0]]), atol=1e-12)


@walks(
    product(
        [((4, 3), {}), ((4, 3, 2), {}), ((4, 3, 2), MULTI), ((4, 2, 3), {"preserve_shape": True})], [NAN, INF]
    )
)
def test_the_probe_is_finite_only_if_the_output_is(given, bad):
    (shape, attrs), record = given, get("SoftmaxOutput")
    a = record.parse(attrs)
    for position, value in product(range(int(np.prod(shape))), (0.5, bad)):
        data = torch.randn(shape)
        data.view(-1)[position] = value
        out = record.loss.forward(a, environment(False), data, torch.zeros(shape[0]))
        probe = record.loss.probe(a, out)
        assert probe.numel() < out.numel()
        assert bool(torch.isfinite(probe).all()) == bool(torch.isfinite(out).all()) == (value == 0.5)


# short rows by the native extension; more: native/test_kernels.py


class Wide:
    """The extension on a processor for which all rows of the kernel's are short."""

    vector_width = 17
    softmax = staticmethod(getattr(native.core, "softmax", None))


def test_short_rows_are_by_the_extension(monkeypatch):
    if Wide.softmax is None:
        pytest.skip("there is no extension, or its compiler has no vector types")
    monkeypatch.setattr("dpmodule.ops.nn.linear._native", Wide)
    scores = torch.from_numpy(randn(33, 10)).float()
    assert _is_small(scores)
    whole = row_softmax(scores)
    np.testing.assert_allclose(whole, softmax(scores.double().numpy()), rtol=1e-5)
    for first in (0, 3, 20):  # a row depends on no other
        assert torch.equal(row_softmax(scores[first : first + 9]), whole[first : first + 9])
    rows = torch.tensor([[1, INF, 2], [NAN, 1, 2], [1, 2, NAN], [-INF] * 3, [-INF, 0, 1], [-200, 0, 1]])
    np.testing.assert_allclose(row_softmax(rows), torch.softmax(rows, 1), rtol=1e-6)
    others = [
        scores[:3],
        scores[:10].t(),
        scores.double(),
        scores[:, :0],
        scores.to("meta"),
        torch.zeros(8, 17),
    ]
    assert not any(map(_is_small, [*others, scores[:8].view(2, 4, 10), scores.clone().requires_grad_()]))
    seen = []
    torch.vmap(lambda x: seen.append(_is_small(x)) or x)(torch.zeros(2, 8, 10))
    assert seen == [False]
    monkeypatch.setattr(native, "core", None)
    monkeypatch.setattr("dpmodule.ops.nn.linear._native", None)
    assert torch.equal(row_softmax(scores), torch.softmax(scores, 1))
