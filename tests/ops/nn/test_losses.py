from itertools import product

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.ops import get
from helpers.arrays import f4, randn
from helpers.op_case import environment, gradients, gradients_test, rules_test, run
from helpers.walk import walks

REGRESSIONS = {
    "LinearRegressionOutput": (lambda x: x, lambda d: d),
    "LogisticRegressionOutput": (lambda x: 1 / (1 + np.exp(-x)), lambda d: d),
    "MAERegressionOutput": (lambda x: x, lambda d: np.where(d > 0, 1.0, -1.0)),
}
LINEAR = "LinearRegressionOutput"
FITTING = [  # shapes of data and label; MXNet takes labels of as many rows and elements
    *[((4, 3), (4, 3)), ((4, 1), (4,)), ((4,), (4,)), ((4,), (4, 1))],
    *[((2, 3, 1), label) for label in [(2, 3, 1), (2, 3), (2, 1, 3), (2, 1, 3, 1)]],
]


@walks(product(REGRESSIONS, FITTING, [1.0, 0.3]))
def test_regression(name, sizes, scale):
    (link, slope), shape = REGRESSIONS[name], sizes[0]
    data, label = randn(*shape), np.random.RandomState(0).rand(*sizes[1])
    out = run(name, data, label, grad_scale=scale)
    np.testing.assert_allclose(out, link(data))
    grad = gradients(name, data, label, head=randn(*shape, seed=3), grad_scale=scale)[0]
    per_row = data[0].size if data.ndim > 1 else 1
    np.testing.assert_allclose(grad, slope(out - label.reshape(shape)) * scale / per_row)


test_shapes = rules_test(
    [
        *[
            (LINEAR, [data, None], {}, [data, label], [data])
            for data, label in [((4, 3), (4, 3)), ((4, 1), (4,)), ((4,), (4,)), ((2, 3, 1), (2, 3, 1))]
        ],
        *[(LINEAR, [data, label], {}, [data, label], [data]) for data, label in [*FITTING, ((4, 1), (4, 1))]],
        (LINEAR, [(0, 3), (4, 3)], {}, [(4, 3), (4, 3)], None),
        ("SVMOutput", [(2, 4, 3), None], {}, [(2, 4, 3), (2, 4)], None),
        ("CTCLoss", [(5, 0, 3), (4, 2)], {}, [(5, 4, 3), (4, 2)], [(4,)]),
        ("CTCLoss", [(5, 4, 3), (4, 2), None, None], {"use_data_lengths": True, "use_label_lengths": True},
         [(5, 4, 3), (4, 2), (4,), (4,)], [(4,)]),
    ]
)  # fmt: skip
LOSS = f4([[0.05, 0.2], [-0.3, 0.4], [0.1, 0.0]])
ZEROS = np.zeros((2, 2))
MAKE = {"valid_thresh": 0.1, "grad_scale": 3.0}
SHAPES = [((6,), 1), ((4, 3), 4), ((5, 1), 5), ((2, 3, 4), 6), ((3, 1, 2), 3), ((2, 3, 4, 5), 24)]
test_gradients = gradients_test(
    [
        ("MAERegressionOutput", (np.zeros(2), np.zeros(2)), {}, [[-1, -1]]),
        *[
            ("MakeLoss", (LOSS,), {**MAKE, "normalization": kind}, [0 * LOSS + 3 / divisor])
            for kind, divisor in [("null", 1), ("batch", 3), ("valid", 2)]
        ],
        *[  # MXNet divides by all axes but the last
            (
                "MakeLoss",
                (np.zeros(shape),),
                {**MAKE, "normalization": "batch"},
                [np.full(shape, 3 / divisor)],
            )
            for shape, divisor in SHAPES
        ],
        ("MakeLoss", (ZEROS,), {"normalization": "valid", "valid_thresh": 1}, [ZEROS + 1]),
    ]
)


def test_heads_of_losses_do_not_count():
    for name in ("MakeLoss", "make_loss"):
        assert gradients(name, ZEROS, head=ZEROS + 5)[0].tolist() == [[1, 1], [1, 1]]
    op = get("make_loss")
    assert op.output_names(op.parse({})) == ("loss",)


@pytest.mark.parametrize("linear", [True, False])
def test_svm(linear):
    data, label = randn(5, 3), np.array([0.0, 2.0, 1.0, -1.0, 9.0])
    attrs = {"margin": 0.8, "regularization_coefficient": 0.7, "use_linear": linear}
    side = np.where(np.arange(3) == label[:, None], 1.0, -1.0)
    missing = np.maximum(0.8 - side * data, 0)
    np.testing.assert_array_equal(run("SVMOutput", data, label, **attrs), data)
    want = -0.7 * side * ((missing > 0) if linear else 2 * missing)
    np.testing.assert_allclose(gradients("SVMOutput", data, label, **attrs)[0], want)


