"""`Module(amp=...)`: training in 16 bits with float32 parameters, and the scale of the loss in float16."""

import logging

import numpy as np
import pytest
from sklearn.datasets import load_digits

import dpmodule as mx
from dpmodule.base import ArgumentError, NonFiniteError
from dpmodule.module import mixed_precision
from helpers.small_fits import blobs, classifier, parameters

S = mx.sym
TWO = [mx.cpu(0), mx.cpu(1)]


def lenet():
    net = S.Convolution(S.Variable("data"), kernel=(3, 3), num_filter=8, name="conv")
    net = S.Activation(S.BatchNorm(net, name="bn", fix_gamma=False), act_type="relu")
    net = S.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max")
    return S.SoftmaxOutput(S.FullyConnected(net, num_hidden=10, name="scores"), name="softmax")


def digits():
    data, label = load_digits(return_X_y=True)
    data = (data / 16).astype("f4").reshape(-1, 1, 8, 8)
    return (
        mx.io.NDArrayIter(data[:1400], label[:1400], 32, shuffle=True),
        mx.io.NDArrayIter(data[1400:], label[1400:], 32),
    )


@pytest.fixture(scope="module")
def accuracies():
    found = {}
    for amp in (False, "bf16", "fp16"):
        mx.random.seed(1)
        train, validation = digits()
        module = mx.mod.Module(lenet(), amp=amp)
        schedule = mx.lr_scheduler.CosineScheduler(6 * 44, base_lr=0.05)
        options = {"learning_rate": 0.05, "momentum": 0.9, "lr_scheduler": schedule}
        module.fit(train, num_epoch=6, optimizer_params=options, initializer=mx.init.Xavier())
        found[amp] = module.score(validation, "acc")[0][1], module
    return found


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_digits_are_told_apart_as_well_as_in_float32(accuracies, amp):
    assert accuracies[amp][0] >= accuracies[False][0] - (0.01 if amp == "bf16" else 0.02)
    module = accuracies[amp][1]
    assert module.get_outputs()[0].dtype == np.float32
    assert {array.dtype for array in parameters(module).values()} == {np.dtype("f4")}
    assert module.output_names == ["softmax_output"]
    assert "amp_cast" in module.summary()


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_checkpoints_are_those_of_the_plain_network(accuracies, amp, tmp_path):
    module = accuracies[amp][1]
    module.save_checkpoint(str(tmp_path / "net"), 1, save_optimizer_states=True)
    assert "amp_cast" not in (tmp_path / "net-symbol.json").read_text()
    plain = mx.mod.Module.load(str(tmp_path / "net"), 1)
    data = digits()[1]
    plain.bind(data.provide_data, data.provide_label, for_training=False)
    assert plain.symbol.list_arguments() == lenet().list_arguments()
    assert plain.score(data, "acc")[0][1] == pytest.approx(accuracies[amp][0], abs=0.01)


def gradients(net, batch, amp, names, contexts=None, **options):
    mx.random.seed(3)
    module = mx.mod.Module(net, label_names=names, context=contexts or mx.cpu(), amp=amp)
    module.bind(
        [("data", batch.data[0].shape)],
        [(name, array.shape) for name, array in zip(names or (), batch.label or ())] or None,
        inputs_need_grad=True,
        **options,
    )
    module.init_params(mx.init.Xavier())
    module.init_optimizer()
    for _ in range(9):
        module.forward(batch, is_train=True)
        module.backward(None if names else [mx.nd.ones(shape) for _, shape in module.output_shapes])
        if not module.handle_overflow():
            break
    found = {
        n: module.store.grad(n, 0).asnumpy()
        for n in module.param_names
        if module.store.grad(n, 0) is not None
    }
    return found | {"data": module.get_input_grads()[0].asnumpy()}


def dense(hidden=6, data=None, weight=None):
    return S.FullyConnected(S.Variable("data") if data is None else data, weight, num_hidden=hidden, name="f")


def two_heads():
    data = S.Variable("data")
    return S.Group([dense(data=data), S.tanh(data)])


def penalty():
    weight = S.Variable("f_weight")
    loss = S.MakeLoss(S.sum(S.square(weight)) * 1e-3)
    return S.Group([S.SoftmaxOutput(dense(weight=weight), name="softmax"), loss])


