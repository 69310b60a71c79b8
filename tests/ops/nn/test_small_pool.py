"""Max pooling by the native extension against torch's."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule import native
from dpmodule.ops.nn import pool
from dpmodule.ops.nn.pool import native_max_pool, use_native_max_pool

pytestmark = pytest.mark.skipif(
    not hasattr(native.core, "max_pool"), reason="there is no kernel for this compiler"
)


def images(shape, odd=()):
    """Return numbers of both signs, some of them the odd ones given."""
    found = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
    for place, value in enumerate(odd):
        found.view(-1)[place * 7 % found.numel()] = value
    return found


def same(data, *window):
    kernel, stride, pad, full = window
    found, expected = native_max_pool(data, *window), torch.max_pool2d(data, kernel, stride, pad, 1, full)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert found.is_contiguous(memory_format=torch.channels_last)


PAIR = st.tuples(st.integers(1, 4), st.integers(1, 4))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 9), st.integers(1, 9)),
    *(PAIR, PAIR, st.tuples(st.integers(0, 2), st.integers(0, 2))),
    st.booleans(),
    st.lists(st.sampled_from([float("nan"), float("inf"), float("-inf"), -0.0]), max_size=5),
)
def test_windows_are_those_of_torch(shape, kernel, stride, pad, full, odd):
    assume(all(2 * p <= k <= x + 2 * p for p, k, x in zip(pad, kernel, shape[2:], strict=True)))
    same(images(shape, odd), kernel, stride, pad, full)


@pytest.mark.parametrize("turn", [lambda x: x.transpose(2, 3), lambda x: x[:, ::2], lambda x: x[:, :, 1:]])
def test_images_of_any_strides(turn):
    same(turn(images((2, 32, 6, 5))), (2, 2), (2, 1), (0, 1), True)


def test_nothing_but_minus_infinity():
    same(torch.full((1, 9, 4, 4), float("-inf")), (2, 2), (2, 2), (1, 1), False)


@pytest.mark.parametrize(
    "data",
    [
        images((2, 3, 4, 4)),
        images((2, 16, 4, 4)).double(),
        images((0, 16, 4, 4)),
        images((2, 16, 4, 4)).to("meta"),
    ],
    ids=["channels", "type", "empty", "device"],
)
def test_what_is_left_to_torch(data):
    assert not use_native_max_pool(data)


def test_gradients_are_recorded(monkeypatch):
    monkeypatch.setattr(pool, "native_max_pool", lambda *_: pytest.fail("no gradient could follow"))
    data = mx.nd.array(images((2, 16, 4, 4)).numpy())
    data.attach_grad()
    with mx.autograd.record():
        out = mx.nd.Pooling(data, kernel=(2, 2), stride=(2, 2), pool_type="max")
    out.backward()
    assert data.grad.asnumpy().sum() == out.size


@pytest.mark.parametrize("shape", [(3, 16, 61, 40), (1, 8, 3, 700)])
def test_threads_share_the_rows(shape):
    window = (3, 3), (2, 2), (1, 1), False
    alone = native_max_pool(images(shape), *window)
    for threads in (2, 3, 8):
        torch.set_num_threads(threads)
        assert torch.equal(native_max_pool(images(shape), *window), alone)


def test_each_of_a_batch_of_inputs_is_left_to_torch():
    found = []
    torch.vmap(lambda each: found.append(use_native_max_pool(each)) or each)(images((3, 2, 16, 4, 4)))
    assert found == [False]
