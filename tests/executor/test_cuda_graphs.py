"""Runs recorded in CUDA graphs: when they are, that results stay the same, and what ends a recording."""

import logging
import re
import warnings
from unittest.mock import DEFAULT, MagicMock, call

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.executor import cuda_graph_mode, cuda_graphs
from dpmodule.executor.cuda_graphs import Driver, RecordedOutputs, unsupported_reason
from dpmodule.executor.program import program_of
from helpers.nets import blobs, lenet, mlp
from helpers.recording import FakeDriver

S = mx.sym
BATCH = 16
PLAIN, REHEARSED = 3, 1  # runs before one is recorded
ROW = (6,)


def deep():
    """Convolution, BatchNorm whose gamma is set by every forward, Dropout, dense."""
    net = S.Convolution(S.Variable("data"), kernel=(3, 3), num_filter=4, name="conv")
    net = S.Activation(S.BatchNorm(net, name="bn"), act_type="relu")
    net = S.FullyConnected(S.Dropout(net, p=0.3, name="drop"), num_hidden=4, name="fc")
    return S.SoftmaxOutput(net, name="softmax")


NETS = {"mlp": (mlp(dropout=0.5), ROW), "lenet": (lenet(), (1, 10, 10)), "deep": (deep(), (2, 6, 6))}


def batches(count, shape, size=BATCH):
    data, label = blobs(count * size, shape)
    for k in range(0, count * size, size):
        yield mx.io.DataBatch([mx.nd.array(data[k : k + size])], [mx.nd.array(label[k : k + size])])


def module(symbol, shape=ROW, ctx=None, cuda_graphs=True, **options):
    mod = mx.mod.Module(symbol, context=ctx or mx.cpu(), cuda_graphs=cuda_graphs)
    mod.bind([("data", (BATCH, *shape))], [("softmax_label", (BATCH,))], **options)
    mx.random.seed(3)
    mod.init_params(mx.init.Uniform(0.3))
    mod.init_optimizer(optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    mx.random.seed(7)
    return mod


@pytest.fixture
def faked(monkeypatch):
    """Return what makes a module whose runs are recorded by a stand-in for a GPU, and the stand-in."""

    def make(*args, ctx=None, **options):
        mod = module(*args)
        tensors = lambda: [a.tensor for e in mod.group.execs for a in (*e.arg_arrays, *e.aux_arrays)]  # noqa: E731
        return mod, FakeDriver(monkeypatch, tensors, **options)

    return make


def mode(mod, is_train=True):
    return mod.group.execs[0].execution_mode(is_train)


def gradients(mod):
    return [g[0].asnumpy() for g in mod.group.grad_arrays if g[0] is not None]


def trained(mod, shape=ROW, steps=9, before=lambda k: None):
    """Train, and return every output and the parameters and states at the end."""
    seen = []
    for k, batch in enumerate(batches(steps, shape)):
        before(k)
        mod.forward_backward(batch)
        mod.update()
        seen.append(mod.get_outputs()[0].asnumpy())
    return [*seen, *(v.asnumpy() for each in mod.get_params() for v in each.values())]


def assert_equal(one, other, **tolerance):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, **(tolerance or {"rtol": 0}))


@pytest.mark.parametrize("name", NETS)
def test_training_is_the_same(name, faked):
    expected = trained(module(*NETS[name]), NETS[name][1])
    mod, fake = faked(*NETS[name])
    assert_equal(expected, trained(mod, NETS[name][1]))
    assert (fake.rehearsed, fake.recorded, fake.replayed) == (1, 1, 9 - PLAIN - REHEARSED)


def test_prediction_is_the_same_and_follows_the_parameters(faked):
    net, shape = NETS["deep"]
    mod, fake = faked(net, shape)
    plain = mx.mod.Module(net, cuda_graphs=False)
    plain.bind([("data", (BATCH, *shape))], for_training=False)
    for batch in batches(8, shape):
        mod.forward_backward(batch)
        mod.update()
        mod.evaluate(batch)
        plain.set_params(*mod.get_params())
        plain.forward(batch, is_train=False)
        assert_equal([mod.get_outputs()[0].asnumpy()], [plain.get_outputs()[0].asnumpy()])
    assert fake.recorded == 2  # one for training, one for prediction


@pytest.mark.parametrize("req", ["write", "add", "null"])
def test_gradient_requests(req, faked, monkeypatch):
    found = []
    for recorded in (False, True):
        requests = {"grad_req": {"fc1_weight": req, "fc2_bias": "write"}, "inputs_need_grad": True}
        mod = module(mlp(), cuda_graphs=recorded, **requests)
        if recorded:
            FakeDriver(monkeypatch, lambda mod=mod: [a.tensor for a in mod.group.execs[0].arg_arrays])
        for batch in batches(7, ROW):
            mod.forward_backward(batch)
        found.append([mod.get_input_grads()[0].asnumpy(), *gradients(mod)])
    assert_equal(*found)


def test_a_monitor_sees_everything_and_the_recording_goes_on_after_it(faked):
    mod, fake = faked(mlp())
    names = []

    def watch(k):
        callback = (lambda name, value: names.append(name)) if k in (6, 7) else None
        mod.group.execs[0].set_monitor_callback(callback)

    trained(mod, steps=10, before=watch)
    assert names.count("tanh1_output") == 2
    assert (fake.recorded, fake.replayed) == (1, 10 - 2 - PLAIN - REHEARSED)


