"""NaN and infinity: in gradients before an update, and in rows that are predicted; what is named, and when."""

import logging

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule._devices.device_transfer import HostCopy
from dpmodule.base import ArgumentError, NonFiniteError
from dpmodule.module.nonfinite import AsyncCheck, CheckedTensor, PendingChecks

S = mx.sym
X = np.random.RandomState(0).uniform(-1, 1, (24, 4)).astype("f4")
Y = (X[:, 0] > 0).astype("f4")


def spoiling(norm=True):
    """A network with finite outputs whose gradient is NaN: that of a root at 0."""
    net = S.FullyConnected(S.Variable("data"), num_hidden=6, name="low")
    if norm:
        net = S.BatchNorm(net, name="bn", fix_gamma=False)
    net = net + S.sqrt(net * 0)
    return S.SoftmaxOutput(S.FullyConnected(net, num_hidden=2, name="top"), name="softmax")


def batches(x=X, y=Y, size=8):
    return mx.io.NDArrayIter(x, y, size)


def single(contexts):
    return mx.mod.Module(spoiling(), context=contexts)


def bucketing(contexts):
    module = mx.mod.BucketingModule(
        lambda key: (spoiling(), ["data"], ["softmax_label"]), default_bucket_key=1, context=contexts
    )
    return module


def chained(contexts):
    module = mx.mod.SequentialModule()
    low = S.FullyConnected(S.Variable("data"), num_hidden=4, name="first")
    module.add(mx.mod.Module(low, label_names=None, context=contexts))
    return module.add(mx.mod.Module(spoiling(), context=contexts), take_labels=True, auto_wiring=True)


class BucketBatches(mx.io.NDArrayIter):
    """Batches that tell a bucket."""

    default_bucket_key = 1

    def next(self):
        batch = super().next()
        batch.bucket_key = 1
        batch.provide_data, batch.provide_label = self.provide_data, self.provide_label
        return batch


def values(module):
    args, aux = module.get_params()
    return {name: array.asnumpy() for name, array in {**args, **aux}.items()}


@pytest.mark.parametrize("contexts", [[mx.cpu()], [mx.cpu(0), mx.cpu(1)]], ids=["one", "two"])
@pytest.mark.parametrize("kvstore", ["local", None])
@pytest.mark.parametrize("make", [single, bucketing, chained])
def test_gradients_that_are_nan_change_nothing(make, kvstore, contexts):
    module, data = make(contexts), BucketBatches(X, Y, 8) if make is bucketing else batches()
    module.bind(data.provide_data, data.provide_label)
    module.init_params(mx.init.Xavier())
    before = values(module)
    with pytest.raises(NonFiniteError) as caught:
        module.fit(data, num_epoch=1, kvstore=kvstore)
    assert "the gradient of '" in str(caught.value)
    assert "is not finite in batch 0 of epoch 0 (samples 0, 1, 2, 3, 4, 5, 6, 7); " in str(caught.value)
    assert "; the parameters are those before this batch" in str(caught.value)
    after = values(module)
    assert any("moving" in name for name in before)
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value, err_msg=name)
    batch = next(data.__class__(X, Y, 8))
    module.forward(batch, is_train=False)
    assert np.isfinite(module.get_outputs()[0].asnumpy()).all()


def test_it_is_said_when_parameters_were_spoilt_before(caplog):
    module = mx.mod.Module(spoiling(norm=False))
    with caplog.at_level(logging.WARNING):
        module.fit(batches(), num_epoch=1, initializer=mx.init.Xavier(), on_nonfinite="warn")
    assert (
        "is not finite in batch 0 of epoch 0 (samples 0, 1, 2, 3, 4, 5, 6, 7); training continues and may corrupt"
        in caplog.text
    )
    with pytest.raises(
        NonFiniteError, match=r"before this batch there were already .* not finite in low_weight, low_bias"
    ):
        module.fit(batches(), num_epoch=1)


def test_nothing_is_looked_at_where_nobody_wants_it(caplog):
    module = mx.mod.Module(spoiling(norm=False))
    module.fit(batches(), num_epoch=1, initializer=mx.init.Xavier(), on_nonfinite="ignore")
    assert caplog.text == ""
    assert np.isnan(values(module)["low_weight"]).any()


def scaled(factor):
    """A network whose gradient is its data times a factor."""
    net = S.FullyConnected(S.Variable("data"), num_hidden=1, no_bias=True, name="fc")
    return S.MakeLoss(S.clip(net, a_min=-1e30, a_max=1e30), grad_scale=factor, name="loss")


