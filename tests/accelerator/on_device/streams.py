"""Streams, events and graphs of the simulated device: the order of work is kept, recorded runs give the same."""

import logging

import numpy as np
import pytest
import torch

from dpmodule._devices.device_transfer import HostCopy
from dpmodule.executor.cuda_graphs import Driver, RecordedOutputs, Recorder, driver_of
from helpers import accelerator
from helpers.nets import blobs, lenet, mlp

mx = accelerator.install()
WAITS, GPU = accelerator.WAITS, mx.gpu(0)
gpu = mx.context.gpu_module()


def ones():
    return torch.ones(3, device=GPU.torch_device)


def test_use_before_the_event_is_refused():
    side = gpu.Stream(GPU.torch_device)
    with gpu.stream(side):
        made = ones()
        done = side.record_event()
    with pytest.raises(RuntimeError, match="without waiting for its event"):
        made + 1
    gpu.current_stream().wait_event(done)
    assert accelerator.on_host(made + 1).tolist() == [2, 2, 2]


def test_what_the_host_has_waited_for_is_there_for_all():
    side = gpu.Stream(GPU.torch_device)
    with gpu.stream(side):
        made = ones()
    side.synchronize()
    made + 1


def test_a_copy_that_nobody_waits_for_comes_with_its_event():
    made = ones()
    target = torch.empty(3, pin_memory=True)
    target.copy_(made, non_blocking=True)
    event = gpu.Event()
    event.record()
    assert target.isnan().all()
    assert not event.query()
    for _ in range(accelerator.LAG):
        made = made + 0
    before = len(WAITS.found)
    assert event.query()
    assert target.tolist() == [1, 1, 1]
    assert len(WAITS.found) == before


def test_copies_to_the_host_are_asked_for_at_once_and_read_when_they_are_there():
    made = ones()
    before = len(WAITS.found)
    late, soon = HostCopy(made), HostCopy(made * 2)
    made.zero_()  # is done after the copies
    assert not late.is_ready()
    assert soon.numbers() == [2, 2, 2]
    assert len(WAITS.found) == before + 1
    assert late.is_ready()  # went before the one that was waited for
    assert late.numbers() == [1, 1, 1]
    assert len(WAITS.found) == before + 1


class Hasty(HostCopy):
    """Reads without its event."""

    def numbers(self):
        return self._target.tolist()


def test_numbers_read_too_early_are_none():
    assert np.isnan(Hasty(ones()).numbers()).all()


def test_a_graph_computes_nothing_until_it_is_replayed():
    total, one = torch.zeros(3, device=GPU.torch_device), ones()
    captured = gpu.CUDAGraph()
    with gpu.graph(captured, stream=gpu.Stream(GPU.torch_device)):
        twice = one * 2
        total += twice
    assert accelerator.on_host(total).tolist() == [0, 0, 0]
    for count in (1, 2):
        captured.replay()
        assert accelerator.on_host(total).tolist() == [2 * count] * 3


class Careless(Driver):
    """Forgets to have the stream of recordings wait for the one that has made the inputs."""

    def __init__(self):
        super().__init__(GPU.torch_device)
        self._stream.wait_stream = lambda other: None


def test_a_rehearsal_keeps_the_order_of_streams():
    given = ones()
    work = lambda: RecordedOutputs([given * 2], [])  # noqa: E731
    results, against = Driver(GPU.torch_device).warm_up(work)
    assert (accelerator.on_host(results.outputs[0] + 1).tolist(), against) == ([3, 3, 3], "")
    given.add_(1)
    with pytest.raises(RuntimeError, match="without waiting for its event"):
        Careless().warm_up(work)


def test_work_that_waits_is_not_recorded(caplog):
    given = ones()
    work = lambda: RecordedOutputs([given * float(given.sum())], [])  # noqa: E731
    recorder = Recorder(Driver(GPU.torch_device), work, lambda: [given])
    with caplog.at_level(logging.WARNING):
        while not recorder.is_due():
            pass
        recorder.run()
    assert not recorder.is_recorded
    assert "synchronizing CUDA operation" in recorder.state


def test_drivers_are_for_gpus_that_have_graphs():
    assert isinstance(driver_of(GPU.torch_device), Driver)
    assert driver_of(torch.device("cpu")) is None


def trained(net, shape, context, recorded):
    """Return outputs, parameters and, for each step, what it waited for."""
    module = mx.mod.Module(net, context=context, cuda_graphs=recorded)
    module.bind([("data", (16, *shape))], [("softmax_label", (16,))])
    mx.random.seed(3)
    module.init_params(mx.init.Uniform(0.3))
    module.init_optimizer(optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    mx.random.seed(7)
    data, label = blobs(16 * 9, shape)
    outputs, waits = [], []
    for step in range(9):
        rows = slice(16 * step, 16 * step + 16)
        batch = mx.io.DataBatch([mx.nd.array(data[rows])], [mx.nd.array(label[rows])])

        def one(batch=batch):
            module.forward_backward(batch)
            module.update()

        waits.append(WAITS.during(one))
        outputs.append(module.get_outputs()[0].asnumpy())
    args = {name: array.asnumpy() for name, array in module.get_params()[0].items()}
    return outputs, args, waits, module.group.execs[0].execution_mode(True)


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize(("net", "shape"), [(mlp(), (6,)), (lenet(), (1, 10, 10)), (mlp(dropout=0.5), (6,))])
def test_recorded_training_is_the_same(net, shape, recorded):
    found = trained(net, shape, GPU, recorded)
    wanted = trained(
        net, shape, GPU if "drop1_output" in net.get_internals().list_outputs() else mx.cpu(), False
    )
    for one, other in zip(found[0], wanted[0], strict=True):
        np.testing.assert_allclose(one, other, 1e-5, 1e-6)
    for name, value in wanted[1].items():
        np.testing.assert_allclose(found[1][name], value, 1e-5, 1e-6, err_msg=name)
    assert not any(found[2])
    assert found[3] == ("CUDA graph" if recorded else "")
