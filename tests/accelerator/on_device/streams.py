"""Streams and events of the simulated device: the order of work is kept."""

import logging

import pytest
import torch

from dpmodule._devices.device_transfer import HostCopy
from dpmodule.executor.cuda_graphs import Driver, RecordedOutputs, Recorder
from helpers import accelerator

mx = accelerator.install()
WAITS, GPU = accelerator.WAITS, mx.gpu(0)


def ones():
    return torch.ones(3, device=GPU.torch_device)


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
