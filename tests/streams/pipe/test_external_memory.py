"""Tensors on a device: by CUDA IPC where there is a device, and the control flow around that where there is none."""

import os

import pytest
import torch

from dpmodule.streams import StructureError
from dpmodule.streams.pipe.control import FOREIGN
from dpmodule.streams.pipe.external_memory import dump_foreign, load_foreign
from helpers.pipe_children import add_on_gpu
from helpers.pipes import Child, Pair, every_core, make, pipe, same


class Claims:
    """A core that says of the first structures that they have a tensor on a device."""

    def __init__(self, core, times):
        self.__dict__.update(_core=core, _times=times)

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


@every_core
def test_such_a_structure_goes_by_value_and_takes_its_turn(core):
    reader, writer = make(core)

    def child():
        writer.send(torch.ones(1))
        writer._core = Claims(writer._core, 2)
        for _ in range(3):
            writer._send = writer._send_wait = writer._core.send
            writer.send(VALUE)
        stats = writer.stats
        assert stats.sent == 4
        assert stats.queued >= 3
        writer.close()

    process = Child(child)
    assert reader.recv() == 1
    for _ in range(3):
        assert same(VALUE, reader.recv())
    assert list(reader) == []
    assert process.ok()
    reader.close()


@every_core
def test_what_a_process_sent_itself_is_refused_and_the_pipe_goes_on(core):
    with pipe(core, slots=1) as (reader, writer):
        writer.send(torch.ones(1))
        assert reader.recv() == 1
        writer._core = Claims(writer._core, 2)
        writer._send = writer._send_wait = writer._core.send
        writer.send([torch.ones(1)])
        with pytest.raises(StructureError, match="received in the process that sent it"):
            reader.recv()
        writer.send([torch.zeros(1)], timeout=10.0)
        assert reader.recv()[0] == 0


def test_the_sender_stands_in_the_message():
    data = dump_foreign([torch.ones(2)], [])
    assert int.from_bytes(data[:8], "little") == os.getpid()
    with pytest.raises(StructureError):
        load_foreign(data)
    assert same(load_foreign((os.getpid() + 1).to_bytes(8, "little") + data[8:]), [torch.ones(2)])


def test_the_device_is_done_before_the_message_goes(monkeypatch):
    done = []

    class Stream:
        def __init__(self, device):
            self.device = device

        def synchronize(self):
            done.append(self.device)

    class OnDevice:
        def __init__(self, device):
            self.device = torch.device(device)

    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    dump_foreign(None, [OnDevice("cuda:0"), OnDevice("cpu"), OnDevice("cuda:1"), OnDevice("cuda:0")])
    assert sorted(str(device) for device in done) == ["cuda:0", "cuda:1"]


@pytest.mark.gpu
@pytest.mark.timeout(120)
@every_core
def test_tensors_on_a_gpu_arrive(core):
    import multiprocessing

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


@pytest.mark.gpu
@every_core
def test_ones_own_tensor_on_a_gpu_is_refused(core):
    with pipe(core) as (reader, writer):
        writer.send(torch.ones(3, device="cuda"))
        with pytest.raises(StructureError, match="received in the process that sent it"):
            reader.recv()
        writer.send(torch.ones(3))
        assert reader.recv().sum() == 3