def test_infinite_gradients_that_are_clipped_are_taken():
    x = np.full((4, 3), 1e10, "f4")
    for clip in (None, 1.0):
        module = mx.mod.Module(scaled(1e30), label_names=None)
        options = {"learning_rate": 0.1, "clip_gradient": clip}
        data = mx.io.NDArrayIter(x, None, 4)
        if clip is None:
            with pytest.raises(NonFiniteError, match="the gradient of 'fc_weight'"):
                module.fit(data, num_epoch=1, optimizer_params=options, eval_metric=mx.metric.Loss())
        else:
            module.fit(data, num_epoch=1, optimizer_params=options, eval_metric=mx.metric.Loss())
            assert np.isfinite(values(module)["fc_weight"]).all()


@pytest.mark.filterwarnings("ignore:.*16-bit parameters")
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_gradients_of_other_types(dtype):
    module = mx.mod.Module(spoiling(norm=False))
    data = mx.io.NDArrayIter(mx.nd.array(X, dtype=dtype), Y, 8)
    with pytest.raises(NonFiniteError, match="the gradient of 'low_"):
        module.fit(data, num_epoch=1, initializer=mx.init.Xavier())


def test_gradients_of_rows():
    table = S.Variable("table_weight", stype="row_sparse")
    net = S.Embedding(S.Variable("data"), table, 9, 3, sparse_grad=True)
    net = net + S.sqrt(net * 0)
    net = S.SoftmaxOutput(S.FullyConnected(net, num_hidden=2), name="softmax")
    data = mx.io.NDArrayIter(np.arange(8.0), np.zeros(8), 8)
    with pytest.raises(NonFiniteError, match="the gradient of 'table_weight'"):
        mx.mod.Module(net).fit(data, num_epoch=1, initializer=mx.init.Uniform(0.5))


def plain():
    return S.SoftmaxOutput(S.FullyConnected(S.Variable("data"), num_hidden=2, name="fc"), name="softmax")


@pytest.fixture
def fitted():
    module = mx.mod.Module(plain(), context=[mx.cpu(0), mx.cpu(1)])
    module.fit(batches(), num_epoch=1)
    return module


def with_nan(rows, count=22):
    """Data of some rows, of which a few are NaN, in batches of which the last is padded with the first rows."""
    x = X[:count].copy()
    x[rows, 1] = np.nan
    return batches(x, Y[:count])


@pytest.mark.parametrize("method", ["predict", "score", "iter_predict"])
def test_rows_that_are_nan_are_counted(fitted, method, caplog):
    def call(data, **options):
        if method == "score":
            return fitted.score(data, "acc", **options)
        return list(getattr(fitted, method)(data, **options))

    what = "score" if method == "score" else "predict"
    call(with_nan([]))
    call(with_nan([5]), on_nonfinite="ignore")
    assert caplog.text == ""
    call(with_nan([0, 9, 21]))  # the first row also pads the last batch
    assert caplog.messages == [f"{what}: 3 rows of the outputs are NaN, the first at index 0"]
    caplog.clear()
    call(with_nan([19]))
    assert caplog.messages == [f"{what}: 1 row of the outputs is NaN, the first at index 19"]
    with pytest.raises(NonFiniteError, match=f"{what}: 2 rows .* the first at index 10; it is in batch 1"):
        call(with_nan([10, 13, 20]), on_nonfinite="raise")
    with pytest.raises(ArgumentError, match="on_nonfinite is 'skip', expected raise or warn or ignore"):
        call(with_nan([]), on_nonfinite="skip")


def test_one_array_is_looked_at_too(fitted, caplog):
    x = X[:8].copy()
    x[3] = np.nan
    fitted.predict(x)
    assert caplog.messages == ["predict: 1 row of the outputs is NaN, the first at index 3"]


def test_infinite_outputs_may_be_meant(caplog):
    net = S.log(S.Activation(S.Variable("data"), act_type="relu"))
    module = mx.mod.Module(net, label_names=None)
    data = mx.io.NDArrayIter(X, None, 8)
    module.bind(data.provide_data, for_training=False)
    module.init_params()
    assert np.isinf(module.predict(data).asnumpy()).any()
    assert caplog.text == ""


def rooted():
    """A network that takes a logarithm in its midst."""
    net = S.FullyConnected(S.Variable("data"), num_hidden=4, name="low")
    net = S.Dropout(S.log(net, name="logarithm"), p=0.3)
    return S.SoftmaxOutput(S.FullyConnected(net, num_hidden=2, name="top"), name="softmax")


