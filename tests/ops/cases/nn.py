"""Cases of layers and losses that the recorded goldens leave open."""

import itertools

import numpy as np

from helpers.op_case import OpCase

rng = np.random.RandomState(5)


def collapse(path, blank):
    """Return the labels of an alignment: repetitions joined, blanks left out."""
    return tuple(label for label, _ in itertools.groupby(path) if label != blank)


def ctc(labels, lengths, blank):
    """Return minus the log-likelihood of label sequences, by trying every alignment."""

    def expect(data, *rest):
        share = np.exp(data - data.max(2, keepdims=True))
        share /= share.sum(2, keepdims=True)
        losses = []
        for n, wanted in enumerate(labels):
            paths = itertools.product(range(data.shape[2]), repeat=lengths[n])
            fitting = [p for p in paths if collapse(p, blank) == wanted]
            losses.append(-np.log(sum(np.prod(share[range(lengths[n]), n, p]) for p in fitting)))
        return np.array(losses)

    return expect


def batch_norm(data, gamma, beta, mean, var):
    """Return data normalised by the batch's statistics."""
    centred = data - data.mean((0, 2), keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean((0, 2), keepdims=True) + 1e-3)
    return scaled * gamma[:, None] + beta[:, None]


def labels(*rows):
    """Return labels, which are not differentiated."""
    return np.array(rows, np.float32)


_NORM = (rng.standard_normal((3, 2, 4)), rng.rand(2) + 0.5, rng.standard_normal(2), np.zeros(2), np.ones(2))
_FREE = {"fix_gamma": False, "eps": 1e-3}

CASES = [
    OpCase(
        "CTCLoss",
        (rng.standard_normal((4, 3, 3)), labels((1, 2), (2, 2), (0, 1))),
        {},
        ctc([(1, 2), (2, 2), ()], [4, 4, 4], 0),
        grad=(0,),
    ),
    OpCase(
        "CTCLoss",
        (rng.standard_normal((4, 2, 3)), labels((0, 1), (1, -1))),
        {"blank_label": "last"},
        ctc([(0, 1), (1,)], [4, 4], 2),
        grad=(0,),
    ),
    OpCase(
        "ctc_loss",
        (
            rng.standard_normal((4, 2, 3)),
            labels((1, 2), (2, 1)),
            np.array([4, 2], np.float32),
            np.array([1, 2], np.float32),
        ),
        {"use_data_lengths": True, "use_label_lengths": True},
        ctc([(1,), (2, 1)], [4, 2], 0),
        grad=(0,),
    ),
    OpCase(
        "IdentityAttachKLSparseReg",
        (rng.rand(3, 2), np.full(2, 0.2)),
        {},
        lambda data, average: data,
        no_grad="its gradient has the penalty added",
    ),
    OpCase("_contrib_SyncBatchNorm", _NORM, {**_FREE, "key": "bn"}, batch_norm, grad=(0, 1, 2)),
    OpCase(
        "_contrib_BatchNormWithReLU",
        _NORM,
        _FREE,
        lambda *inputs: np.maximum(batch_norm(*inputs), 0),
        grad=(0, 1, 2),
    ),
]
