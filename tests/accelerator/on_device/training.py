"""Training on the simulated device: what the CPU gives, and how often Python waits for the device."""

import logging

import numpy as np
import pytest

from helpers import accelerator
from helpers.nets import blobs, conv_bn, mlp

mx = accelerator.install()
S, WAITS = mx.sym, accelerator.WAITS
GPU, CPU = mx.gpu(0), mx.cpu(0)
CONTEXTS = {"one": [GPU], "twice": [GPU, GPU], "with the CPU": [GPU, CPU]}
BATCH, BATCHES = 16, 5
on_gpus = pytest.mark.parametrize("contexts", ["one", "twice"])
everywhere = pytest.mark.parametrize("contexts", CONTEXTS)


NORMED = S.SoftmaxOutput(S.FullyConnected(conv_bn(S.Variable("data"), 4), num_hidden=4), name="softmax")
NETS = {"mlp": (mlp(), (6,)), "normed": (NORMED, (2, 6, 6))}
SGD = {"learning_rate": 0.1, "momentum": 0.9}


def data_of(name, bad=None):
    data, label = blobs(BATCH * BATCHES, NETS[name][1])
    if bad is not None:
        data[bad] = np.nan
    return mx.io.NDArrayIter(data, label, BATCH)


def on_cpus(contexts):
    return [mx.cpu(i) for i in range(len(CONTEXTS[contexts]))]


def trained(name, contexts, bad=None, net=None, **options):
    mx.random.seed(3)
    np.random.seed(3)
    where = CONTEXTS[contexts] if isinstance(contexts, str) else contexts
    module = mx.mod.Module(NETS[name][0] if net is None else net, context=where)
    known = {"num_epoch": 1, "initializer": mx.init.Uniform(0.3), "optimizer_params": SGD}
    module.fit(data_of(name, bad), **{**known, **options})
    return module


def parameters(module):
    return {name: array.asnumpy() for each in module.get_params() for name, array in each.items()}


def assert_equal(one, other, tolerance=1e-6):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_allclose(value, other[name], rtol=tolerance, atol=tolerance, err_msg=name)


def waits_by_batch(name, contexts, *before, **options):
    """Return how often each batch of a second epoch waited, but for the last, after which the metric is read."""
    seen = []
    heard = [*before, lambda _: seen.append(len(WAITS.found))]
    trained(name, contexts, num_epoch=2, batch_end_callback=heard, **options)
    return np.diff(seen[BATCHES:-1]).tolist()


@pytest.mark.parametrize("kvstore", ["local", "device"])
@everywhere
@pytest.mark.parametrize("name", ["mlp", "normed"])
def test_parameters_are_those_of_the_cpu(name, contexts, kvstore):
    expected = trained(name, on_cpus(contexts), kvstore=kvstore)
    assert_equal(parameters(trained(name, contexts, kvstore=kvstore)), parameters(expected))


@on_gpus
def test_a_steady_batch_waits_once_at_most(contexts):
    """The look at what is not finite; the metric is read at the end of the epoch."""
    assert waits_by_batch("normed", contexts, kvstore="device") == [1] * (BATCHES - 2)


@on_gpus
def test_a_steady_batch_that_is_not_looked_at_waits_for_nothing(contexts):
    metric = ["acc", "ce", mx.metric.TopKAccuracy(2)]
    for kvstore in ("local", "device") if contexts == "one" else ("device",):
        options = {"eval_metric": metric, "on_nonfinite": "ignore", "kvstore": kvstore}
        assert not any(waits_by_batch("normed", contexts, **options))


@on_gpus
def test_a_warning_waits_for_nothing_and_comes_later(contexts, caplog):
    options, heard = {"on_nonfinite": "warn", "kvstore": "device"}, []
    assert not any(waits_by_batch("mlp", contexts, **options))

    with caplog.at_level(logging.WARNING):
        options["batch_end_callback"] = lambda _: heard.append(len(caplog.records))
        trained("mlp", contexts, bad=2 * BATCH + 8, **options)
    texts = [record.getMessage() for record in caplog.records]
    assert [text.split(" is not")[0] for text in texts] == ["output 'softmax_output'"] * (BATCHES - 2)
    assert [text.split(" in ")[1][:7] for text in texts] == [f"batch {i}" for i in range(2, BATCHES)]
    assert (heard[2], heard[-1]) == (0, BATCHES - 2)


def test_a_store_that_adds_up_on_the_host_and_reading_the_metric_wait_once_more():
    """The first for the gradients of all contexts together."""
    assert set(waits_by_batch("mlp", "twice", kvstore="local")) == {2}
    assert set(waits_by_batch("mlp", "one", lambda param: param.eval_metric.get_name_value())) == {2}


@everywhere
def test_what_is_not_finite_is_named_and_applied_nowhere(contexts):
    modules, keep = [], lambda param: modules.append(param.locals["module"])
    said = r"batch 2 of epoch 0 \(samples 40\), first at the node 'data'"
    with pytest.raises(mx.base.NonFiniteError, match=said):
        trained("mlp", contexts, bad=2 * BATCH + 8, batch_end_callback=keep)
    assert len(modules) == 2
    assert all(np.isfinite(value).all() for value in parameters(modules[0]).values())


def test_prediction_and_scores():
    module, host, data = trained("normed", [GPU]), trained("normed", [CPU]), data_of("normed")
    np.testing.assert_allclose(module.predict(data).asnumpy(), host.predict(data).asnumpy(), 1e-5, 1e-6)
    assert module.score(data, "acc") == host.score(data, "acc")


@on_gpus
def test_prediction_waits_once_a_batch_to_look_for_nan(contexts):
    module, data = trained("mlp", contexts), data_of("mlp")
    assert len(WAITS.during(lambda: module.predict(data))) == BATCHES
    assert WAITS.during(lambda: module.predict(data, on_nonfinite="ignore")) == []
    assert len(WAITS.during(lambda: module.score(data, "acc"))) == BATCHES + 1  # and the metric


def test_checkpoints(tmp_path):
    prefix = str(tmp_path / "net")
    trained("normed", [GPU]).save_checkpoint(prefix, 1, save_optimizer_states=True)
    loaded = mx.mod.Module.load(prefix, 1, load_optimizer_states=True, context=GPU)
    loaded.fit(data_of("normed"), begin_epoch=1, num_epoch=2, optimizer_params=SGD)
    assert_equal(parameters(loaded), parameters(trained("normed", [CPU], num_epoch=2)))


def test_dropout_draws_the_same_numbers_again():
    options = {"net": mlp(dropout=0.5), "num_epoch": 2, "on_nonfinite": "ignore"}
    assert_equal(*(parameters(trained("mlp", [GPU], **options)) for _ in range(2)), 0)
