"""`Module(amp=...)`: training in 16 bits with float32 parameters, and the scale of the loss in float16."""

import logging

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError
from dpmodule.module import mixed_precision
from helpers.small_fits import (
    batch,
    blobs,
    both_contexts,
    bucket_batch,
    classifier,
    mean_of_bucket,
    parameters,
    ready,
    step,
)

S = mx.sym


def gradients(net, one, amp, label):
    mx.random.seed(3)
    module = mx.mod.Module(net, label_names=label and [label], amp=amp)
    shapes = [[("data", one.data[0].shape)], *([[(label, one.label[0].shape)]] if label else [])]
    ready(module, shapes=shapes, optimizer={}, inputs_need_grad=True)
    for _ in range(9):
        module.forward(one, is_train=True)
        module.backward(None if label else [mx.nd.ones(shape) for _, shape in module.output_shapes])
        if not module.handle_overflow():
            break
    found = {name: module.store.grad(name, 0).asnumpy() for name in module.param_names}
    return found | {"data": module.get_input_grads()[0].asnumpy()}


DATA = S.Variable("data")


def dense(hidden=6, weight=None):
    return S.FullyConnected(DATA, weight, num_hidden=hidden, name="f")


def softmax(net, **options):
    return S.SoftmaxOutput(net, name="softmax", **options)


W = S.Variable("f_weight")
LABEL = "softmax_label", (8,)
NETS = {
    "regression": (S.LinearRegressionOutput(dense(1), S.Variable("label")), "label", (8, 1)),
    "make_loss": (S.MakeLoss(S.mean(S.square(dense())), grad_scale=3.0), None, None),
    "heads": (S.Group([dense(), S.tanh(DATA)]), None, None),
    "reshaped_loss": (S.Reshape(softmax(dense()), shape=(-1,)), *LABEL),
    "penalty": (S.Group([softmax(dense(6, W)), S.MakeLoss(S.sum(S.square(W)) * 1e-3)]), *LABEL),
}


@pytest.mark.parametrize("name", NETS)
def test_gradients_are_those_of_float32_in_fewer_digits(name):
    """See test_equivalence.py for the other type and many more networks."""
    net, label, shape = NETS[name]
    source = np.random.RandomState(0)
    labels = [mx.nd.array(source.randint(0, 3, shape))] if label else None
    one = mx.io.DataBatch([mx.nd.array(source.standard_normal((8, 5)))], labels)
    plain, half = (gradients(net, one, each, label) for each in (False, "fp16"))
    assert plain.keys() == half.keys()
    for key, value in plain.items():
        assert half[key].dtype == np.float32
        np.testing.assert_allclose(half[key], value, atol=np.abs(value).max() * 0.004, err_msg=key)


def test_gradients_are_added_where_that_is_asked_for():
    module = ready(mx.mod.Module(softmax(dense()), amp="fp16"), grad_req=["null", "add", "write", "null"])
    found = []
    for _ in range(2):
        module.forward_backward(batch())
        found.append(module.store.grad("f_weight", 0).asnumpy())
        module.loss_scales()[0].note_overflow()
    np.testing.assert_allclose(found[1], 2 * found[0], rtol=2e-3, atol=1e-6)


@both_contexts
def test_batches_that_overflow_are_left_out(contexts, caplog):
    caplog.set_level(logging.INFO)
    mx.random.seed(1)
    module, seen = mx.mod.Module(classifier(), amp="fp16", context=contexts), []
    data = mx.io.NDArrayIter(blobs().data[0][1] * 40, blobs().label[0][1], 8)

    def look(param):
        seen.append((module.loss_scales()[0].value, parameters(module)["hidden_weight"]))

    module.fit(data, num_epoch=1, initializer="xavier", batch_end_callback=look)
    assert seen[0][0] == 2.0**15
    assert "a gradient overflows float16: the loss scale is now 32768" in caplog.text
    kept = [np.array_equal(a, b) for (_, a), (_, b) in zip(seen, seen[1:])]
    assert kept == [one > other for (one, _), (other, _) in zip(seen, seen[1:])]
    assert not kept[-1]


def test_the_scale_grows_again_and_stops_at_one():
    scale = mixed_precision.LossScale(4, window=3)
    for _ in range(3):
        scale.note_update()
    assert (scale.value, [scale.note_overflow() for _ in range(4)]) == (8, [True, True, True, False])
    assert scale.value == 1


def test_buckets_share_their_scale_and_members_of_a_chain_have_their_own():
    module, values = ready(mx.mod.BucketingModule(mean_of_bucket, 6, amp="fp16"), optimizer={}), []
    for length in (6, 2, 6):
        step(module, bucket_batch(length, np.ones((8, length)), np.zeros(8)))
        module.loss_scales()[0].note_overflow()
        values.append(module.loss_scales()[0].value)
    assert values[0] > values[1] > values[2]
    (scale,) = {id(each.loss_scales()[0]) for each in (module, *module._buckets.values())}
    low = S.FullyConnected(S.Variable("data"), num_hidden=8, name="low")
    chain = mx.mod.SequentialModule().add(mx.mod.Module(low, label_names=None, amp="fp16"))
    chain.add(mx.mod.Module(classifier(), amp="fp16"), take_labels=True, auto_wiring=True)
    chain.fit(blobs(), num_epoch=4, initializer="xavier", optimizer_params={"learning_rate": 0.3})
    assert len({scale, *map(id, chain.loss_scales())}) == 3
    assert chain.score(blobs(), "acc")[0][1] > 0.9


def test_a_device_that_cannot_multiply_them_is_named(monkeypatch):
    monkeypatch.setattr(mixed_precision, "_supports", lambda device, dtype: dtype != "float16")
    with pytest.raises(ArgumentError, match="amp: cpu\\(0\\) cannot multiply float16 numbers"):
        mx.mod.Module(classifier(), amp="fp16")
    mx.mod.Module(classifier(), amp="bf16")


def test_gradients_too_small_for_float16_are_not_lost():
    net, one = S.MakeLoss(S.mean(dense()), grad_scale=1e-6), mx.io.DataBatch([mx.nd.ones((8, 5))])
    plain, half = (gradients(net, one, amp, None)["f_weight"] for amp in (False, "fp16"))
    assert 0 < np.abs(plain).max() < 6e-7
    np.testing.assert_allclose(half, plain, rtol=2e-3)
