"""Runs recorded in CUDA graphs: when they are, that results stay the same, and what ends a recording."""

import contextlib
import logging
import re
import warnings

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.executor import cuda_graph_mode, cuda_graphs
from dpmodule.executor.cuda_graphs import RecordedOutputs, Recorder, unsupported_reason, without_aliases
from dpmodule.executor.program import program_of
from helpers.nets import blobs, lenet, mlp
from helpers.recording import FakeDriver

BATCH = 16
PLAIN, REHEARSED = 3, 1  # runs before one is recorded


def deep():
    """Convolution, BatchNorm whose gamma is set by every forward, Dropout, dense."""
    net = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=4, name="conv")
    net = mx.sym.BatchNorm(net, name="bn")
    net = mx.sym.Dropout(mx.sym.Activation(net, act_type="relu"), p=0.3, name="drop")
    net = mx.sym.FullyConnected(net, num_hidden=4, name="fc")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def batches(count, shape, size=BATCH):
    data, label = blobs(count * size, shape)
    for k in range(count):
        rows = slice(k * size, (k + 1) * size)
        yield mx.io.DataBatch([mx.nd.array(data[rows])], [mx.nd.array(label[rows])])


def module(symbol, shape, size=BATCH, ctx=None, **options):
    mod = mx.mod.Module(symbol, context=ctx or mx.cpu(), cuda_graphs=True, **options)
    mod.bind([("data", (size, *shape))], [("softmax_label", (size,))])
    mx.random.seed(3)
    mod.init_params(mx.init.Uniform(0.3))
    mod.init_optimizer(optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    mx.random.seed(7)
    return mod


def memory_of(mod):
    return lambda: [a.tensor for e in mod.group.execs for a in (*e.arg_arrays, *e.aux_arrays)]


def trained(mod, shape, steps=9):
    """Train, and return every output and the parameters and states at the end."""
    seen = []
    for batch in batches(steps, shape):
        mod.forward_backward(batch)
        mod.update()
        seen.append(mod.get_outputs()[0].asnumpy())
    arg, aux = mod.get_params()
    return seen, {k: v.asnumpy() for k, v in {**arg, **aux}.items()}


def assert_equal(one, other):
    for a, b in zip(one[0], other[0], strict=True):
        np.testing.assert_array_equal(a, b)
    assert one[1].keys() == other[1].keys()
    for name, value in one[1].items():
        np.testing.assert_array_equal(value, other[1][name], err_msg=name)


@pytest.mark.parametrize(
    ("net", "shape"), [(mlp(dropout=0.5), (6,)), (lenet(), (1, 10, 10)), (deep(), (2, 6, 6))]
)
def test_training_is_the_same(net, shape, monkeypatch):
    expected = trained(module(net, shape), shape)
    mod = module(net, shape)
    fake = FakeDriver(monkeypatch, memory_of(mod))
    assert_equal(expected, trained(mod, shape))
    assert (fake.rehearsed, fake.recorded, fake.replayed) == (1, 1, 9 - PLAIN - REHEARSED)


def test_prediction_is_the_same_and_follows_the_parameters(monkeypatch):
    shape, net = (2, 6, 6), deep()
    mod = module(net, shape)
    fake = FakeDriver(monkeypatch, memory_of(mod))
    plain = mx.mod.Module(net, cuda_graphs=False)
    plain.bind([("data", (BATCH, *shape))], for_training=False)
    for k, batch in enumerate(batches(8, shape)):
        mod.forward_backward(batch)
        mod.update()
        mod.evaluate(batch)
        plain.set_params(*mod.get_params())
        plain.forward(batch, is_train=False)
        np.testing.assert_array_equal(
            mod.get_outputs()[0].asnumpy(), plain.get_outputs()[0].asnumpy(), err_msg=str(k)
        )
    assert fake.recorded == 2  # one for training, one for prediction


def test_outputs_and_gradients_that_somebody_looks_at(monkeypatch):
    shape = (6,)
    mod = module(mlp(), shape)
    FakeDriver(monkeypatch, memory_of(mod))
    kept, grad, views = [], mod.group.grad_arrays[0][0], []
    for batch in batches(8, shape):
        mod.forward_backward(batch)
        out = mod.get_outputs()[0]
        kept.append((out.torch(), out.asnumpy()))
        views.append(grad.torch())
        mod.update()
    for view, value in kept:  # a tensor taken from an output keeps its values
        np.testing.assert_array_equal(view.numpy(), value)
    assert all(
        view.data_ptr() == views[0].data_ptr() for view in views[1:]
    )  # one of a gradient shows the newest
    np.testing.assert_array_equal(views[0].numpy(), grad.asnumpy())


@pytest.mark.parametrize("req", ["write", "add", "null"])
def test_gradient_requests(req, monkeypatch):
    def gradients(fake):
        mod = mx.mod.Module(mlp(), cuda_graphs=fake)
        requests = {"fc1_weight": req, "fc2_bias": "write"}
        mod.bind(
            [("data", (BATCH, 6))], [("softmax_label", (BATCH,))], grad_req=requests, inputs_need_grad=True
        )
        mx.random.seed(3)
        mod.init_params(mx.init.Uniform(0.3))
        if fake:
            FakeDriver(monkeypatch, memory_of(mod))
        for batch in batches(7, (6,)):
            mod.forward_backward(batch)
        found = [mod.get_input_grads()[0].asnumpy()]
        found += [g[0].asnumpy() for g in mod.group.grad_arrays if g[0] is not None]
        return found

    for a, b in zip(gradients(False), gradients(True), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_second_backward_gives_the_gradients_once_more(monkeypatch):
    shape = (6,)
    mod = module(mlp(dropout=0.5), shape)
    FakeDriver(monkeypatch, memory_of(mod))
    for batch in batches(7, shape):
        mod.forward_backward(batch)
        first = [g[0].asnumpy() for g in mod.group.grad_arrays]
        mod.backward()
        for a, b in zip(first, mod.group.grad_arrays, strict=True):
            np.testing.assert_array_equal(a, b[0].asnumpy())


def test_a_batch_may_change_after_the_call(monkeypatch):
    mod = module(mlp(), (6,))
    FakeDriver(monkeypatch, memory_of(mod))
    for batch in batches(6, (6,)):
        mod.forward_backward(batch)
        seen = mod.group.execs[0].arg_dict["data"]
        np.testing.assert_array_equal(seen.asnumpy(), batch.data[0].asnumpy())
        before = seen.asnumpy()
        batch.data[0][:] = 0
        np.testing.assert_array_equal(seen.asnumpy(), before)


def test_separate_calls_are_not_recorded(monkeypatch):
    mod = module(mlp(), (6,))
    fake = FakeDriver(monkeypatch, memory_of(mod))
    for batch in batches(6, (6,)):
        mod.forward(batch, is_train=True)
        mod.backward()
        mod.update()
    assert fake.rehearsed == fake.recorded == 0


def test_a_monitor_sees_everything_and_the_recording_goes_on_after_it(monkeypatch):
    mod = module(mlp(), (6,))
    fake = FakeDriver(monkeypatch, memory_of(mod))
    names = []
    for k, batch in enumerate(batches(10, (6,))):
        watch = (lambda name, value: names.append(name)) if k in (6, 7) else None
        mod.group.execs[0].set_monitor_callback(watch)
        mod.forward_backward(batch)
    assert names.count("tanh1_output") == 2
    assert (fake.recorded, fake.replayed) == (1, 10 - 2 - PLAIN - REHEARSED)


def test_a_parameter_in_other_memory_starts_anew(monkeypatch):
    shape, net = (6,), mlp()
    expected = trained(module(net, shape), shape, 20)
    mod = module(net, shape)
    fake = FakeDriver(monkeypatch, memory_of(mod))
    seen = []
    for k, batch in enumerate(batches(20, shape)):
        if k == 6:
            store = mod.group.store
            store.place("fc1_weight", torch.zeros_like(store.array("fc1_weight", 0).tensor), keep=True)
        mod.forward_backward(batch)
        mod.update()
        seen.append(mod.get_outputs()[0].asnumpy())
    for a, b in zip(expected[0], seen, strict=True):
        np.testing.assert_array_equal(a, b)
    assert fake.recorded == 2
    assert fake.replayed == 20 - 2 * REHEARSED - PLAIN - 2 * PLAIN  # twice as long the second time


def test_shapes_that_come_and_go_are_not_recorded(monkeypatch):
    shape = (6,)
    mod = module(mlp(), shape)
    fake = FakeDriver(monkeypatch, memory_of(mod))
    for k in range(12):
        for batch in batches(1, shape, BATCH if k % 2 else BATCH // 2):
            mod.forward_backward(batch)
            mod.update()
    assert fake.rehearsed == fake.recorded == 0


def test_buckets_that_change_are_not_recorded_and_one_that_stays_is(monkeypatch):
    def net(length):
        data = mx.sym.Variable("data")
        table = mx.sym.Embedding(data, input_dim=9, output_dim=4, name="table")
        return (
            mx.sym.SoftmaxOutput(
                mx.sym.FullyConnected(mx.sym.mean(table, axis=1), num_hidden=3, name="fc"), name="softmax"
            ),
            ("data",),
            ("softmax_label",),
        )

    def batch(length):
        return mx.io.DataBatch(
            [mx.nd.ones((4, length))],
            [mx.nd.zeros((4,))],
            bucket_key=length,
            provide_data=[("data", (4, length))],
            provide_label=[("softmax_label", (4,))],
        )

    mod = mx.mod.BucketingModule(net, default_bucket_key=5, cuda_graphs=True)
    mod.bind([("data", (4, 5))], [("softmax_label", (4,))])
    mod.init_params()
    mod.init_optimizer()
    fake = FakeDriver(monkeypatch)
    for _ in range(6):
        for length in (5, 3):
            mod.forward_backward(batch(length))
            mod.update()
    assert fake.rehearsed == 0
    for _ in range(6):
        mod.forward_backward(batch(3))
        mod.update()
    assert (fake.rehearsed, fake.recorded) == (1, 1)


def test_what_waits_for_the_gpu_runs_plainly(monkeypatch, caplog):
    shape, net = (6,), mlp()
    expected = trained(module(net, shape), shape)
    mod = module(net, shape)
    fake = FakeDriver(monkeypatch, memory_of(mod), against="called a synchronizing CUDA operation")
    with caplog.at_level(logging.WARNING):
        assert_equal(expected, trained(mod, shape))
    assert (fake.rehearsed, fake.recorded) == (1, 0)
    assert "this graph runs without: called a synchronizing CUDA operation" in caplog.text


def test_a_recording_that_fails_is_not_tried_again(monkeypatch, caplog):
    shape, net = (6,), mlp()
    expected = trained(module(net, shape), shape)
    mod = module(net, shape)
    FakeDriver(monkeypatch, memory_of(mod), error=RuntimeError("out of memory"))
    with caplog.at_level(logging.WARNING):
        assert_equal(expected, trained(mod, shape))
    assert caplog.text.count("RuntimeError: out of memory") == 1


def test_nothing_is_recorded_on_the_cpu_or_unless_asked(monkeypatch):
    shape = (6,)
    mod = module(mlp(), shape)
    trained(mod, shape)
    assert mod.group.execs[0].execution_mode(True) == "not in CUDA graphs: cpu(0) is not a GPU"
    assert cuda_graphs.driver_of(torch.device("cpu")) is None
    plain = mx.mod.Module(mlp())
    plain.bind([("data", (4, 6))], [("softmax_label", (4,))])
    assert plain.group.execs[0].execution_mode(True) == ""


@pytest.mark.parametrize(
    ("net", "reason"),
    [
        (mlp(dropout=0.5), ""),
        (deep(), ""),
        (mx.sym.sort(mx.sym.Variable("x")), "sort 'sort.*not known to work without waiting"),
        (mx.sym.random.normal(shape=(3,)), "not known to work without waiting"),
        (
            mx.sym.contrib.foreach(lambda x, s: (x + s, s), mx.sym.Variable("x"), mx.sym.Variable("s"))[0],
            "runs code of its own",
        ),
    ],
)
def test_reasons_against(net, reason):
    found = unsupported_reason(program_of(net.graph, True))
    assert re.search(reason, found) if reason else found == ""


def test_explain_says_how_runs_are_done(monkeypatch):
    shape = (6,)
    mod = module(mlp(), shape)
    executor = mod.group.execs[0]
    assert executor.explain().training.run == "not in CUDA graphs: cpu(0) is not a GPU"
    mod = module(mlp(), shape)
    FakeDriver(monkeypatch, memory_of(mod))
    executor = mod.group.execs[0]
    assert executor.explain().training.run == "CUDA graph, once it has repeated"
    trained(mod, shape)
    assert executor.explain().training.run == "CUDA graph"
    assert "# CUDA graph\ndef forward" in executor.explain().source
    scores = mx.sym.sort(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4), name="sorted")
    mod = module(mx.sym.SoftmaxOutput(scores, name="softmax"), shape)
    assert "sort 'sorted'" in mod.group.execs[0].explain().training.run
    mod = module(mlp(), shape)
    FakeDriver(monkeypatch, memory_of(mod), against="called a synchronizing CUDA operation")
    trained(mod, shape)
    assert "synchronizing" in mod.group.execs[0].explain().training.run
    plain = mlp().simple_bind(mx.cpu(), data=(2, 6))
    assert plain.explain().training.run == ""


def test_every_safe_operator_exists():
    for name in cuda_graphs._SAFE:
        assert mx.ops.find(name) is not None
        assert mx.ops.get(name).name == name


def test_apart_copies_what_shares_memory():
    a, b = torch.arange(6.0).view(2, 3), torch.ones(3)
    found = without_aliases([a, a[0], a.T, None, b, b, torch.zeros(())], [b])
    assert found[0] is a
    assert found[3] is None
    pointers = [t.data_ptr() for t in found if t is not None]
    assert len(set(pointers)) == len(pointers)
    assert b.data_ptr() not in pointers
    for got, wanted in zip(found, [a, a[0], a.T, None, b, b, torch.zeros(())], strict=True):
        assert got is None or (torch.equal(got, wanted) and got.is_contiguous())


def test_a_recorder_counts_anew_when_it_forgets():
    results = RecordedOutputs([], [])

    class Driver:
        def warm_up(self, work):
            return results, ""

        def record(self, work, generators):
            return (lambda: None), results

    memory = [torch.ones(1)]
    recorder = Recorder(Driver(), lambda: results, lambda: list(memory))

    def runs_until_recorded():
        plain = 0
        while not recorder.is_recorded:
            if recorder.is_due():
                recorder.run()
            else:
                plain += 1
        return plain

    assert runs_until_recorded() == 3
    recorder.forget()
    assert runs_until_recorded() == 6
    memory[0] = torch.ones(1)
    assert not recorder.is_due()
    assert not recorder.is_recorded


class FakeCuda:
    """The parts of `torch.cuda` that a driver calls; notes the order, and may fail at the end of a recording."""

    def __init__(self, monkeypatch, failure=None):
        self.calls, self.failure, self.here, self.mode = [], failure, FakeStream("here", self), 0
        graph = type(
            "Graph", (), {"register_generator_state": lambda me, g: self.calls.append(("register", g))}
        )
        graph.replay = lambda me: self.calls.append("replay")
        names = {
            "Stream": lambda device: FakeStream("side", self),
            "graph_pool_handle": lambda: "pool",
            "current_stream": lambda device: self.here,
            "set_stream": lambda stream: self.calls.append(f"set {stream.name}"),
            "stream": self.stream,
            "device": lambda device: contextlib.nullcontext(),
            "CUDAGraph": graph,
            "graph": self.graph,
            "get_sync_debug_mode": lambda: self.mode,
            "set_sync_debug_mode": self.set_mode,
        }
        for name, value in names.items():
            monkeypatch.setattr(torch.cuda, name, value)

    @contextlib.contextmanager
    def stream(self, stream):
        self.calls.append(f"on {stream.name}")
        yield
        self.calls.append(f"off {stream.name}")

    @contextlib.contextmanager
    def graph(self, graph, pool, stream, capture_error_mode):
        self.calls.append(("begin", pool, stream.name, capture_error_mode))
        yield
        if self.failure is not None:
            raise self.failure
        self.calls.append("end")

    def set_mode(self, mode):
        self.mode = mode
        self.calls.append(f"mode {mode}")
        if mode == "warn":
            warnings.warn("Synchronization debug mode is a prototype feature", UserWarning, stacklevel=1)


class FakeStream:
    def __init__(self, name, cuda):
        self.name, self._cuda = name, cuda

    def wait_stream(self, other):
        self._cuda.calls.append(f"{self.name} waits for {other.name}")


def results_on(stream_calls):
    class Tensor:
        def record_stream(self, stream):
            stream_calls.append(f"kept for {stream.name}")

    return RecordedOutputs([Tensor()], [None])


def test_a_driver_rehearses_on_the_stream_of_recordings(monkeypatch):
    cuda = FakeCuda(monkeypatch)
    driver = cuda_graphs.Driver(torch.device("cuda", 0))
    results = results_on(cuda.calls)
    found, against = driver.warm_up(lambda: cuda.calls.append("work") or results)
    assert found is results
    assert against == ""
    assert cuda.calls == [
        *("side waits for here", "mode warn", "on side", "work", "off side", "mode 0"),
        *("here waits for side", "kept for here"),
    ]


def test_a_driver_notices_that_python_waits(monkeypatch):
    cuda = FakeCuda(monkeypatch)

    def work():
        warnings.warn(
            "called a synchronizing CUDA operation (Triggered internally)", UserWarning, stacklevel=1
        )
        return results_on(cuda.calls)

    _, against = cuda_graphs.Driver(torch.device("cuda", 0)).warm_up(work)
    assert "synchronizing" in against
    with pytest.raises(ValueError, match="work"):
        cuda_graphs.Driver(torch.device("cuda", 0)).warm_up(lambda: int("work"))
    assert cuda.mode == 0


def test_a_driver_records(monkeypatch):
    cuda = FakeCuda(monkeypatch)
    results = results_on(cuda.calls)
    driver = cuda_graphs.Driver(torch.device("cuda", 0))
    replay, found = driver.record(lambda: cuda.calls.append("work") or results, ["generator"])
    assert found is results
    replay()
    begin = ("begin", "pool", "side", "thread_local")
    assert cuda.calls == [("register", "generator"), begin, "work", "end", "set here", "replay"]


def test_a_driver_comes_back_to_its_stream_when_recording_fails(monkeypatch):
    cuda = FakeCuda(monkeypatch, RuntimeError("not permitted when stream is capturing"))
    with pytest.raises(RuntimeError, match="not permitted"):
        cuda_graphs.Driver(torch.device("cuda", 0)).record(lambda: None, [])
    assert cuda.calls[-1] == "set here"


# on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("net", "shape"), [(mlp(dropout=0.5), (6,)), (lenet(), (1, 10, 10)), (deep(), (2, 6, 6))]
)
def test_training_on_a_gpu_is_the_same(net, shape, monkeypatch):
    mod = module(net, shape, ctx=mx.gpu())
    found = trained(mod, shape)
    assert mod.group.execs[0].execution_mode(True) == "CUDA graph"
    monkeypatch.setattr(cuda_graph_mode, "driver_of", lambda device: None)
    expected = trained(module(net, shape, ctx=mx.gpu()), shape)
    for a, b in zip(expected[0], found[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    for name, value in expected[1].items():
        np.testing.assert_allclose(found[1][name], value, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.gpu
def test_prediction_on_a_gpu_is_recorded():
    mod = module(deep(), (2, 6, 6), ctx=mx.gpu())
    outs = []
    (batch,) = batches(1, (2, 6, 6))
    for _ in range(7):
        mod.evaluate(batch)
        outs.append(mod.get_outputs()[0].asnumpy())
    assert mod.group.execs[0].execution_mode(False) == "CUDA graph"
    for out in outs[1:]:
        np.testing.assert_allclose(out, outs[0], rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
def test_a_monitor_ends_no_recording_on_a_gpu():
    mod = module(mlp(), (6,), ctx=mx.gpu())
    trained(mod, (6,))
    names = []
    mod.group.execs[0].set_monitor_callback(lambda name, value: names.append(name))
    trained(mod, (6,), 1)
    mod.group.execs[0].set_monitor_callback(None)
    trained(mod, (6,), 2)
    assert "tanh1_output" in names
    assert mod.group.execs[0].execution_mode(True) == "CUDA graph"
