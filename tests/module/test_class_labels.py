"""Labels outside of the classes: told by `fit` in the first batch of each epoch, whatever reads them."""

from __future__ import annotations

import re

import numpy as np
import pytest

import dpmodule as mx
from helpers.small_fits import TWO

S = mx.sym
N = 6
DATA, LABEL = S.Variable("data"), S.Variable("label")


def scores(classes=4):
    return S.FullyConnected(DATA, num_hidden=classes, flatten=False)


def softmax(label=LABEL, data=None, **attributes):
    return S.SoftmaxOutput(scores() if data is None else data, label, name="softmax", **attributes)


def loss(symbol):
    return S.MakeLoss(symbol, name="loss")


def picked(label=LABEL, **attributes):
    return S.pick(S.log_softmax(scores()), label, name="pick", **attributes)


def filled(shape, place, value, start=1):
    found = np.full(shape, start, "float32")
    found[place] = value
    return found


def boxes(place=None, value=0.0):
    """Return lists of two boxes, the second of which is padding."""
    found = np.tile(np.float32([[1, 0.1, 0.1, 0.9, 0.9], [-1, -1, -1, -1, -1]]), (N, 1, 1))
    if place is not None:
        found[place] = value
    return found


def detection():
    anchors = S.Variable("anchors", shape=(1, 2, 4), init=mx.init.One())
    found = S.contrib.MultiBoxTarget(anchors, LABEL, S.Reshape(scores(6), shape=(0, 3, 2)), name="target")
    return S.Group([loss(S.mean(scores(6))), S.BlockGrad(found[2])])


ALL, SWAPPED = S.Reshape(scores(), shape=(-1, 4)), S.SwapAxis(scores(), dim1=1, dim2=2)
FLAT = S.Reshape(LABEL, shape=(-1,))
ENTROPY = S.softmax_cross_entropy(scores(), LABEL)

# symbol, shape of the data, labels, and the sample, the label and the number of classes that the message tells; or None
CASES = {
    "beyond the last class": (softmax(), (N, 3), filled(N, 2, 4), (2, "4", 4)),
    "NaN": (softmax(), (N, 3), filled(N, 3, np.nan), (3, "nan", 4)),
    "ignored": (softmax(use_ignore=True, ignore_label=-1), (N, 3), filled(N, 2, -1), None),
    "not the ignored one": (softmax(use_ignore=True, ignore_label=9), (N, 3), filled(N, 2, -1), (2, "-1", 4)),
    "probabilities": (softmax(), (N, 3), filled((N, 4), 2, 7), None),
    "multi_output": (softmax(data=SWAPPED, multi_output=True), (N, 5, 3), filled((N, 5), (4, 2), 4), (4, "4", 4)),
    "language model": (softmax(FLAT, data=ALL), (N, 5, 3), filled((N, 5), (3, 4), 4), (3, "4", 4)),
    "cast": (softmax(S.Cast(LABEL, dtype="int32")), (N, 3), filled(N, 2, 4), (2, "4", 4)),
    "softmax_cross_entropy": (loss(ENTROPY), (N, 3), filled(N, 2, 4), (2, "4", 4)),
    "pick": (loss(S.negative(picked())), (N, 3), filled(N, 2, 4), (2, "4", 4)),
    "pick counts around": (loss(S.negative(picked(mode="wrap"))), (N, 3), filled(N, 2, 4), None),
    "masked": (loss(picked() * (LABEL != -1)), (N, 3), filled(N, 2, -1), None),
    "masked by a bound": (loss(picked() * (LABEL >= 0)), (N, 3), filled(N, 2, -2), None),
    "SVMOutput": (S.SVMOutput(scores(), LABEL, name="svm"), (N, 3), filled(N, 2, 4), (2, "4", 4)),
    "detection": (detection(), (N, 3), boxes((4, 0, 0), 2), (4, "2", 2)),
    "boxes behind the end of the list": (detection(), (N, 3), boxes((4, 1, 1), 9), None),
    "computed": (softmax(LABEL * 2), (N, 3), filled(N, 2, 4), None),
}  # fmt: skip


def warnings_of(caplog):
    return [each.getMessage() for each in caplog.records if "which is not one of" in each.getMessage()]


@pytest.mark.parametrize("name", CASES)
def test_labels_that_are_not_classes(name, caplog):
    symbol, shape, labels, expected = CASES[name]
    feed = mx.io.NDArrayIter(np.ones(shape, "float32"), labels, N, label_name="label")
    options = {"num_epoch": 2, "eval_metric": mx.metric.Loss(), "on_nonfinite": "ignore"}
    mx.mod.Module(symbol, label_names=["label"]).fit(feed, **options)
    found = warnings_of(caplog)
    if expected is None:
        assert not found
        return
    sample, label, classes = expected
    for epoch in (0, 1):
        what = f"sample {sample} in batch 0 of epoch {epoch} has the label {label} in 'label', "
        what += rf"which is not one of the {classes} classes \(0 to {classes - 1}\) of \w+ '\w+'"
        assert re.match(f"fit: {what}", found.pop(0))
    assert not found
    caplog.clear()
    module = mx.mod.Module(symbol, label_names=["label"], context=TWO)
    words = f"sample {sample} in batch 0 of epoch 0 has the label {label}"
    with pytest.raises(mx.base.BoundsError, match=words):
        module.fit(feed, **options, check_labels="raise")
    mx.mod.Module(symbol, label_names=["label"]).fit(feed, **options, check_labels="ignore")
    assert not warnings_of(caplog)


def test_chains_buckets_and_padding(caplog):
    labels, chain = filled(N, 4, 4), mx.mod.SequentialModule()
    chain.add(mx.mod.Module(scores(), label_names=None))
    head = mx.mod.Module(S.SoftmaxOutput(S.Variable("x"), LABEL, name="softmax"), ["x"], ["label"])
    chain.add(head, take_labels=True, auto_wiring=True)
    feed = mx.io.NDArrayIter(np.ones((N, 3), "float32"), labels, N, label_name="label")
    with pytest.raises(IndexError, match="sample 4 .* label 4 .* 4 classes"):
        chain.fit(feed, num_epoch=1, check_labels="raise")

    def of_length(length):
        kept = S.slice_axis(S.expand_dims(DATA, axis=2), axis=1, begin=0, end=length)
        kept = S.FullyConnected(S.Reshape(kept, shape=(-1, 1)), num_hidden=4, name="fc")
        return S.SoftmaxOutput(kept, FLAT, name="softmax"), ["data"], ["label"]

    sentences = [[1, 2, 7]] * 4 + [[1, 2, 7, 1, 2]] * 4
    feed = mx.rnn.BucketSentenceIter(sentences, 4, buckets=[3, 5], label_name="label", invalid_label=0)
    buckets = mx.mod.BucketingModule(of_length, 5)
    buckets.fit(feed, num_epoch=2, eval_metric=mx.metric.Loss())
    assert ["has the label 7" in each for each in warnings_of(caplog)] == [True, True]

    caplog.clear()
    data, label = mx.nd.ones((N, 3)), mx.nd.array(labels)
    padded = mx.io.DataBatch([data], [label], pad=2)
    mx.mod.Module(softmax(), label_names=["label"]).fit([padded], num_epoch=1)
    assert not warnings_of(caplog)
