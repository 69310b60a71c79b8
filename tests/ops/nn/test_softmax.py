from itertools import product

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import native
from dpmodule.ops import get
from dpmodule.ops.nn.softmax import _is_small, row_softmax
from helpers.arrays import INF, NAN, randn
from helpers.op_case import environment, gradients, rules_test, slopes_test, types, values_test
from helpers.walk import walks

DATA = randn(2, 3, 4)


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
def test_no_type_keeps_that_of_the_data(name):
    assert getattr(mx.nd, name)(mx.nd.array(DATA, dtype="float16"), dtype=None).dtype == np.float16


HALF = DATA.astype("f2")
test_values = values_test(("softmax", (HALF,), {"dtype": "float32"}, lambda x: softmax(x.astype("f4"))))
test_gradient_in_instance_mode = slopes_test(("SoftmaxActivation", (DATA,), {"mode": "instance"}))


# with a loss


def loss_gradient(data, label, attrs):
    """Return the gradient as an executor asks for it, without autograd."""
    op = get("SoftmaxOutput")
    a, env = op.parse(attrs), environment()
    tensors = torch.from_numpy(data), torch.from_numpy(label)
    return op.loss.grad(a, env, op.loss.forward(a, env, *tensors), *tensors).numpy()


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
    ("softmax", [(2, 3, 4), None], {"axis": 1, "use_length": True}, [(2, 3, 4), (2, 4)], [(2, 3, 4)]),
    ("log_softmax", [(0, 3)], {}, [(5, 3)], [(5, 3)], [(5, 0)]),
    (OUTPUT, [(4, 3), None], {}, [(4, 3), (4,)], [(4, 3)]),
    (OUTPUT, [(2, 3, 4), None], {"preserve_shape": True}, [(2, 3, 4), (2, 3)], [(2, 3, 4)]),
    (OUTPUT, [WIDE, None], MULTI, [WIDE, (2, 20)], [WIDE]),
    (OUTPUT, [(4, 3), None], MULTI, [(4, 3), (4, 1)], [(4, 3)]),
    *[(OUTPUT, [WIDE, label], MULTI, [WIDE, label], None) for label in [(2, 20), (2, 4, 5), WIDE]],
    *[(OUTPUT, [(4, 3), label], MULTI, [(4, 3), label], None) for label in [(4,), (4, 3)]],
    ("softmax_cross_entropy", [(4, 3), None], {}, [(4, 3), (4,)], [(1,)]),
)
test_types = rules_test(
    ("softmax", ["float16"], {"dtype": "float64"}, ["float16"], ["float64"]),
    ("softmax", ["float16", None], {"use_length": True}, ["float16", None], ["float16"]),
    (OUTPUT, ["float64", None], {}, ["float64", "float64"], ["float64"]),
    (OUTPUT, [None, None], {}, ["float16", "float16"], ["float16"], ["float16"]),
    rule=types,
)
PROBED = [((4, 3), {}), ((4, 3, 2), {}), ((4, 3, 2), MULTI), ((4, 2, 3), {"preserve_shape": True})]


@walks(product(PROBED, [NAN, INF]))
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
    scores = torch.from_numpy(randn(133, 10)).float()
    assert _is_small(scores)
    whole = row_softmax(scores)
    np.testing.assert_allclose(whole, softmax(scores.double().numpy()), rtol=1e-5)
    assert torch.equal(row_softmax(scores[3:112]), whole[3:112])  # a row depends on no other
    assert torch.equal(row_softmax(scores[3:].view(2, 65, 10)), whole[3:].view(2, 65, 10))
    rows = [[1, INF, 2], [NAN, 1, 2], [1, 2, NAN], [-INF] * 3, [-INF, 0, 1], [-200, 0, 1]]
    rows = torch.tensor(rows * 40)
    np.testing.assert_allclose(row_softmax(rows), torch.softmax(rows, 1), rtol=1e-6)
    np.testing.assert_allclose(row_softmax(rows, True), torch.log_softmax(rows, 1), rtol=1e-6, atol=1e-7)
    others = [scores[:3], scores.t(), scores.double(), scores[:, :0], scores.to("meta")]
    others += [torch.zeros(80, 17), scores.clone().requires_grad_()]
    assert not any(map(_is_small, others))
    seen = []
    torch.vmap(lambda x: seen.append(_is_small(x)) or x)(torch.zeros(2, 80, 10))
    assert seen == [False]
    monkeypatch.setattr(native, "core", None)
    monkeypatch.setattr("dpmodule.ops.nn.linear._native", None)
    assert torch.equal(row_softmax(scores), torch.softmax(scores, 1))
