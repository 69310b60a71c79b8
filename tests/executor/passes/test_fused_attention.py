"""Attention in one call: forms that are found, masks, and operands for which the operators run one by one."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import dpmodule as mx
from dpmodule._core import torch_private
from helpers.switched import same_with_and_without

S = mx.sym
NAME = "fused_attention"
Q, K, V, M = (S.Variable(name) for name in "qkvm")
SHAPES = {"q": (2, 3, 5, 4), "k": (2, 3, 7, 4), "v": (2, 3, 7, 4)}
INF = float("inf")


def scores(alpha=0.5):
    return S.linalg_gemm2(Q, K, transpose_b=True, alpha=alpha)


def weighted(x, **options):
    return S.linalg_gemm2(S.softmax(x, **options), V)


def fill():
    return S.broadcast_axis(S.full((1, 1, 1, 1), -INF), axis=(0, 1, 2, 3), size=(2, 3, 5, 7))


def causal(like=V):
    rows = S.reshape(S.contrib.arange_like(Q, axis=2), shape=(-1, 1))
    columns = S.reshape(S.contrib.arange_like(K, axis=2), shape=(1, -1))
    mask = S.reshape(S.broadcast_greater_equal(rows, columns), shape=(1, 1, 5, 7))
    return S.broadcast_like(S.broadcast_axis(mask, axis=1, size=3), like, lhs_axes=(0,), rhs_axes=(0,))


def calls(monkeypatch):
    """Return a list that gets the options of each of torch's calls."""
    found, own = [], torch_private.attention
    monkeypatch.setattr(
        torch_private, "attention", lambda *given, **more: found.append(more) or own(*given, **more)
    )
    return found


FORMS = {
    "plain": weighted(scores()),
    "scaled": weighted(scores(2.0) / 3 * 0.7),
    "causal": weighted(S.where(causal(), scores(), fill())),
    "dropped": weighted(S.where(causal() == 0, fill(), scores())),
    "window": weighted(S.where(causal() * 0 + 1, scores(), fill())),
    "summand": weighted(S.broadcast_add(scores(), S.sin(M))),
    "summand first": weighted(S.broadcast_add(S.BlockGrad(S.sin(M)), scores() * 2)),
    "turned": S.batch_dot(
        S.softmax(
            S.batch_dot(S.SwapAxis(Q, dim1=2, dim2=3), S.SwapAxis(K, dim1=2, dim2=3), transpose_a=True)
        ),
        S.SwapAxis(V, dim1=2, dim2=3),
        transpose_b=True,
    ),
}


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "float32") for name in FORMS), ("plain", "float64"), ("window", "float64")]
)
def test_results_and_gradients_are_those_of_the_operators(name, dtype, monkeypatch):
    net = FORMS[name]
    shapes = {**SHAPES, **({"m": (2, 1, 1, 7)} if "m" in net.list_arguments() else {})}
    known = calls(monkeypatch)
    fired = same_with_and_without(net, shapes, NAME, rtol=2e-6, seeds=True, dtype=dtype)
    assert fired[NAME] == 1
    assert len(known) == (1 if name == "summand" else 3)  # which wants a gradient in training
    if name in ("causal", "dropped"):
        assert all(each["is_causal"] for each in known)  # a mask of 5 queries and 7 keys


def test_other_networks_keep_their_operators():
    shown = scores()
    others = [
        S.Group([weighted(shown), shown]),
        weighted(scores(), axis=1),
        weighted(scores(), temperature=2.0),
        S.linalg_gemm2(S.softmax(scores()), V, alpha=2.0),
        S.linalg_gemm2(V, S.softmax(scores()), transpose_a=True, transpose_b=True),
        weighted(S.where(causal(), scores(), fill() * 0)),
        weighted(scores() * causal()),
    ]
    for net in others:
        assert NAME not in same_with_and_without(net, SHAPES, NAME, seeds=True)


@pytest.mark.parametrize("kind", ["where", "add"])
def test_queries_that_see_no_key_are_nan_as_in_softmax(kind):
    mask = np.ones((1, 1, 5, 7), "f4")
    mask[0, 0, 2] = 0
    if kind == "where":
        given = S.broadcast_axis(S.broadcast_axis(M, axis=1, size=3), axis=0, size=2)
        net = weighted(S.where(given, scores(), fill()))
    else:
        net = weighted(S.broadcast_add(scores(), S.log(M)))
    arrays = {k: mx.nd.ones(s) for k, s in SHAPES.items()} | {"m": mx.nd.array(mask)}
    bound = net.bind(mx.cpu(), arrays, grad_req="null")
    found = bound.forward()[0].asnumpy()
    assert bound.program(False).low.fired[NAME] == 1
    assert np.isnan(found[:, :, 2]).all()
    assert np.isfinite(np.delete(found, 2, 2)).all()


def test_values_of_other_width_other_types_and_nan():
    for shapes, dtype in (({**SHAPES, "v": (2, 3, 7, 6)}, "float32"), (SHAPES, "float16")):
        assert same_with_and_without(weighted(scores()), shapes, NAME, seeds=True, dtype=dtype)[NAME] == 1
    arrays = {k: mx.nd.ones(s) for k, s in SHAPES.items()}
    arrays["q"][0, 0, 1, 0] = np.nan
    found = weighted(scores()).bind(mx.cpu(), arrays).forward()[0].asnumpy()
    assert np.isnan(found[0, 0, 1]).all()
    assert np.isnan(found).sum() == 4


def test_masks_by_shapes_follow_new_shapes_and_types(monkeypatch):
    net = mx.sym.from_torch(Causal(), torch.ones(2, 3, 5, 4))[0]
    (name,) = net.list_arguments()
    known = calls(monkeypatch)
    for rows, dtype in ((2, "float32"), (3, "float32"), (2, "float64")):
        x = mx.nd.random.uniform(shape=(rows, 3, 5, 4), dtype=dtype)
        found = net.bind(mx.cpu(), {name: x}).forward()[0].asnumpy()
        np.testing.assert_allclose(found, Causal()(torch.from_numpy(x.asnumpy())), 1e-5, 1e-6)
    assert known == [{"scale": 0.5, "is_causal": True}] * 3


class Causal(torch.nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x.sin(), x.cos(), is_causal=True)


def test_sizes_decide(monkeypatch):
    known = calls(monkeypatch)
    for length, width, training, expected in (
        (64, 64, False, 1), (47, 64, False, 0), (64, 64, True, 0), (64, 16, True, 1), (200, 64, True, 1)
    ):  # fmt: skip
        shapes = {"q": (4, 4, 64, width), "k": (4, 4, length, width), "v": (4, 4, length, width)}
        known.clear()
        weighted(scores()).simple_bind(mx.cpu(), **shapes).forward(is_train=training)
        assert len(known) == expected
