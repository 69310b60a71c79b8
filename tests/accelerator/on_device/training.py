"""Training on the simulated device: what the CPU gives, and how often Python waits for the device."""

import logging

import numpy as np
import pytest

from dpmodule.module.nonfinite import NonFiniteCheck
from helpers import accelerator
from helpers.nets import blobs, lenet, mlp

mx = accelerator.install()
WAITS = accelerator.WAITS
GPU, CPU = mx.gpu(0), mx.cpu(0)
CONTEXTS = {"one": [GPU], "twice": [GPU, GPU], "with the CPU": [GPU, CPU]}
BATCH, BATCHES = 16, 5


def normed():
    """Convolution, BatchNorm, dense."""
    net = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=4, name="conv")
    net = mx.sym.Activation(mx.sym.BatchNorm(net, fix_gamma=False, name="bn"), act_type="relu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=4, name="fc"), name="softmax")


LONG = pytest.param("lenet", marks=pytest.mark.slow)
NETS = {"mlp": (mlp(), (6,)), "lenet": (lenet(), (1, 10, 10)), "normed": (normed(), (2, 6, 6))}


def data_of(shape, bad=None):
    data, label = blobs(BATCH * BATCHES, shape)
    if bad is not None:
        data[bad] = np.nan
    return mx.io.NDArrayIter(data, label, BATCH)


def trained(net, shape, contexts, bad=None, **options):
    mx.random.seed(3)
    np.random.seed(3)
    module = mx.mod.Module(net, context=contexts)
    known = {
        "num_epoch": 1,
        "initializer": mx.init.Uniform(0.3),
        "optimizer_params": {"learning_rate": 0.1, "momentum": 0.9},
    }
    module.fit(data_of(shape, bad), **{**known, **options})
    return module


def parameters(module):
    args, states = module.get_params()
    return {name: array.asnumpy() for name, array in {**args, **states}.items()}


def assert_equal(one, other, tolerance=1e-6):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_allclose(value, other[name], rtol=tolerance, atol=tolerance, err_msg=name)


def waits_by_batch(net, shape, contexts, **options):
    """Return how often each batch of a second epoch waited, but for the last, after which the metric is read."""
    seen = []
    trained(
        net,
        shape,
        contexts,
        num_epoch=2,
        batch_end_callback=lambda _: seen.append(len(WAITS.found)),
        **options,
    )
    return np.diff(seen[BATCHES:-1])


@pytest.mark.parametrize("kvstore", ["local", "device"])
@pytest.mark.parametrize("contexts", CONTEXTS)
@pytest.mark.parametrize("net", ["mlp", "normed", LONG])
def test_parameters_are_those_of_the_cpu(net, contexts, kvstore):
    where = CONTEXTS[contexts]
    expected = trained(*NETS[net], [mx.cpu(i) for i in range(len(where))], kvstore=kvstore)
    assert_equal(parameters(trained(*NETS[net], where, kvstore=kvstore)), parameters(expected))


@pytest.mark.parametrize("contexts", ["one", "twice"])
@pytest.mark.parametrize("net", ["normed", LONG])
def test_a_steady_batch_waits_once_at_most(net, contexts):
    """The look at what is not finite; the metric is read at the end of the epoch."""
    found = waits_by_batch(*NETS[net], CONTEXTS[contexts], kvstore="device")
    assert found.tolist() == [1] * (BATCHES - 2)


@pytest.mark.parametrize("contexts", ["one", "twice"])
def test_a_steady_batch_that_is_not_looked_at_waits_for_nothing(contexts):
    metric = ["acc", "ce", mx.metric.TopKAccuracy(2)]
    found = waits_by_batch(*NETS["normed"], CONTEXTS[contexts], eval_metric=metric, on_nonfinite="ignore")
    if contexts == "one":
        assert not found.any()
    found = waits_by_batch(
        *NETS["normed"], CONTEXTS[contexts], eval_metric=metric, on_nonfinite="ignore", kvstore="device"
    )
    assert not found.any()


@pytest.mark.parametrize("contexts", ["one", "twice"])
def test_a_warning_waits_for_nothing_and_comes_later(contexts, caplog):
    options = {"on_nonfinite": "warn", "kvstore": "device"}
    assert not waits_by_batch(*NETS["mlp"], CONTEXTS[contexts], **options).any()
    heard = []

    def note(param):
        heard.append(len(caplog.records))

    with caplog.at_level(logging.WARNING):
        trained(*NETS["mlp"], CONTEXTS[contexts], bad=2 * BATCH + 8, batch_end_callback=note, **options)
    texts = [record.getMessage() for record in caplog.records]
    assert [text.split(" is not")[0] for text in texts] == ["output 'softmax_output'"] * (BATCHES - 2)
    assert [text.split(" in ")[1][:7] for text in texts] == [f"batch {i}" for i in range(2, BATCHES)]
    assert heard[2] == 0
    assert heard[-1] == BATCHES - 2


def test_a_store_that_adds_up_on_the_host_waits_once_more():
    """For the gradients of all contexts together."""
    assert set(waits_by_batch(*NETS["mlp"], CONTEXTS["twice"], kvstore="local")) == {2}


def test_reading_the_metric_in_every_batch_waits_once_more():
    def read(param):
        param.eval_metric.get_name_value()

    found = []
    trained(
        *NETS["mlp"], [GPU], num_epoch=2, batch_end_callback=[read, lambda _: found.append(len(WAITS.found))]
    )
    assert set(np.diff(found[BATCHES:-1])) == {2}


@pytest.mark.parametrize("contexts", CONTEXTS)
def test_what_is_not_finite_is_named_and_applied_nowhere(contexts):
    batches = []
    with pytest.raises(
        mx.base.NonFiniteError, match=r"batch 2 of epoch 0 \(samples 40\), first at the node 'data'"
    ):
        trained(
            *NETS["mlp"],
            CONTEXTS[contexts],
            bad=2 * BATCH + 8,
            batch_end_callback=lambda param: batches.append(param.locals["module"]),
        )
    assert len(batches) == 2
    assert all(np.isfinite(value).all() for value in parameters(batches[0]).values())


def test_a_batch_that_is_not_finite_is_left_out():
    expected = trained(*NETS["mlp"], [CPU], bad=20, on_nonfinite="skip")
    assert_equal(parameters(trained(*NETS["mlp"], [GPU], bad=20, on_nonfinite="skip")), parameters(expected))


def sentence(length):
    """A graph that depends on the length of its data."""
    data = mx.sym.Variable("data")
    embedded = mx.sym.Embedding(data, input_dim=11, output_dim=6, name="embed")
    state = mx.sym.sum(mx.sym.tanh(embedded), axis=1)
    out = mx.sym.FullyConnected(state, num_hidden=3, name="out")
    return mx.sym.SoftmaxOutput(out, name="softmax"), ("data",), ("softmax_label",)


def bucketed(contexts):
    module = mx.mod.BucketingModule(sentence, 10, context=contexts)
    module.bind([("data", (8, 10))], [("softmax_label", (8,))])
    mx.random.seed(3)
    module.init_params(mx.init.Xavier())
    module.init_optimizer(kvstore="device", optimizer_params={"learning_rate": 0.2, "momentum": 0.9})
    source = np.random.RandomState(1)
    for length in (10, 4, 7, 4, 10):
        shapes = [mx.io.DataDesc("data", (8, length))], [mx.io.DataDesc("softmax_label", (8,))]
        batch = mx.io.DataBatch(
            [mx.nd.array(source.randint(0, 11, (8, length)))],
            [mx.nd.array(source.randint(0, 3, 8))],
            bucket_key=length,
            provide_data=shapes[0],
            provide_label=shapes[1],
        )
        module.forward_backward(batch)
        module.update()
    return parameters(module)


@pytest.mark.parametrize("contexts", CONTEXTS)
def test_buckets(contexts):
    where = CONTEXTS[contexts]
    assert_equal(bucketed(where), bucketed([mx.cpu(i) for i in range(len(where))]))


def chained(contexts):
    low = mx.sym.Activation(
        mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=5, name="low"), act_type="tanh"
    )
    top = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="top")
    chain = mx.mod.SequentialModule()
    chain.add(mx.mod.Module(low, label_names=None, context=contexts))
    chain.add(
        mx.mod.Module(mx.sym.SoftmaxOutput(top, name="softmax"), context=contexts),
        auto_wiring=True,
        take_labels=True,
    )
    mx.random.seed(3)
    seen = []
    chain.fit(
        data_of((6,)),
        num_epoch=2,
        kvstore="device",
        initializer=mx.init.Xavier(),
        batch_end_callback=lambda _: seen.append(len(WAITS.found)),
    )
    return parameters(chain), np.diff(seen[BATCHES:-1])


