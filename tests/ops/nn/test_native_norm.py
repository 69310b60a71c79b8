"""Normalisation by the native extension: the formula in float64, any number of threads, and what it does not take."""

import numpy as np
import pytest
import torch

from dpmodule import native
from dpmodule.ops.nn.batchnorm import Rectifier, is_native, native_norm

pytestmark = pytest.mark.skipif(
    not hasattr(native.core, "norm_forward"),
    reason="there is no extension, or its compiler has no vector types",
)

# around the channels and rows that are computed at once, and more than one chunk of rows
SHAPES = [
    (2, 4, 3, 1),
    (3, 12, 5, 7),
    (2, 16, 9, 17),
    (5, 28, 3, 3),
    (5, 64, 7, 11),
    (2, 132, 5, 5),
    (40, 16, 32, 32),
]
EPS, MOMENTUM = 1e-5, 0.9
ENDS = [Rectifier(), Rectifier(relu=True)]


def numbers(shape, offset=0.0):
    draw = np.random.RandomState(sum(shape))
    x, other, grad = (draw.standard_normal(shape) for _ in range(3))
    gamma, beta, mean = (draw.uniform(-1, 1, shape[1]) for _ in range(3))
    return [x + offset, other, gamma + 1.5, beta, mean, draw.uniform(0.5, 2, shape[1]), grad]


def tensors(values):
    found = [torch.from_numpy(value.astype(np.float32)) for value in values]
    return [t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t for t in found]


def formula(x, other, gamma, beta, mean, var, grad, end):
    """Return result, new statistics, and gradients of data, summand, gamma and beta, by their definitions."""
    axes, wide = (0, 2, 3), (1, -1, 1, 1)
    batch_mean, batch_var = x.mean(axes), x.var(axes)
    scale = 1 / np.sqrt(batch_var + EPS)
    normal = (x - batch_mean.reshape(wide)) * scale.reshape(wide)
    out = normal * gamma.reshape(wide) + beta.reshape(wide)
    out = out if other is None else out + other
    if end.relu:
        grad, out = np.where(out > 0, grad, 0), np.maximum(out, 0)
    for_beta, for_gamma = grad.sum(axes), (grad * normal).sum(axes)
    count = x.size / x.shape[1]
    rest = grad - (for_beta.reshape(wide) + normal * for_gamma.reshape(wide)) / count
    for_x = rest * (gamma * scale).reshape(wide)
    states = [MOMENTUM * old + (1 - MOMENTUM) * new for old, new in ((mean, batch_mean), (var, batch_var))]
    return [out, *states, for_x, grad, for_gamma, for_beta]


def run(x, other, gamma, beta, mean, var, grad, end):
    leaves = [each.requires_grad_() for each in (x, other, gamma, beta) if each is not None]
    assert is_native(x, other, (gamma, beta, mean, var))
    out, *states = native_norm(x, other, (gamma, beta, mean, var), EPS, MOMENTUM, end)
    grads = list(torch.autograd.grad(out, leaves, grad))
    if other is None:
        grads.insert(1, None)
    return [None if t is None else t.detach() for t in (out, *states, *grads)]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("summed", [False, True])
def test_results_and_gradients(shape, end, summed):
    given = tensors(numbers(shape))
    if not summed:
        given[1] = None
    exact = [None if t is None else t.double().numpy() for t in given]
    wanted = formula(*exact, end)
    for name, got, want in zip(
        ("out", "mean", "var", "x", "other", "gamma", "beta"), run(*given, end), wanted
    ):
        if got is None:
            continue
        np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=3e-6 * np.abs(want).max(), err_msg=name)


def test_numbers_far_from_zero_stay_exact_and_more_so_than_in_torch():
    shape = (16, 16, 24, 24)
    given = tensors(numbers(shape, offset=300.0))
    wanted = formula(*(t.double().numpy() for t in given), Rectifier())[0]
    x, other, gamma, beta, mean, var, _ = given
    got = native_norm(x, other, (gamma, beta, mean, var), EPS, MOMENTUM, Rectifier())[0]
    theirs = torch.native_batch_norm(x, gamma, beta, mean.clone(), var.clone(), True, 0.1, EPS)[0] + other
    ours = np.abs(got.numpy() - wanted).max()
    assert ours <= min(3e-4, np.abs(theirs.numpy() - wanted).max())


@pytest.mark.parametrize("end", ENDS)
def test_any_number_of_threads_gives_the_same_bits(end):
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(run(*tensors(numbers((40, 16, 32, 32))), end))
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        assert all(map(torch.equal, found[0], others))


@pytest.mark.parametrize("stays", [False, True])
def test_gradient_of_relu_at_nan(stays):
    x, other, gamma, beta, mean, var, grad = tensors(numbers((3, 4, 5, 5)))
    other[1, 2, 3, 4] = float("nan")
    end = Rectifier(relu=True, nan_stays=stays)
    found = run(x, other, gamma, beta, mean, var, grad, end)
    assert found[0][1, 2, 3, 4].isnan()
    assert int(found[0].isnan().sum()) == 1
    for_other = found[4]
    assert bool(for_other[1, 2, 3, 4].isnan()) is stays
    if not stays:
        assert for_other[1, 2, 3, 4] == grad[1, 2, 3, 4]


def test_only_the_gradients_that_are_wanted():
    x, other, gamma, beta, mean, var, grad = tensors(numbers((3, 8, 5, 5)))
    whole = run(x, other, gamma, beta, mean, var, grad, ENDS[1])
    x, other, gamma, beta = (t.detach() for t in (x, other, gamma, beta))
    for place, each in enumerate((x, other, gamma, beta)):
        each.requires_grad_()
        out = native_norm(x, other, (gamma, beta, mean, var), EPS, MOMENTUM, ENDS[1])[0]
        assert torch.equal(torch.autograd.grad(out, each, grad)[0], whole[3 + place])
        each.requires_grad_(False)


def test_what_it_does_not_take():
    def taken(change=lambda given: given):
        x, other, *vectors, _ = change(tensors(numbers((2, 8, 3, 3))))
        return is_native(x, other, vectors)

    def with_data(function):
        return lambda given: [function(given[0]), function(given[1]), *given[2:]]

    assert taken()
    assert not taken(with_data(torch.Tensor.double))
    assert not taken(with_data(torch.Tensor.contiguous))
    assert not taken(with_data(lambda t: t[:0]))
    assert not taken(with_data(lambda t: t[:1, :, :1, :1]))
    assert not taken(with_data(lambda t: t[:, 0]))
    assert not taken(lambda given: [given[0], given[1][:1], *given[2:]])
    assert not taken(lambda given: [*given[:2], *(t.double() for t in given[2:6]), given[6]])
    assert not taken(lambda given: [*given[:5], given[5].requires_grad_(), given[6]])
    assert not is_native(*tensors(numbers((2, 6, 3, 3)))[:2], tensors(numbers((2, 6, 3, 3)))[2:6])
