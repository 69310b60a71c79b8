"""NaN and infinity: in gradients before an update, and in rows that are predicted; what is named, and when."""

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import NonFiniteError
from dpmodule.module.nonfinite import AsyncCheck, CheckedTensor, PendingChecks
from helpers.small_fits import TWO, both_contexts, parameters

S = mx.sym
X = np.random.RandomState(0).uniform(-1, 1, (24, 4)).astype("f4")
Y = (X[:, 0] > 0).astype("f4")
XAVIER = mx.init.Xavier()


def dense(data=None, hidden=2, name="top"):
    return S.FullyConnected(S.Variable("data") if data is None else data, num_hidden=hidden, name=name)


def softmax(net):
    return S.SoftmaxOutput(net, name="softmax")


def spoiling(norm=True):
    """A network with finite outputs whose gradient is NaN: that of a root at 0."""
    net = dense(hidden=6, name="low")
    if norm:
        net = S.BatchNorm(net, name="bn", fix_gamma=False)
    return softmax(dense(net + S.sqrt(net * 0)))


def rooted():
    """A network that takes a logarithm in its midst."""
    net = S.Dropout(S.log(dense(hidden=4, name="low"), name="logarithm"), p=0.3)
    return softmax(dense(net))


class Batches(mx.io.NDArrayIter):
    """Batches that tell a bucket."""

    def next(self):
        batch = super().next()
        batch.bucket_key, batch.provide_data, batch.provide_label = 1, self.provide_data, self.provide_label
        return batch


def batches(x=X, y=Y):
    return Batches(x, y, 8)


def chained(net, contexts):
    module = mx.mod.SequentialModule()
    module.add(mx.mod.Module(dense(hidden=4, name="first"), label_names=None, context=contexts))
    return module.add(mx.mod.Module(net, context=contexts), take_labels=True, auto_wiring=True)


KINDS = {
    "module": lambda net, contexts: mx.mod.Module(net, context=contexts),
    "buckets": lambda net, contexts: mx.mod.BucketingModule(
        lambda key: (net, ["data"], ["softmax_label"]), default_bucket_key=1, context=contexts
    ),
    "chain": chained,
}


@both_contexts
@pytest.mark.parametrize("kvstore", ["local", None])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_that_are_nan_change_nothing(kind, kvstore, contexts):
    module, data = KINDS[kind](spoiling(), contexts), batches()
    module.bind(data.provide_data, data.provide_label)
    module.init_params(XAVIER)
    before = parameters(module)
    words = r"the gradient of '.*is not finite in batch 0 of epoch 0 \(samples 0, 1, 2, 3, 4, 5, 6, 7\)"
    with pytest.raises(NonFiniteError, match=words + ".*; the parameters are those before this batch"):
        module.fit(data, num_epoch=1, kvstore=kvstore)
    after = parameters(module)
    assert any("moving" in name for name in before)
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value, err_msg=name)
    module.forward(next(batches()), is_train=False)
    assert np.isfinite(module.get_outputs()[0].asnumpy()).all()


@both_contexts
@pytest.mark.parametrize("kind", KINDS)
def test_the_node_where_it_begins_is_named(kind, contexts):
    words = "first at the node 'logarithm_output'; the parameters are those before"
    with pytest.raises(NonFiniteError, match=words):
        KINDS[kind](rooted(), contexts).fit(batches(), num_epoch=1, initializer=XAVIER)


def test_infinite_gradients_that_are_clipped_are_taken():
    net = S.FullyConnected(S.Variable("data"), num_hidden=1, no_bias=True, name="fc")
    net = S.MakeLoss(S.clip(net, a_min=-1e30, a_max=1e30), grad_scale=1e30, name="loss")
    data = mx.io.NDArrayIter(np.full((4, 3), 1e10, "f4"), None, 4)
    options = {"num_epoch": 1, "eval_metric": mx.metric.Loss()}
    with pytest.raises(NonFiniteError, match="the gradient of 'fc_weight'"):
        mx.mod.Module(net, label_names=None).fit(data, **options)
    module = mx.mod.Module(net, label_names=None)
    module.fit(data, optimizer_params={"learning_rate": 0.1, "clip_gradient": 1.0}, **options)
    assert np.isfinite(parameters(module)["fc_weight"]).all()


def rows_of_a_table():
    table = S.Variable("table_weight", stype="row_sparse")
    net = S.Embedding(S.Variable("data"), table, 9, 3, sparse_grad=True)
    return softmax(dense(net + S.sqrt(net * 0))), np.arange(8.0), np.zeros(8)


