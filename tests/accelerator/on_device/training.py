"""Training on the simulated device: what the CPU gives, and how often Python waits for the device."""

import logging

import numpy as np
import pytest

from dpmodule.module.nonfinite import NonFiniteCheck
from helpers import accelerator
from helpers.nets import blobs, lenet, mlp

mx = accelerator.install()
S, WAITS = mx.sym, accelerator.WAITS
GPU, CPU = mx.gpu(0), mx.cpu(0)
CONTEXTS = {"one": [GPU], "twice": [GPU, GPU], "with the CPU": [GPU, CPU]}
BATCH, BATCHES = 16, 5
on_gpus = pytest.mark.parametrize("contexts", ["one", "twice"])
everywhere = pytest.mark.parametrize("contexts", CONTEXTS)


def normed():
    """Convolution, BatchNorm, dense."""
    net = S.Convolution(S.Variable("data"), kernel=(3, 3), num_filter=4, name="conv")
    net = S.Activation(S.BatchNorm(net, fix_gamma=False, name="bn"), act_type="relu")
    return S.SoftmaxOutput(S.FullyConnected(net, num_hidden=4, name="fc"), name="softmax")


LONG = pytest.param("lenet", marks=pytest.mark.slow)
NETS = {"mlp": (mlp(), (6,)), "lenet": (lenet(), (1, 10, 10)), "normed": (normed(), (2, 6, 6))}
SGD = {"learning_rate": 0.1, "momentum": 0.9}


def data_of(name, bad=None):
    data, label = blobs(BATCH * BATCHES, NETS[name][1])
    if bad is not None:
        data[bad] = np.nan
    return mx.io.NDArrayIter(data, label, BATCH)


def on_cpus(contexts):
    return [mx.cpu(i) for i in range(len(CONTEXTS[contexts]))]


def trained(name, contexts, bad=None, net=None, recorded=None, **options):
    mx.random.seed(3)
    np.random.seed(3)
    where = CONTEXTS[contexts] if isinstance(contexts, str) else contexts
    module = mx.mod.Module(NETS[name][0] if net is None else net, context=where, cuda_graphs=recorded)
    known = {"num_epoch": 1, "initializer": mx.init.Uniform(0.3), "optimizer_params": SGD}
    module.fit(data_of(name, bad), **{**known, **options})
    return module


def parameters(module):
    return {name: array.asnumpy() for each in module.get_params() for name, array in each.items()}


def assert_equal(one, other, tolerance=1e-6):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_allclose(value, other[name], rtol=tolerance, atol=tolerance, err_msg=name)


def steady(fit, *before):
    """Return how often each batch of a second epoch waited, but for the last, after which the metric is read."""
    seen = []
    fit(num_epoch=2, batch_end_callback=[*before, lambda _: seen.append(len(WAITS.found))])
    return np.diff(seen[BATCHES:-1]).tolist()


def waits_by_batch(name, contexts, *before, **options):
    return steady(lambda **given: trained(name, contexts, **given, **options), *before)


@pytest.mark.parametrize("kvstore", ["local", "device"])
@everywhere
@pytest.mark.parametrize("name", ["mlp", "normed", LONG])
def test_parameters_are_those_of_the_cpu(name, contexts, kvstore):
    expected = trained(name, on_cpus(contexts), kvstore=kvstore)
    assert_equal(parameters(trained(name, contexts, kvstore=kvstore)), parameters(expected))


@on_gpus
@pytest.mark.parametrize("name", ["normed", LONG])
def test_a_steady_batch_waits_once_at_most(name, contexts):
    """The look at what is not finite; the metric is read at the end of the epoch."""
    assert waits_by_batch(name, contexts, kvstore="device") == [1] * (BATCHES - 2)


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

    def note(param):
        heard.append(len(caplog.records))

    with caplog.at_level(logging.WARNING):
        trained("mlp", contexts, bad=2 * BATCH + 8, batch_end_callback=note, **options)
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
    modules = []

    def keep(param):
        modules.append(param.locals["module"])

    said = r"batch 2 of epoch 0 \(samples 40\), first at the node 'data'"
    with pytest.raises(mx.base.NonFiniteError, match=said):
        trained("mlp", contexts, bad=2 * BATCH + 8, batch_end_callback=keep)
    assert len(modules) == 2
    assert all(np.isfinite(value).all() for value in parameters(modules[0]).values())