@pytest.mark.parametrize("contexts", CONTEXTS)
def test_chains(contexts):
    where = CONTEXTS[contexts]
    found, waits = chained(where)
    assert_equal(found, chained([mx.cpu(i) for i in range(len(where))])[0])
    if CPU not in where:
        assert max(waits) <= 1


def test_prediction_and_scores():
    module, host = trained(*NETS["normed"], [GPU]), trained(*NETS["normed"], [CPU])
    data = data_of(NETS["normed"][1])
    np.testing.assert_allclose(module.predict(data).asnumpy(), host.predict(data).asnumpy(), 1e-5, 1e-6)
    assert module.score(data, "acc") == host.score(data, "acc")


@pytest.mark.parametrize("contexts", ["one", "twice"])
def test_prediction_waits_once_a_batch_to_look_for_nan(contexts):
    module, data = trained(*NETS["mlp"], CONTEXTS[contexts]), data_of((6,))
    assert len(WAITS.during(lambda: module.predict(data))) == BATCHES
    assert WAITS.during(lambda: module.predict(data, on_nonfinite="ignore")) == []
    assert len(WAITS.during(lambda: module.score(data, "acc"))) == BATCHES + 1  # and the metric


def test_checkpoints(tmp_path):
    prefix = str(tmp_path / "net")
    module = trained(*NETS["normed"], [GPU])
    module.save_checkpoint(prefix, 1, save_optimizer_states=True)
    loaded = mx.mod.Module.load(prefix, 1, load_optimizer_states=True, context=GPU)
    whole = trained(*NETS["normed"], [CPU], num_epoch=2)
    loaded.fit(
        data_of(NETS["normed"][1]),
        begin_epoch=1,
        num_epoch=2,
        optimizer_params={"learning_rate": 0.1, "momentum": 0.9},
    )
    assert_equal(parameters(loaded), parameters(whole))