def test_a_parameter_in_other_memory_starts_anew(faked):
    expected = trained(module(mlp()), steps=20)[:20]
    mod, fake = faked(mlp())

    def move(k):
        if k == 6:
            store = mod.group.store
            store.place("fc1_weight", torch.zeros_like(store.array("fc1_weight", 0).tensor), keep=True)

    assert_equal(expected, trained(mod, steps=20, before=move)[:20])
    assert fake.recorded == 2
    assert fake.replayed == 20 - 2 * REHEARSED - PLAIN - 2 * PLAIN  # twice as long the second time


def test_separate_calls_and_shapes_that_come_and_go_are_not_recorded(faked):
    mod, fake = faked(mlp())
    for batch in batches(6, ROW):
        mod.forward(batch, is_train=True)
        mod.backward()
        mod.update()
    for k in range(12):
        for batch in batches(1, ROW, BATCH if k % 2 else BATCH // 2):
            mod.forward_backward(batch)
    assert fake.rehearsed == fake.recorded == 0


WAITED = "called a synchronizing CUDA operation"


WAITS = {"against": WAITED}, f"this graph runs without: {WAITED}"
FAILS = {"error": RuntimeError("out of memory")}, "RuntimeError: out of memory"


@pytest.mark.parametrize(("options", "said"), [WAITS, FAILS])
def test_what_waits_or_fails_runs_plainly_and_is_not_tried_again(options, said, faked, caplog):
    expected = trained(module(mlp()))
    mod, fake = faked(mlp(), **options)
    with caplog.at_level(logging.WARNING):
        assert_equal(expected, trained(mod))
    assert caplog.text.count(said) == 1
    assert (fake.rehearsed, fake.recorded) == (1, 0)
    assert said.split(": ")[-1] in mod.group.execs[0].explain().training.run


def test_reasons_against():
    loop = S.contrib.foreach(lambda x, s: (x + s, s), S.Variable("x"), S.Variable("s"))[0]
    nets = {"sort 'sort.*not known to work without": S.sort(S.Variable("x")), "runs code of its own": loop}
    for reason, net in {**nets, "without waiting": S.random.normal(shape=(3,)), "^$": deep()}.items():
        assert re.search(reason, unsupported_reason(program_of(net.graph, True)))


def test_explain_says_how_runs_are_done(faked):
    mod = module(mlp())
    assert mode(mod) == mod.group.execs[0].explain().training.run == "not in CUDA graphs: cpu(0) is not a GPU"
    assert cuda_graphs.driver_of(torch.device("cpu")) is None
    assert mode(module(mlp(), cuda_graphs=None)) == ""
    mod, _ = faked(mlp())
    assert mode(mod) == "CUDA graph, once it has repeated"
    trained(mod)
    assert mod.group.execs[0].explain().training.run == "CUDA graph"
    scores = S.sort(S.FullyConnected(S.Variable("data"), num_hidden=4), name="sorted")
    assert "sort 'sorted'" in mode(faked(S.SoftmaxOutput(scores, name="softmax"))[0])


# the driver of a GPU


@pytest.fixture
def gpu(monkeypatch):
    """Return what notes the calls of a driver, and the driver."""
    made = MagicMock()
    made.work.return_value = RecordedOutputs([made.kept], [None])
    monkeypatch.setattr(cuda_graphs, "gpu_module", lambda: made)
    driver = Driver(torch.device("cuda", 0))
    made.reset_mock()
    return made, driver


def names(gpu):
    return [name.replace("()", "") for name, *_ in gpu.mock_calls]


def test_a_driver_rehearses_on_the_stream_of_recordings(gpu):
    gpu, driver = gpu
    assert driver.warm_up(gpu.work) == (gpu.work.return_value, "")
    rehearsal = "set_sync_debug_mode stream stream.__enter__ work stream.__exit__ set_sync_debug_mode"
    before = "current_stream Stream.wait_stream get_sync_debug_mode"
    assert names(gpu) == f"{before} {rehearsal} current_stream.wait_stream kept.record_stream".split()
    texts = "a prototype feature", f"{WAITED} (Triggered internally)"
    gpu.work.side_effect = lambda: [warnings.warn(text, stacklevel=1) for text in texts] and DEFAULT
    assert "synchronizing" in driver.warm_up(gpu.work)[1]
    gpu.work.side_effect = ValueError("work")
    with pytest.raises(ValueError, match="work"):
        driver.warm_up(gpu.work)
    assert gpu.mock_calls[-1] == call.set_sync_debug_mode(gpu.get_sync_debug_mode())


def test_a_driver_records_and_comes_back_to_its_stream(gpu):
    gpu, driver = gpu
    replay, found = driver.record(gpu.work, ["generator"])
    assert (found, replay) == (gpu.work.return_value, gpu.CUDAGraph().replay)
    assert gpu.graph.call_args.kwargs["capture_error_mode"] == "thread_local"
    expected = "CUDAGraph.register_generator_state graph.__enter__ work graph.__exit__ set_stream"
    assert [name for name in names(gpu) if name in expected.split()] == expected.split()
    gpu.work.side_effect = RuntimeError("not permitted when stream is capturing")
    with pytest.raises(RuntimeError, match="not permitted"):
        driver.record(gpu.work, [])
    assert gpu.mock_calls[-1] == call.set_stream(gpu.current_stream())


# on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("name", NETS)
def test_training_on_a_gpu_is_the_same(name, monkeypatch):
    net, shape = NETS[name]
    mod = module(net, shape, mx.gpu())
    found = trained(mod, shape)
    assert mode(mod) == "CUDA graph"
    monkeypatch.setattr(cuda_graph_mode, "driver_of", lambda device: None)
    assert_equal(trained(module(net, shape, mx.gpu()), shape), found, rtol=1e-4, atol=1e-5)