def test_a_batch_that_is_not_finite_is_left_out():
    found, expected = (trained("mlp", [ctx], bad=20, on_nonfinite="skip") for ctx in (GPU, CPU))
    assert_equal(parameters(found), parameters(expected))


def bucketed(contexts):
    embedded = S.Embedding(S.Variable("data"), input_dim=11, output_dim=6, name="embed")
    net = S.FullyConnected(S.sum(S.tanh(embedded), axis=1), num_hidden=3, name="out")
    net = S.SoftmaxOutput(net, name="softmax")
    module = mx.mod.BucketingModule(lambda key: (net, ("data",), ("softmax_label",)), 10, context=contexts)
    module.bind([("data", (8, 10))], [("softmax_label", (8,))])
    mx.random.seed(3)
    module.init_params(mx.init.Xavier())
    module.init_optimizer(kvstore="device", optimizer_params={"learning_rate": 0.2, "momentum": 0.9})
    source = np.random.RandomState(1)
    for length in (10, 4, 7, 4, 10):
        given = [mx.nd.array(source.randint(0, 11, (8, length)))], [mx.nd.array(source.randint(0, 3, 8))]
        shapes = {"provide_data": [("data", (8, length))], "provide_label": [("softmax_label", (8,))]}
        module.forward_backward(mx.io.DataBatch(*given, bucket_key=length, **shapes))
        module.update()
    return parameters(module)


@everywhere
def test_buckets(contexts):
    assert_equal(bucketed(CONTEXTS[contexts]), bucketed(on_cpus(contexts)))


def chained(contexts):
    low = S.tanh(S.FullyConnected(S.Variable("data"), num_hidden=5, name="low"))
    top = S.SoftmaxOutput(S.FullyConnected(S.Variable("data"), num_hidden=4, name="top"), name="softmax")
    chain = mx.mod.SequentialModule()
    chain.add(mx.mod.Module(low, label_names=None, context=contexts))
    chain.add(mx.mod.Module(top, context=contexts), auto_wiring=True, take_labels=True)
    mx.random.seed(3)
    options = {"kvstore": "device", "initializer": mx.init.Xavier()}
    waits = steady(lambda **given: chain.fit(data_of("mlp"), **options, **given))
    return parameters(chain), waits


@everywhere
def test_chains(contexts):
    found, waits = chained(CONTEXTS[contexts])
    assert_equal(found, chained(on_cpus(contexts))[0])
    assert CPU in CONTEXTS[contexts] or max(waits) <= 1


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


def test_a_broken_run_goes_on(tmp_path):
    for epochs in (1, 2):
        where = {"checkpoint": str(tmp_path / "run"), "resume": "auto"}
        found = trained("mlp", [GPU], num_epoch=epochs, **where)
    assert_equal(parameters(found), parameters(trained("mlp", [CPU], num_epoch=2)))


def test_monitors(caplog):
    def seen(context):
        caplog.clear()
        with caplog.at_level(logging.INFO):
            trained("mlp", [context], monitor=mx.mon.Monitor(2, sort=True))
        return [record.getMessage() for record in caplog.records if "Batch:" in record.getMessage()]

    assert seen(GPU) == seen(CPU) != []


@pytest.mark.parametrize("name", ["mlp", "lenet"])
def test_recorded_runs_train_the_same_without_waiting(name):
    options = {"on_nonfinite": "ignore", "kvstore": "device", "num_epoch": 2}
    module = trained(name, [GPU], recorded=True, **options)
    assert module.group.execs[0].execution_mode(True) == "CUDA graph"
    assert_equal(parameters(module), parameters(trained(name, [CPU], **options)))
    del options["num_epoch"]
    assert not any(waits_by_batch(name, "one", recorded=True, **options))


def test_dropout_draws_the_same_numbers_again():
    dropped, found = mlp(dropout=0.5), []
    for recorded in (None, None, True):
        module = trained("mlp", [GPU], net=dropped, recorded=recorded, num_epoch=2, on_nonfinite="ignore")
        found.append(parameters(module))
    assert_equal(found[0], found[1], 0)
    assert_equal(found[0], found[2])


class Own:
    """A module that keeps its own updates."""

    output_names = ("out",)

    def output_probes(self):
        return [[mx.nd.ones((2,), ctx=GPU).raw]]

    def nonfinite_gradient(self):
        return "w"


def test_a_module_that_keeps_its_own_updates_is_asked_for_its_gradients():
    assert NonFiniteCheck(Own()).first() == "the gradient of 'w'"