def test_a_broken_run_goes_on(tmp_path):
    where = {"checkpoint": str(tmp_path / "run"), "resume": "auto"}
    trained(*NETS["mlp"], [GPU], num_epoch=1, **where)
    found = trained(*NETS["mlp"], [GPU], num_epoch=2, **where)
    assert_equal(parameters(found), parameters(trained(*NETS["mlp"], [CPU], num_epoch=2)))


def test_monitors(caplog):
    def seen(context):
        caplog.clear()
        with caplog.at_level(logging.INFO):
            trained(*NETS["mlp"], [context], monitor=mx.mon.Monitor(2, sort=True))
        return [record.getMessage() for record in caplog.records if "Batch:" in record.getMessage()]

    assert seen(GPU) == seen(CPU) != []


def test_dropout_draws_the_same_numbers_again():
    once, again = (parameters(trained(mlp(dropout=0.5), (6,), [GPU])) for _ in range(2))
    assert_equal(once, again, 0)


def test_a_module_that_keeps_its_own_updates_is_asked_for_its_gradients():
    class Own:
        output_names = ("out",)

        def output_probes(self):
            return [[mx.nd.ones((2,), ctx=GPU).raw]]

        def nonfinite_gradient(self):
            return "w"

    assert NonFiniteCheck(Own()).first() == "the gradient of 'w'"
