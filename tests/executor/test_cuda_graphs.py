"""Runs recorded in CUDA graphs: when they are, that results stay the same, and what ends a recording."""

import contextlib
import logging
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.executor import cuda_graph_mode, cuda_graphs
from dpmodule.executor.cuda_graphs import Driver, RecordedOutputs, unsupported_reason, without_aliases
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


def test_outputs_and_gradients_that_somebody_looks_at(faked):
    mod, _ = faked(mlp())
    kept, grad, views = [], mod.group.grad_arrays[0][0], []
    for batch in batches(8, ROW):
        mod.forward_backward(batch)
        out = mod.get_outputs()[0]
        kept.append((out.torch(), out.asnumpy()))
        views.append(grad.torch())
        mod.update()
    assert_equal(*zip(*((view.numpy(), value) for view, value in kept)))  # what was taken keeps its values
    assert len({view.data_ptr() for view in views}) == 1  # of a gradient it shows the newest
    assert_equal([views[0].numpy()], [grad.asnumpy()])


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


def test_a_second_backward_gives_the_gradients_once_more(faked):
    mod, _ = faked(*NETS["mlp"])
    for batch in batches(7, ROW):
        mod.forward_backward(batch)
        first = gradients(mod)
        mod.backward()
        assert_equal(first, gradients(mod))


def test_a_batch_may_change_after_the_call(faked):
    mod, _ = faked(mlp())
    for batch in batches(6, ROW):
        given = batch.data[0].asnumpy()
        mod.forward_backward(batch)
        seen = mod.group.execs[0].arg_dict["data"]
        assert_equal([seen.asnumpy()], [given])
        batch.data[0][:] = 0
        assert_equal([seen.asnumpy()], [given])


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


def test_buckets_that_change_are_not_recorded_and_one_that_stays_is(monkeypatch):
    def step(length):
        shapes = {"provide_data": [("data", (4, length))], "provide_label": [("softmax_label", (4,))]}
        given = [mx.nd.ones((4, length))], [mx.nd.zeros((4,))]
        mod.forward_backward(mx.io.DataBatch(*given, bucket_key=length, **shapes))
        mod.update()

    table = S.Embedding(S.Variable("data"), input_dim=9, output_dim=4, name="table")
    net = S.SoftmaxOutput(S.FullyConnected(S.mean(table, axis=1), num_hidden=3, name="fc"), name="softmax")
    mod = mx.mod.BucketingModule(lambda key: (net, ("data",), ("softmax_label",)), 5, cuda_graphs=True)
    mod.bind([("data", (4, 5))], [("softmax_label", (4,))])
    mod.init_params()
    mod.init_optimizer()
    fake = FakeDriver(monkeypatch)
    for length in (5, 3) * 6:
        step(length)
    assert fake.rehearsed == 0
    for _ in range(6):
        step(3)
    assert (fake.rehearsed, fake.recorded) == (1, 1)


WAITED = "called a synchronizing CUDA operation"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"against": WAITED}, f"this graph runs without: {WAITED}"),
        ({"error": RuntimeError("out of memory")}, "RuntimeError: out of memory"),
    ],
)
def test_what_waits_or_fails_runs_plainly_and_is_not_tried_again(options, said, faked, caplog):
    expected = trained(module(mlp()))
    mod, fake = faked(mlp(), **options)
    with caplog.at_level(logging.WARNING):
        assert_equal(expected, trained(mod))
    assert caplog.text.count(said) == 1
    assert (fake.rehearsed, fake.recorded) == (1, 0)
    assert said.split(": ")[-1] in mod.group.execs[0].explain().training.run


@pytest.mark.parametrize(
    ("net", "reason"),
    [
        (mlp(dropout=0.5), ""),
        (deep(), ""),
        (S.sort(S.Variable("x")), "sort 'sort.*not known to work without waiting"),
        (S.random.normal(shape=(3,)), "not known to work without waiting"),
        (
            S.contrib.foreach(lambda x, s: (x + s, s), S.Variable("x"), S.Variable("s"))[0],
            "runs code of its own",
        ),
    ],
)
def test_reasons_against(net, reason):
    found = unsupported_reason(program_of(net.graph, True))
    assert re.search(reason, found) if reason else found == ""


def test_explain_says_how_runs_are_done(faked):
    mod = module(mlp())
    trained(mod)
    assert mode(mod) == mod.group.execs[0].explain().training.run == "not in CUDA graphs: cpu(0) is not a GPU"
    assert cuda_graphs.driver_of(torch.device("cpu")) is None
    assert mode(module(mlp(), cuda_graphs=None)) == ""
    mod, _ = faked(mlp())
    assert mode(mod) == "CUDA graph, once it has repeated"
    trained(mod)
    found = mod.group.execs[0].explain()
    assert found.training.run == "CUDA graph"
    assert "# CUDA graph\ndef forward" in found.source
    scores = S.sort(S.FullyConnected(S.Variable("data"), num_hidden=4), name="sorted")
    assert "sort 'sorted'" in mode(faked(S.SoftmaxOutput(scores, name="softmax"))[0])