NETS = {
    "softmax": (lambda: S.SoftmaxOutput(dense(), name="softmax"), "softmax_label", (8,)),
    "regression": (lambda: S.LinearRegressionOutput(dense(1), S.Variable("label")), "label", (8, 1)),
    "make_loss": (lambda: S.MakeLoss(S.mean(S.square(dense())), grad_scale=3.0), None, None),
    "heads": (two_heads, None, None),
    "reshaped_loss": (lambda: S.Reshape(S.SoftmaxOutput(dense(), name="softmax"), shape=(-1,)), "softmax_label", (8,)),
    "norm": (lambda: S.SoftmaxOutput(S.FullyConnected(S.LayerNorm(S.Activation(dense(), act_type="relu"), name="ln"),
                                                      num_hidden=3, name="g"), name="softmax"), "softmax_label", (8,)),
    "prelu": (lambda: S.SoftmaxOutput(S.LeakyReLU(dense(), act_type="prelu", name="p"), name="softmax"),
              "softmax_label", (8,)),
    "penalty": (penalty, "softmax_label", (8,)),
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_gradients_are_those_of_float32_in_fewer_digits(name, amp):
    make, label, shape = NETS[name]
    source = np.random.RandomState(0)
    labels = [mx.nd.array(source.randint(0, 3, shape))] if label else None
    batch = mx.io.DataBatch([mx.nd.array(source.standard_normal((8, 5)))], labels)
    plain, half = (gradients(make(), batch, each, [label] if label else None) for each in (False, amp))
    assert plain.keys() == half.keys()
    for key, value in plain.items():
        assert half[key].dtype == np.float32
        scale = np.abs(value).max()
        np.testing.assert_allclose(
            half[key], value, atol=scale * (0.03 if amp == "bf16" else 0.004), err_msg=key
        )


def test_gradients_too_small_for_float16_are_not_lost():
    net = S.MakeLoss(S.mean(dense()), grad_scale=1e-6)
    batch = mx.io.DataBatch([mx.nd.ones((8, 5))])
    plain, half = (gradients(net, batch, amp, None) for amp in (False, "fp16"))
    assert 0 < np.abs(plain["f_weight"]).max() < 6e-7
    np.testing.assert_allclose(half["f_weight"], plain["f_weight"], rtol=2e-3)


def test_gradients_are_added_where_that_is_asked_for():
    batch = mx.io.DataBatch([mx.nd.ones((8, 5))], [mx.nd.zeros((8,))])
    net = S.SoftmaxOutput(dense(), name="softmax")
    module = mx.mod.Module(net, amp="fp16")
    module.bind([("data", (8, 5))], [("softmax_label", (8,))], grad_req=["null", "add", "write", "null"])
    module.init_params(mx.init.Xavier())
    module.forward_backward(batch)
    once = module.store.grad("f_weight", 0).asnumpy()
    module.loss_scales()[0].note_overflow()
    module.forward_backward(batch)
    np.testing.assert_allclose(module.store.grad("f_weight", 0).asnumpy(), 2 * once, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_row_sparse_gradients_stay_row_sparse(amp):
    def net():
        words = S.Embedding(S.Variable("data"), input_dim=30, output_dim=4, sparse_grad=True, name="words")
        return S.SoftmaxOutput(
            S.FullyConnected(S.mean(words, axis=1), num_hidden=2, name="f"), name="softmax"
        )

    source = np.random.RandomState(0)
    data = mx.io.NDArrayIter(source.randint(0, 30, (32, 3)).astype("f4"), source.randint(0, 2, 32), 8)
    found = []
    for each in (False, amp):
        mx.random.seed(1)
        module = mx.mod.Module(net(), amp=each)
        for scale in module.loss_scales():
            scale.value = 256.0
        module.fit(data, num_epoch=1, initializer="xavier", optimizer_params={"learning_rate": 0.5})
        assert module.store.grad("words_weight", 0).stype == "row_sparse"
        found.append(parameters(module))
        data.reset()
    for name, value in found[0].items():
        np.testing.assert_allclose(found[1][name], value, atol=0.02, err_msg=name)


@pytest.mark.parametrize("contexts", [None, TWO], ids=["one", "two"])
def test_batches_that_overflow_are_left_out(contexts, caplog):
    caplog.set_level(logging.INFO)
    mx.random.seed(1)
    module = mx.mod.Module(classifier(), amp="fp16", context=contexts or mx.cpu())
    seen = []
    points = blobs()
    data = mx.io.NDArrayIter(points.data[0][1] * 40, points.label[0][1], 8)

    def look(param):
        seen.append((module.loss_scales()[0].value, parameters(module)))

    module.fit(data, num_epoch=1, initializer="xavier", batch_end_callback=look)
    scales = [scale for scale, _ in seen]
    assert scales[0] == 2.0**15
    assert "a gradient overflows float16: the loss scale is now 32768" in caplog.text
    kept = [np.array_equal(a["hidden_weight"], b["hidden_weight"]) for (_, a), (_, b) in zip(seen, seen[1:])]
    assert kept == [one > other for one, other in zip(scales, scales[1:])]
    assert not kept[-1]


def test_the_scale_grows_again_and_stops_at_one():
    scale = mixed_precision.LossScale(4, window=3)
    for _ in range(3):
        scale.note_update()
    assert scale.value == 8
    assert [scale.note_overflow() for _ in range(4)] == [True, True, True, False]
    assert scale.value == 1


def test_bad_data_are_no_overflow():
    data = np.ones((16, 2), "f4")
    data[9] = np.nan
    with pytest.raises(NonFiniteError, match=r"batch 1 of epoch 0 \(samples 9\)"):
        mx.mod.Module(classifier(), amp="fp16").fit(mx.io.NDArrayIter(data, np.zeros(16), 8), num_epoch=1)


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_a_resumed_run_is_the_one_never_broken_off(amp, tmp_path):
    def run(prefix, **options):
        mx.random.seed(1)
        module = mx.mod.Module(classifier(dropout=0.2), amp=amp)
        every = mx.callback.Checkpoint(tmp_path / prefix, every_n_batches=4)
        options = {"num_epoch": 2, "optimizer": "adam", "accumulate": 2, **options}
        module.fit(
            blobs(shuffle=True), initializer="xavier", checkpoint=every, clip_global_norm=1.0, **options
        )
        return module

    whole = run("whole")
    run("part", max_batches=15)
    resumed = run("part", resume="auto")
    for name, value in parameters(whole).items():
        np.testing.assert_array_equal(parameters(resumed)[name], value, err_msg=name)
    assert [each.value for each in resumed.loss_scales()] == [each.value for each in whole.loss_scales()]


def test_buckets_share_their_scale():
    def sym_gen(length):
        net = S.FullyConnected(S.mean(S.Variable("data"), axis=1, keepdims=True), num_hidden=2, name="f")
        return S.SoftmaxOutput(net, name="softmax"), ("data",), ("softmax_label",)

    module = mx.mod.BucketingModule(sym_gen, 4, amp="fp16")
    module.bind([("data", (8, 4))], [("softmax_label", (8,))])
    module.init_params(mx.init.Xavier())
    module.init_optimizer()
    values = []
    for length in (4, 2, 4):
        batch = mx.io.DataBatch(
            [mx.nd.ones((8, length))], [mx.nd.zeros((8,))], bucket_key=length,
            provide_data=[("data", (8, length))], provide_label=[("softmax_label", (8,))],
        )  # fmt: skip
        module.forward_backward(batch)
        module.update()
        module.loss_scales()[0].note_overflow()
        values.append(module.loss_scales()[0].value)
    assert values[0] > values[1] > values[2]
    assert (
        module.loss_scales()[0] is module._buckets[4].loss_scales()[0] is module._buckets[2].loss_scales()[0]
    )


def test_chained_modules_train():
    module = mx.mod.SequentialModule()
    module.add(
        mx.mod.Module(
            S.FullyConnected(S.Variable("data"), num_hidden=8, name="low"), label_names=None, amp="fp16"
        )
    )
    module.add(mx.mod.Module(classifier(), amp="fp16"), take_labels=True, auto_wiring=True)
    module.fit(blobs(), num_epoch=4, initializer="xavier", optimizer_params={"learning_rate": 0.3})
    assert len(module.loss_scales()) == 2
    assert module.score(blobs(), "acc")[0][1] > 0.9


def test_what_cannot_be_is_told(monkeypatch):
    with pytest.raises(ArgumentError, match='amp is "?\'int8\'"?, expected "bf16", "fp16", False or None'):
        mx.mod.Module(classifier(), amp="int8")
    monkeypatch.setattr(mixed_precision, "_supports", lambda device, dtype: dtype != "float16")
    with pytest.raises(ArgumentError, match="amp: cpu\\(0\\) cannot multiply float16 numbers"):
        mx.mod.Module(classifier(), amp="fp16")
    mx.mod.Module(classifier(), amp="bf16")


def test_operators_with_gradients_of_their_own_are_refused():
    net = S.IdentityAttachKLSparseReg(S.sigmoid(dense()), name="sparse")
    module = mx.mod.Module(S.SoftmaxOutput(net, name="softmax"), amp="fp16")
    with pytest.raises(
        ArgumentError, match="sparse \\(IdentityAttachKLSparseReg\\) adds a gradient that is not scaled"
    ):
        module.bind([("data", (8, 5))], [("softmax_label", (8,))])