INFINITE = np.where(np.arange(24)[:, None] == 9, np.inf, X)
NAMED = {
    "float64": (lambda: (spoiling(norm=False), mx.nd.array(X, dtype="float64"), Y), "the gradient of 'low_"),
    "float16": (lambda: (spoiling(norm=False), mx.nd.array(X, dtype="float16"), Y), "the gradient of 'low_"),
    "rows": (rows_of_a_table, "the gradient of 'table_weight'"),
    "data": (lambda: (softmax(dense()), INFINITE, Y), r"in batch 1 of epoch 0 .*, first at the node 'data'"),
}


@pytest.mark.filterwarnings("ignore:.*16-bit parameters")
@pytest.mark.parametrize("name", NAMED)
def test_what_is_not_finite_is_named(name):
    make, words = NAMED[name]
    net, x, y = make()
    with pytest.raises(NonFiniteError, match=words):
        mx.mod.Module(net).fit(batches(x, y), num_epoch=1, initializer=mx.init.Uniform(0.5))


def with_nan(rows, count=22):
    """Data of some rows, of which a few are NaN, in batches of which the last is padded with the first rows."""
    x = X[:count].copy()
    x[rows, 1] = np.nan
    return mx.io.NDArrayIter(x, Y[:count], 8)


@pytest.mark.parametrize("method", ["predict", "score", "iter_predict"])
def test_rows_that_are_nan_are_counted(method, caplog):
    module = mx.mod.Module(softmax(dense()), context=TWO)
    module.fit(batches(), num_epoch=1)

    def call(data, **options):
        given = (data, "acc") if method == "score" else (data,)
        return list(getattr(module, method)(*given, **options))

    what = "score" if method == "score" else "predict"
    call(with_nan([]))
    call(with_nan([5]), on_nonfinite="ignore")
    assert caplog.text == ""
    call(with_nan([0, 9, 21]))  # the first row also pads the last batch
    call(with_nan([19]))
    module.predict(np.where(np.arange(8)[:, None] == 3, np.nan, X[:8]))
    assert caplog.messages == [
        f"{what}: 3 rows of the outputs are NaN, the first at index 0",
        f"{what}: 1 row of the outputs is NaN, the first at index 19",
        "predict: 1 row of the outputs is NaN, the first at index 3",
    ]
    with pytest.raises(NonFiniteError, match=f"{what}: 2 rows .* the first at index 10; it is in batch 1"):
        call(with_nan([10, 13, 20]), on_nonfinite="raise")


def test_looking_for_the_node_draws_no_numbers():
    def drawn(how):
        mx.random.seed(3)
        mx.mod.Module(rooted()).fit(batches(), num_epoch=1, initializer=XAVIER, on_nonfinite=how)
        return mx.nd.random.uniform(shape=(3,)).asnumpy()

    np.testing.assert_array_equal(drawn("skip"), drawn("ignore"))


class Distrustful(mx.mod.Module):
    """Finds a gradient bad by itself."""

    def nonfinite_gradient(self):
        return "mine"


@pytest.mark.parametrize("in_chain", [False, True])
def test_a_module_of_a_program_may_find_bad_gradients_itself(in_chain):
    module = Distrustful(softmax(dense()))
    if in_chain:
        module = mx.mod.SequentialModule().add(module, take_labels=True)
    with pytest.raises(NonFiniteError, match="the gradient of 'mine' is not finite in batch 0 of epoch 0"):
        module.fit(batches(), num_epoch=1)


NAN, INF = float("nan"), float("inf")


def look(what, *numbers, dtype=torch.float32, **rest):
    return CheckedTensor(what, torch.tensor(numbers, dtype=dtype), **rest)


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
    for wait in (False, True):
        late.report_ready(wait=wait)
        assert heard == ["one", "three"]


def test_it_is_said_when_parameters_were_spoilt_before(caplog):
    module = mx.mod.Module(spoiling(norm=False))
    module.fit(batches(), num_epoch=1, initializer=XAVIER, on_nonfinite="warn")
    words = "is not finite in batch 0 of epoch 0 (samples 0, 1, 2, 3, 4, 5, 6, 7); training continues and may corrupt"
    assert words in caplog.text
    words = r"before this batch there were already .* not finite in low_weight, low_bias"
    with pytest.raises(NonFiniteError, match=words):
        module.fit(batches(), num_epoch=1)