def test_every_safe_operator_exists():
    assert [name for name in cuda_graphs._SAFE if mx.ops.get(name).name != name] == []


def test_what_shares_memory_is_copied():
    a, b = torch.arange(6.0).view(2, 3), torch.ones(3)
    given = [a, a[0], a.T, None, b, b, torch.zeros(())]
    found = without_aliases(given, [b])
    assert found[0] is a
    pointers = [t.data_ptr() for t in (*found, b) if t is not None]
    assert len(set(pointers)) == len(pointers)
    for got, wanted in zip(found, given, strict=True):
        assert got is wanted is None or (torch.equal(got, wanted) and got.is_contiguous())


# the driver of a GPU


class FakeCuda:
    """The parts of `torch.cuda` that a driver calls; notes the order, and may fail at the end of a recording."""

    def __init__(self, monkeypatch, failure=None):
        self.calls, self.failure, self.mode, note = [], failure, 0, self.note
        self.here, self.side = (SimpleNamespace(name=name) for name in ("here", "side"))
        for each in (self.here, self.side):
            each.wait_stream = lambda other, name=each.name: note(name, "waits for", other.name)
        graph = SimpleNamespace(replay=lambda: note("replay"))
        graph.register_generator_state = lambda generator: note("register", generator)
        names = {
            "Stream": lambda device: self.side,
            "graph_pool_handle": lambda: "pool",
            "current_stream": lambda device: self.here,
            "set_stream": lambda stream: note("set", stream.name),
            "stream": lambda stream: self.block("on", stream.name),
            "device": lambda device: contextlib.nullcontext(),
            "CUDAGraph": lambda: graph,
            "graph": lambda _, pool, stream, **mode: self.block(pool, stream.name, *mode.values()),
            "get_sync_debug_mode": lambda: self.mode,
            "set_sync_debug_mode": self.set_mode,
        }
        for name, value in names.items():
            monkeypatch.setattr(torch.cuda, name, value)
        self.driver = Driver(torch.device("cuda", 0))
        kept = SimpleNamespace(record_stream=lambda stream: note("kept for", stream.name))
        self.results = RecordedOutputs([kept], [None])

    def note(self, *words):
        self.calls.append(" ".join(words))

    @contextlib.contextmanager
    def block(self, *words):
        self.note(*words)
        yield
        if self.failure is not None:
            raise self.failure
        self.note("end")

    def set_mode(self, mode):
        self.mode = mode
        self.note(f"mode {mode}")
        if mode == "warn":
            warnings.warn("Synchronization debug mode is a prototype feature", UserWarning, stacklevel=1)

    def work(self):
        self.note("work")
        return self.results


def test_a_driver_rehearses_on_the_stream_of_recordings(monkeypatch):
    cuda = FakeCuda(monkeypatch)
    assert cuda.driver.warm_up(cuda.work) == (cuda.results, "")
    rehearsal = ["mode warn", "on side", "work", "end", "mode 0"]
    assert cuda.calls == ["side waits for here", *rehearsal, "here waits for side", "kept for here"]


def test_a_driver_notices_that_python_waits(monkeypatch):
    cuda = FakeCuda(monkeypatch)

    def work():
        warnings.warn(f"{WAITED} (Triggered internally)", UserWarning, stacklevel=1)
        return cuda.results

    assert "synchronizing" in cuda.driver.warm_up(work)[1]
    with pytest.raises(ValueError, match="work"):
        cuda.driver.warm_up(lambda: int("work"))
    assert cuda.mode == 0


def test_a_driver_records_and_comes_back_to_its_stream(monkeypatch):
    cuda = FakeCuda(monkeypatch)
    replay, found = cuda.driver.record(cuda.work, ["generator"])
    assert found is cuda.results
    replay()
    capture = ["pool side thread_local", "work", "end"]
    assert cuda.calls == ["register generator", *capture, "set here", "replay"]
    cuda = FakeCuda(monkeypatch, RuntimeError("not permitted when stream is capturing"))
    with pytest.raises(RuntimeError, match="not permitted"):
        cuda.driver.record(cuda.work, [])
    assert cuda.calls[-1] == "set here"


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


@pytest.mark.gpu
def test_prediction_on_a_gpu_is_recorded():
    mod, outs = module(deep(), (2, 6, 6), mx.gpu()), []
    (batch,) = batches(1, (2, 6, 6))
    for _ in range(7):
        mod.evaluate(batch)
        outs.append(mod.get_outputs()[0].asnumpy())
    assert mode(mod, False) == "CUDA graph"
    for out in outs[1:]:
        assert_equal([out], [outs[0]], rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
def test_a_monitor_ends_no_recording_on_a_gpu():
    mod, names = module(mlp(), ctx=mx.gpu()), []
    trained(mod)
    mod.group.execs[0].set_monitor_callback(lambda name, value: names.append(name))
    trained(mod, steps=1)
    mod.group.execs[0].set_monitor_callback(None)
    trained(mod, steps=2)
    assert "tanh1_output" in names
    assert mode(mod) == "CUDA graph"
