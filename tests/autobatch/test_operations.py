"""Every operation: values and gradients as DyNet computed them, finite differences, batched and not."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

import dpmodule.autobatch as dy
from helpers.autobatch_cases import BATCHED, CASES, NOT_ITS_OWN, total, values
from helpers.walk import walks

FOUND = np.load(os.path.join(os.path.dirname(__file__), "..", "data", "autobatch", "operations.npz"))
VARIANTS = sorted({key.rsplit("/", 1)[0] for key in FOUND})
ALL = {**CASES, **BATCHED}
# what DyNet 2.1 gets wrong (finite differences below agree with us): "value" or only "gradient"
DIFFERENT = {
    "average/mixed": "gradient",  # counts a broadcast operand's gradient once only
    "average_many/mixed": "gradient",
    "binary_log_loss/single": "gradient",  # of the second operand
    "poisson_loss/single": "gradient",  # has the wrong sign
    "silu_beta/single": "gradient",  # holds for beta = 1 only
    "silu_beta/batch": "gradient",
    "round_straight/single": "gradient",  # passes nothing through
    "round_straight/batch": "gradient",
    "floor_straight/single": "gradient",
    "floor_straight/batch": "gradient",
    "conv2d/batch": "value",  # these take the first element of the minibatch for all, or lose the others
    "conv2d_same/batch": "value",
    "conv2d_bias/batch": "value",
    "filter1d_narrow/batch": "value",
    "filter1d_narrow/mixed": "value",
    "fold_rows/batch": "value",
    "vanilla_lstm_gates/batch": "value",
}


@pytest.fixture(autouse=True)
def _fresh():
    yield
    dy.configure(autobatch=False, dtype="float32", engine="auto")


def operands(m, names, variant, dtype=np.float64, shift=None):
    single, batch = values(seed=1), values(3, seed=2)
    found = []
    for place, name in enumerate(names):
        if variant == "single" or (variant == "mixed" and place):
            array = single[name]
            if shift is not None and shift[0] == place:
                array = array.copy()
                array.flat[shift[1]] += shift[2]
            found.append(m.parameters_from_numpy(array.astype(dtype)))
        else:
            array = batch[name]
            if shift is not None and shift[0] == place:
                array = array.copy()
                array.flat[shift[1]] += shift[2]
            found.append(dy.inputTensor(array.astype(dtype), batched=True))
    return found


def loss_of(name, variant, shift=None, dtype=np.float64):
    names, function = ALL[name]
    m = dy.ParameterCollection()
    dy.renew_cg()
    given = operands(m, names, variant, dtype, shift)
    y = function(dy, *given)
    return given, y, total(dy, y, np.linspace(-1, 1, 11))


def gradient_of(x):
    return x.grad_as_array() if isinstance(x, dy.Parameters) else x.gradient()


@walks(VARIANTS)
def test_as_dynet(variant, setting):
    name, kind = variant.split("/")
    given, y, loss = loss_of(name, kind, dtype=np.float32)
    if DIFFERENT.get(variant) == "value":
        return
    np.testing.assert_allclose(y.npvalue(), FOUND[f"{variant}/0"], rtol=2e-5, atol=2e-5)
    loss.backward(full=True)
    if variant in DIFFERENT:
        return
    for place, x in enumerate(given):
        wanted = FOUND[f"{variant}/{place + 1}"]
        np.testing.assert_allclose(gradient_of(x), wanted, rtol=2e-4, atol=5e-5, err_msg=f"operand {place}")


def variants_of(name):
    if name in BATCHED:
        return ["batch"]
    return ["single", "batch", *(["mixed"] if len(CASES[name][0]) > 1 else [])]


@walks(
    [(n, v) for n in ALL if n not in NOT_ITS_OWN for v in variants_of(n)],
    family=lambda name, variant: variant,
)
def test_finite_differences(name, variant):
    dy.configure(dtype="float64", autobatch=True)
    given, _, loss = loss_of(name, variant)
    loss.backward(full=True)
    gradients = [gradient_of(x) for x in given]
    draw = np.random.RandomState(0)
    step = 1e-5
    for place, gradient in enumerate(gradients):
        for at in draw.choice(gradient.size, min(4, gradient.size), replace=False):
            ends = [loss_of(name, variant, (place, at, sign * step))[2].scalar_value() for sign in (1, -1)]
            slope = (ends[0] - ends[1]) / (2 * step)
            assert gradient.flat[at] == pytest.approx(slope, rel=2e-3, abs=1e-6), (
                f"operand {place}, element {at}"
            )


@walks(ALL)
def test_several_in_one_batch(name):
    """Three examples in one graph, with operands of their own, are what they are alone."""
    variant = "batch" if name in BATCHED else "single"
    dy.configure(dtype="float64", autobatch=True)
    names, function = ALL[name]
    alone, together = [], []
    draws = [values(3 if variant == "batch" else 0, seed=seed) for seed in (3, 4, 5)]
    weights = np.linspace(-1, 1, 11)
    for draw in draws:
        dy.renew_cg()
        xs = [dy.inputTensor(draw[n], batched=variant == "batch") for n in names]
        loss = total(dy, function(dy, *xs), weights)
        loss.backward(full=True)
        alone.append([loss.scalar_value(), *[x.gradient() for x in xs]])
    dy.renew_cg()
    rows = [[dy.inputTensor(draw[n], batched=variant == "batch") for n in names] for draw in draws]
    losses = [total(dy, function(dy, *xs), weights) for xs in rows]
    dy.esum(losses).backward(full=True)
    for xs, loss in zip(rows, losses):
        together.append([loss.scalar_value(), *[x.gradient() for x in xs]])
    for one, other in zip(alone, together):
        for left, right in zip(one, other):
            np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-12)


def made_often(name, engine):
    """Make an operation on operands that are one expression, on those of two draws, and on the first again."""
    dy.configure(autobatch=True, engine=engine)
    names, function = ALL[name]
    is_batched = name in BATCHED
    rows = []
    for seed in (3, 4, 3):
        draw = values(3 if is_batched else 0, seed=seed)
        rows.append([dy.inputTensor(draw[n].astype(np.float32), batched=is_batched) for n in names])
    by_shape = {}
    alike = [by_shape.setdefault(x.dim(), x) for x in rows[0]]
    weights = np.linspace(-1, 1, 11, dtype=np.float32)
    losses = [total(dy, function(dy, *xs), weights) for xs in (alike, *rows) for _ in range(2)]
    dy.esum(losses).backward(full=True)
    return [loss.value() for loss in losses], [x.gradient() for xs in rows for x in xs]


@walks(ALL)
def test_made_again(name):
    """The native engine remembers what an operation adds to the graph; the engine in Python looks at it each time."""
    expected, found = made_often(name, "python"), made_often(name, "auto")
    np.testing.assert_allclose(found[0], expected[0], rtol=2e-5, atol=2e-5)
    for left, right in zip(found[1], expected[1]):
        np.testing.assert_allclose(left, right, rtol=2e-4, atol=5e-5)


@pytest.mark.parametrize("engine", ["python", "auto"])
@pytest.mark.parametrize(
    ("size", "channels", "stride"), [((5, 7), 2, (1, 1)), ((9, 6), 3, (2, 3)), ((70, 66), 16, (1, 1))]
)
@pytest.mark.parametrize("is_valid", [True, False])
def test_convolutions_of_any_size(engine, size, channels, stride, is_valid):
    """Small ones are products of windows, the largest here is torch's own; both are checked by torch's autograd."""
    dy.configure(engine=engine, autobatch=True)
    draw = np.random.RandomState(0)
    m = dy.ParameterCollection()
    f = m.parameters_from_numpy(draw.randn(3, 4, channels, 5).astype(np.float32))
    b = m.parameters_from_numpy(draw.randn(5).astype(np.float32))
    images = [draw.randn(*size, channels).astype(np.float32) for _ in range(2)]
    dy.renew_cg()
    xs = [dy.inputTensor(each) for each in images]
    ys = [dy.conv2d_bias(x, f, b, stride, is_valid=is_valid) for x in xs]
    weights = draw.randn(*ys[0].dim()[0]).astype(np.float32)
    dy.esum([dy.dot_product(y, dy.inputTensor(weights)) for y in ys]).backward(full=True)

    x = torch.tensor(np.stack(images)).permute(0, 3, 1, 2).requires_grad_()
    kernel = f.tensor.clone().permute(3, 2, 0, 1).requires_grad_()
    bias = b.tensor.clone().requires_grad_()
    missing = (
        [0, 0]
        if is_valid
        else [max((-(-n // s) - 1) * s + k - n, 0) for n, s, k in zip(size, stride, (3, 4))]
    )
    up, left = (each // 2 for each in missing)
    padded = torch.nn.functional.pad(x, (left, missing[1] - left, up, missing[0] - up))
    y = torch.nn.functional.conv2d(padded, kernel, bias, stride)
    (y * torch.tensor(weights).permute(2, 0, 1)).sum().backward()
    for row, each in enumerate(ys):
        np.testing.assert_allclose(each.npvalue(), y[row].detach().permute(1, 2, 0), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(xs[row].gradient(), x.grad[row].permute(1, 2, 0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(f.grad_as_array(), kernel.grad.permute(2, 3, 1, 0), rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(b.grad_as_array(), bias.grad, rtol=1e-3, atol=1e-2)
