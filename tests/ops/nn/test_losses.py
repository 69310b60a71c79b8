import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.ops import get
from helpers.arrays import f4, randn
from helpers.op_case import environment, gradients, gradients_test, rules_test, run

LINEAR = "LinearRegressionOutput"
REGRESSIONS = [LINEAR, "LogisticRegressionOutput", "MAERegressionOutput"]
FITTING = [  # shapes of data and label; MXNet takes labels of as many rows and elements
    *[((4, 3), (4, 3)), ((4, 1), (4,)), ((4,), (4,)), ((4,), (4, 1))],
    *[((2, 3, 1), label) for label in [(2, 3, 1), (2, 3), (2, 1, 3), (2, 1, 3, 1)]],
]
test_shapes = rules_test(
    *[(LINEAR, [data, None], {}, [data, label], [data]) for data, label in [((4, 3), (4, 3)), ((4, 1), (4,))]],
    *[(LINEAR, [data, label], {}, [data, label], [data]) for data, label in [*FITTING, ((4, 1), (4, 1))]],
    (LINEAR, [(0, 3), (4, 3)], {}, [(4, 3), (4, 3)], None),
    ("SVMOutput", [(2, 4, 3), None], {}, [(2, 4, 3), (2, 4)], None),
    ("CTCLoss", [(5, 0, 3), (4, 2)], {}, [(5, 4, 3), (4, 2)], [(4,)]),
    ("CTCLoss", [(5, 4, 3), (4, 2), None, None], {"use_data_lengths": True, "use_label_lengths": True},
     [(5, 4, 3), (4, 2), (4,), (4,)], [(4,)]),
)  # fmt: skip
ZEROS = np.zeros((2, 2))
test_gradients = gradients_test(
    ("MAERegressionOutput", (np.zeros(2), np.zeros(2)), {}, [[-1, -1]]),
    # a label of another shape; the gradient is divided by the outputs of a row
    (LINEAR, (randn(2, 3, 1), np.zeros((2, 3))), {"grad_scale": 0.5}, [randn(2, 3, 1) * 0.5 / 3]),
    *[  # MXNet divides by all axes but the last
        ("MakeLoss", (np.zeros(shape),), {"normalization": "batch"}, [np.full(shape, 1 / divisor)])
        for shape, divisor in [((6,), 1), ((4, 3), 4), ((2, 3, 4), 6), ((3, 1, 2), 3)]
    ],
    ("MakeLoss", (ZEROS,), {"normalization": "valid", "valid_thresh": 1}, [ZEROS + 1]),
)


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


@pytest.mark.parametrize(
    ("name", "shapes", "attrs"),
    [
        ("MakeLoss", [(0, 3)], {"normalization": "batch"}),
        ("SoftmaxOutput", [(0, 3), (0,)], {"normalization": "batch"}),
        ("SoftmaxOutput", [(2, 3, 0), (2, 0)], {"multi_output": True}),
        ("SoftmaxOutput", [(0, 3, 2), (0, 2)], {"multi_output": True, "normalization": "batch"}),
    ],
)
def test_gradients_of_no_rows(name, shapes, attrs):
    op = get(name)
    a, tensors = op.parse(attrs), [torch.zeros(shape) for shape in shapes]
    out = op.loss.forward(a, environment(), *tensors)
    assert op.loss.grad(a, environment(), out, *tensors).shape == shapes[0]


# CTC


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
    only = mx.nd.ctc_loss(*map(mx.nd.array, (data, labels, [2, 1])), use_label_lengths=True)
    np.testing.assert_allclose(only.asnumpy(), run("CTCLoss", data, f4([[1, 2, 0], [2, 0, 0]])), rtol=1e-5)
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