@pytest.mark.parametrize("name", [*REGRESSIONS, "SVMOutput", "SoftmaxOutput"])
def test_losses_leave_their_inputs_alone(name):
    """An executor calls the rule without autograd, on an output that may be the data itself."""
    op = get(name)
    a = op.parse({"grad_scale": 3.0, "out_grad": True} if name == "SoftmaxOutput" else {})
    data, label = torch.randn(4, 3), torch.zeros(4, 3) if name in REGRESSIONS else torch.zeros(4)
    out = op.loss.forward(a, environment(), data, label)
    before = data.clone(), out.clone()
    op.loss.grad(a, environment(), out, data, label)
    assert all(map(torch.equal, (data, out), before))
    assert op.is_loss(a)


def test_penalty_of_kl_sparse():
    data, head = np.random.RandomState(4).rand(4, 3), randn(4, 3)
    attrs = {"sparseness_target": 0.2, "penalty": 0.5, "momentum": 0.7}
    symbol = mx.sym.IdentityAttachKLSparseReg(mx.sym.Variable("data"), name="reg", **attrs)
    executor = symbol.simple_bind(mx.cpu(), data=data.shape)
    average = executor.aux_dict["reg_moving_avg"]
    average[:] = 0.4
    for train in (False, True):
        found = executor.forward(is_train=train, data=mx.nd.array(data))[0]
        np.testing.assert_allclose(found.asnumpy(), data, rtol=1e-6)
        np.testing.assert_allclose(average.asnumpy(), 0.4, rtol=1e-6)
    executor.backward(mx.nd.array(head))  # moves the average and adds the penalty
    moved = 0.7 * 0.4 + 0.3 * data.mean(0)
    np.testing.assert_allclose(average.asnumpy(), moved, rtol=1e-5)
    want = head + 0.5 * (-0.2 / moved + 0.8 / (1 - moved))
    np.testing.assert_allclose(executor.grad_dict["data"].asnumpy(), want, rtol=1e-4)


# CTC; values: cases/nn.py


def test_every_name_of_ctc():
    data, labels = mx.nd.array(randn(4, 2, 3)), mx.nd.array([[1, 0], [2, 2]])
    want = mx.nd.CTCLoss(data, labels).asnumpy()
    for function in (mx.nd.ctc_loss, mx.nd.contrib.CTCLoss, mx.nd.contrib.ctc_loss):
        np.testing.assert_array_equal(function(data, labels).asnumpy(), want)


def test_what_follows_padding_does_not_count():
    data, short = randn(6, 3, 4), f4([[1, 0, 0], [2, 1, 0], [3, 3, 3]])
    want = run("CTCLoss", data, short)
    np.testing.assert_array_equal(run("CTCLoss", data, f4([[1, 0, 3], [2, 1, 0], [3, 3, 3]])), want)
    last = run("CTCLoss", np.roll(data, -1, 2), np.where(short > 0, short - 1, -1), blank_label="last")
    np.testing.assert_allclose(last, want, rtol=1e-12)


def test_lengths_of_ctc():
    data, labels, steps = randn(6, 2, 4), f4([[1, 2, 3], [2, 1, 0]]), f4([4, 6])
    both = run("CTCLoss", data, labels, steps, f4([2, 1]), use_data_lengths=True, use_label_lengths=True)
    first, second = run("CTCLoss", data[:4, :1], f4([[1, 2]])), run("CTCLoss", data[:, 1:], f4([[2]]))
    np.testing.assert_allclose(both, np.concatenate([first, second]), rtol=1e-12)
    data[4:, 0] = np.nan  # steps beyond the length may hold anything
    grad = gradients("CTCLoss", data, labels, steps, use_data_lengths=True)[0]
    assert np.isfinite(grad).all()
    assert not grad[4:, 0].any()
    assert grad[4:, 1].all()


def test_labels_that_no_alignment_fits_cost_nothing():
    data, labels = randn(3, 2, 4), f4([[1, 1, 1], [1, 2, 0]])
    loss, grad = run("CTCLoss", data, labels), gradients("CTCLoss", data, labels)[0]
    assert loss[0] == 0 < loss[1]
    assert not grad[:, 0].any()


@walks(product([("f2", 1e-2), ("f4", 1e-5), ("f8", 1e-12)], ("i4", "u1", "f4")))
def test_types_of_data_and_labels_of_ctc(dtype, kind):
    want = run("CTCLoss", randn(4, 1, 3), np.array([[1, 2]], "f8"))
    found = run("CTCLoss", randn(4, 1, 3).astype(dtype[0]), np.array([[1, 2]], kind))
    assert found.dtype == dtype[0]
    np.testing.assert_allclose(found, want, rtol=dtype[1])


def test_ctc_trains():
    symbol = mx.sym.MakeLoss(mx.sym.CTCLoss(mx.sym.Variable("data"), mx.sym.Variable("label")))
    reqs = {"data": "write", "label": "null"}
    bound = symbol.simple_bind(mx.cpu(), data=(5, 1, 3), label=(1, 2), grad_req=reqs)
    bound.arg_dict["label"][:] = [[1, 2]]
    losses = []
    for _ in range(30):
        losses.append(float(bound.forward(is_train=True)[0].asnumpy()[0]))
        bound.backward()
        bound.arg_dict["data"][:] -= bound.grad_dict["data"]
    assert losses[-1] < 0.2 < losses[0]
