"""Tensors on a device: by CUDA IPC where there is a device, and the control flow around that where there is none."""

import multiprocessing

import pytest
import torch

from dpmodule.streams import StructureError
from dpmodule.streams.pipe.control import FOREIGN
from dpmodule.streams.pipe.external_memory import dump_foreign
from helpers.child_targets import add_on_gpu
from helpers.pipes import Child, Pair, make, pipe, same


class Claims:
    """A core that says of the first structures that they have a tensor on a device."""

    def __init__(self, writer, times):
        self.__dict__.update(_core=writer._core, _times=times)
        writer._core, writer._send, writer._send_wait = self, self.send, self.send

    def send(self, value):
        self.__dict__["_times"] -= 1
        return FOREIGN if self._times >= 0 else self._core.send(value)

    def __getattr__(self, name):
        return getattr(self._core, name)

    def __setattr__(self, name, value):
        setattr(self._core, name, value)


VALUE = Pair(
    [torch.arange(3), None, torch.empty(0, 2)], {"z": torch.randn(2, 2, dtype=torch.complex64).t().conj()}
)


def test_such_a_structure_goes_by_value_and_takes_its_turn(opened):
    reader, writer = opened()

    def child():
        writer.send(torch.ones(1))
        claims = Claims(writer, 2)
        for _ in range(3):
            writer._send = writer._send_wait = claims.send
            writer.send(VALUE)
        assert writer.stats.sent == 4
        assert writer.stats.queued >= 3
        writer.close()

    process = Child(child)
    assert reader.recv() == 1
    for _ in range(3):
        assert same(VALUE, reader.recv())
    assert list(reader) == []
    assert process.ok()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_what_a_process_sent_itself_is_refused_and_the_pipe_goes_on(core, device):
    with pipe(core, slots=1) as (reader, writer):
        writer.send(torch.ones(1))
        assert reader.recv() == 1
        if device == "cpu":
            Claims(writer, 2)
        writer.send([torch.ones(1, device=device)])
        with pytest.raises(StructureError, match="received in the process that sent it"):
            reader.recv()
        writer.send([torch.zeros(1)], timeout=10.0)
        assert reader.recv()[0] == 0


def test_the_device_is_done_before_the_message_goes(monkeypatch):
    done = []
    stream = type("Stream", (), {"synchronize": lambda self: done.append(self.device)})

    def on(device):
        made = stream()
        made.device = torch.device(device)
        return made

    monkeypatch.setattr(torch.cuda, "current_stream", on)
    dump_foreign(None, [on("cuda:0"), on("cpu"), on("cuda:1"), on("cuda:0")])
    assert sorted(map(str, done)) == ["cuda:0", "cuda:1"]


@pytest.mark.gpu
@pytest.mark.timeout(120)
def test_tensors_on_a_gpu_arrive(core):
    reader, writer = make(core)
    answer, answering = make(core)
    process = multiprocessing.get_context("spawn").Process(target=add_on_gpu, args=(reader, answering))
    process.start()
    for i in range(5):
        x = torch.full((1000,), float(i), device="cuda")
        writer.send({"x": x * 2, "host": torch.tensor(i)})
        assert answer.recv().tolist() == [2 * i * 1000 + i]
    writer.close()
    process.join()
    answer.close()