def rooted_chain():
    module = mx.mod.SequentialModule()
    module.add(
        mx.mod.Module(S.FullyConnected(S.Variable("data"), num_hidden=4, name="low"), label_names=None)
    )
    net = S.FullyConnected(S.log(S.Variable("data"), name="logarithm"), num_hidden=2)
    net = mx.mod.Module(S.SoftmaxOutput(net, name="softmax"))
    return module.add(net, take_labels=True, auto_wiring=True)


ROOTED = {
    "one": lambda: mx.mod.Module(rooted()),
    "two": lambda: mx.mod.Module(rooted(), context=[mx.cpu(0), mx.cpu(1)]),
    "buckets": lambda: mx.mod.BucketingModule(
        lambda key: (rooted(), ["data"], ["softmax_label"]), default_bucket_key=1
    ),
    "chain": rooted_chain,
}


@pytest.mark.parametrize("kind", ROOTED)
def test_the_node_where_it_begins_is_named(kind):
    with pytest.raises(
        NonFiniteError, match="first at the node 'logarithm_output'; the parameters are those before"
    ):
        ROOTED[kind]().fit(BucketBatches(X, Y, 8), num_epoch=1, initializer=mx.init.Xavier())


def test_data_that_are_not_finite_are_named():
    spoilt = X.copy()
    spoilt[9, 1] = np.inf
    with pytest.raises(NonFiniteError, match=r"in batch 1 of epoch 0 .*, first at the node 'data'"):
        mx.mod.Module(
            S.SoftmaxOutput(S.FullyConnected(S.Variable("data"), num_hidden=2), name="softmax")
        ).fit(batches(spoilt), num_epoch=1)


def test_looking_for_the_node_draws_no_numbers():
    def drawn(**options):
        mx.random.seed(3)
        module = mx.mod.Module(rooted())
        module.fit(batches(), num_epoch=1, initializer=mx.init.Xavier(), **options)
        return mx.nd.random.uniform(shape=(3,)).asnumpy()

    np.testing.assert_array_equal(drawn(on_nonfinite="skip"), drawn(on_nonfinite="ignore"))


class Distrustful(mx.mod.Module):
    """Finds a gradient bad by itself."""

    def nonfinite_gradient(self):
        return "mine"


@pytest.mark.parametrize("in_chain", [False, True])
def test_a_module_of_a_program_may_find_bad_gradients_itself(in_chain):
    module = Distrustful(plain())
    if in_chain:
        module = mx.mod.SequentialModule().add(module, take_labels=True)
    with pytest.raises(NonFiniteError, match="the gradient of 'mine' is not finite in batch 0 of epoch 0"):
        module.fit(batches(), num_epoch=1)


NAN, INF = float("nan"), float("inf")


def look(what, *numbers, dtype=torch.float32, **rest):
    return CheckedTensor(what, torch.tensor(numbers, dtype=dtype), **rest)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_first_that_is_not_finite_is_named(dtype):
    fine, bad = look("fine", 1.0, -2.0, dtype=dtype), look("bad", 1.0, NAN, dtype=dtype)
    assert AsyncCheck([fine]).first() is None
    assert AsyncCheck([fine, bad, look("worse", -INF, dtype=dtype)]).first() == "bad"
    assert AsyncCheck([look("low", -INF, dtype=dtype)]).first() == "low"


def test_nan_beside_infinity_is_nan():
    assert AsyncCheck([look("cut", INF, may_be_infinite=True)]).first() is None
    assert AsyncCheck([look("cut", INF, NAN, may_be_infinite=True)]).first() == "cut"


def test_large_numbers_are_finite():
    assert (
        AsyncCheck([look("large", 1e300, dtype=torch.float64), look("float32", 3e38, 3e38)]).first() is None
    )


def test_whole_numbers_and_empty_tensors_are_finite():
    assert AsyncCheck([look("none"), look("whole", 1, dtype=torch.int64), look("bad", NAN)]).first() == "bad"
    assert AsyncCheck([]).first() is None


def test_findings_are_those_of_the_tensors_as_they_were():
    tensor = torch.ones(3)
    found = AsyncCheck([CheckedTensor("later", tensor)])
    tensor.fill_(NAN)
    assert found.first() is None


def test_batches_are_told_in_their_order():
    late, heard = PendingChecks(), []
    for what in ("one", "two", "three"):
        late.add([look(what, NAN if what != "two" else 0.0)], heard.append)
    assert heard == []
    late.report_ready()
    assert heard == ["one", "three"]
    late.report_ready(wait=True)
    assert heard == ["one", "three"]


def test_a_copy_of_what_is_on_the_host_is_there():
    copy = HostCopy(torch.tensor([1.0, 2.0]))
    assert copy.is_ready()
    assert copy.numbers() == [1.0, 2.0]
