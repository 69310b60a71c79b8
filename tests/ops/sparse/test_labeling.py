"""CRF and CTC on ragged values, against sums over all paths and torch."""

import itertools

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import OpError, ShapeError
from helpers.ragged_values import bound, check_gradients, f8, ragged

S = mx.sym
X, L = S.Variable("x", stype="ragged"), S.Variable("label", stype="ragged", dtype="int64")
LENGTHS = [3, 0, 1, 2]


def labels(lengths, count, seed=1, low=0):
    numbers = np.random.RandomState(seed).randint(low, count, sum(lengths))
    return mx.nd.ragged_array(numbers, np.cumsum([0, *lengths]), dtype="int64")


def scores_of_paths(row, transition):
    """Return the score of each path of labels."""
    start, end, between = transition[0], transition[1], transition[2:]
    found = {}
    for path in itertools.product(range(len(start)), repeat=len(row)):
        found[path] = start[path[0]] + end[path[-1]] + sum(e[label] for e, label in zip(row, path))
        found[path] += sum(between[pair] for pair in itertools.pairwise(path))
    return found


@pytest.mark.parametrize("lengths", [LENGTHS, [1, 2, 4], [0]])
def test_crf_sums_over_all_paths(lengths):
    x, w, label = ragged(lengths, 3), f8(5, 3), labels(lengths, 3)
    net = S.sequence_crf(X, L, S.Variable("w"))
    args = {"x": x, "w": w, "label": label}
    (out,) = bound(net, args, grads=False).forward()
    (best,) = bound(S.sequence_crf_decode(X, S.Variable("w")), args, grads=False).forward()
    assert out.shape == (len(lengths), 1)
    for got, path, row, right in zip(
        out.asnumpy()[:, 0], best.tolist(), x.tolist(), label.tolist(), strict=True
    ):
        if not row:
            assert (got, path) == (0.0, [])
            continue
        scores = scores_of_paths(np.array(row), w.asnumpy())
        total = np.log(np.exp(list(scores.values())).sum())
        assert got == pytest.approx(total - scores[tuple(int(n) for n in right)])
        assert tuple(int(np.ravel(n)[0]) for n in path) == max(scores, key=scores.get)


def test_gradients_of_crf():
    right = S.Cast(S.argmax(X * X, axis=1, keepdims=True), dtype="int64")  # labels that are no argument
    net = S.sequence_crf(X, right, S.Variable("w"))
    check_gradients(net, {"x": ragged(LENGTHS, 3), "w": f8(5, 3)})


@pytest.mark.parametrize("blank", [0, 2])
def test_ctc_is_torchs(blank):
    steps, counts = [5, 4, 1, 6, 2], [2, 0, 1, 3, 2]
    x = ragged(steps, 4)
    label = mx.nd.ragged_array(
        np.random.RandomState(4).choice([n for n in range(4) if n != blank], sum(counts)), np.cumsum([0, *counts]),
        dtype="int64",
    )  # fmt: skip
    net = S.sequence_ctc(X, L, blank=blank)
    (out,) = bound(net, {"x": x, "label": label}, grads=False).forward()
    for got, row, right in zip(out.asnumpy()[:, 0], x.tolist(), label.tolist(), strict=True):
        logs = torch.tensor(row).log_softmax(1)[:, None]
        target, size = (
            torch.tensor([int(n) for n in right]),
            (torch.tensor([len(row)]), torch.tensor([len(right)])),
        )
        wanted = torch.nn.functional.ctc_loss(logs, target, *size, blank, "sum", zero_infinity=True)
        assert got == pytest.approx(float(wanted), rel=1e-6)


@pytest.mark.parametrize("norm_by_times", [False, True])
def test_gradients_of_ctc(norm_by_times):
    x, label = ragged([5, 3], 4), labels([2, 1], 4, low=1)
    args = {"x": x, "label": label}
    net = S.sequence_ctc(X, L, norm_by_times=norm_by_times)
    executor = net.bind(mx.cpu(), args, {"x": x.copy()}, {"x": "write", "label": "null"})
    executor.forward(is_train=True)
    executor.backward(mx.nd.ones((2, 1), dtype="f8"))
    got = executor.grad_dict["x"].values.asnumpy()
    logits = torch.tensor(x.values.asnumpy(), requires_grad=True)
    for (begin, end), right in zip([(0, 5), (5, 8)], label.tolist()):
        loss = torch.nn.functional.ctc_loss(
            logits[begin:end].log_softmax(1)[:, None], torch.tensor([int(n) for n in right]),
            torch.tensor([end - begin]), torch.tensor([len(right)]), reduction="sum",
        )  # fmt: skip
        (loss / (end - begin if norm_by_times else 1)).backward()
    np.testing.assert_allclose(got, logits.grad, atol=1e-9)


N, W = mx.nd, f8(5, 3)
WRONG = [
    (
        lambda x: N.sequence_crf(x, labels([3, 0, 2, 1], 3), W),
        ShapeError,
        "data and label have different lengths",
    ),
    (
        lambda x: N.sequence_crf(x, labels(LENGTHS, 9, low=8), W),
        OpError,
        "labels are from 8 to 8, expected 0 to 2",
    ),
    (lambda x: N.sequence_crf(x, N.ones((4,)), W), OpError, "sequence_crf takes ragged data and label"),
    (lambda x: N.sequence_crf_decode(N.ones((4, 3)), W), OpError, "sequence_crf_decode takes ragged data"),
    (lambda x: N.sequence_ctc(x, labels([1, 1], 3)), ShapeError, "4 rows of data and 2 of labels"),
    (lambda x: N.sequence_ctc(x, labels(LENGTHS, 3), blank=3), OpError, "blank is 3, expected 0 to 2"),
]


@pytest.mark.parametrize("row", range(len(WRONG)))
def test_wrong_calls(row):
    call, error, text = WRONG[row]
    with pytest.raises(error, match=text):
        call(ragged(LENGTHS, 3))
