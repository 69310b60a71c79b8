"""Copies to a GPU that nobody waits for: through page-locked memory, so that the batch may change at once."""

import pytest
import torch

import dpmodule as mx
from dpmodule._devices import device_transfer


class FakeGpu:
    """Notes what is asked of a tensor on a GPU; copies are done late, as by a stream."""

    device = torch.device("cuda", 0)

    def __init__(self, dtype=torch.float32):
        self.dtype, self.waiting, self.non_blocking = dtype, None, []

    def copy_(self, source, non_blocking=False):
        self.waiting = source
        self.non_blocking.append(non_blocking)
        return self


@pytest.fixture
def locked(monkeypatch):
    """Let page-locked memory be ordinary memory, as there is none without a GPU; return what was made."""
    made, empty = [], torch.empty

    def stand_in(*args, pin_memory=False, **kwargs):
        assert pin_memory
        made.append(empty(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(device_transfer.torch, "empty", stand_in)
    return made


def test_the_source_may_change_at_once(locked):
    target, source = FakeGpu(), torch.arange(6.0).view(2, 3).t()
    device_transfer.send(target, source)
    source.zero_()
    assert target.waiting.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert target.waiting is locked[0]
    assert target.non_blocking == [True]


def test_bytes_cross_as_bytes(locked, monkeypatch):
    asked = []

    def to(self, device, non_blocking=False):
        asked.append((self.dtype, device, non_blocking))
        return self

    monkeypatch.setattr(torch.Tensor, "to", to)
    target = FakeGpu()
    device_transfer.send(target, torch.ones(3, dtype=torch.uint8))
    assert asked == [(torch.uint8, target.device, True)]
    assert target.waiting.dtype is torch.uint8


@pytest.mark.usefixtures("locked")
def test_labels_cross_in_the_same_way(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "to", lambda self, device, non_blocking: (self, non_blocking))
    label = torch.ones(2)
    moved, non_blocking = device_transfer.on_device(label, torch.device("cuda", 0))
    label.zero_()
    assert moved.tolist() == [1.0, 1.0]
    assert non_blocking


def test_on_one_device_nothing_is_staged():
    target, source = torch.zeros(3, dtype=torch.float64), torch.ones(3)
    device_transfer.send(target, source)
    assert target.tolist() == [1.0, 1.0, 1.0]
    assert device_transfer.on_device(source, source.device) is source


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
@pytest.mark.parametrize("pinned", [False, True])
def test_a_batch_changed_at_once_arrives_as_it_was(dtype, pinned):
    size = 1 << 22
    target = torch.zeros(size, device="cuda")
    source = torch.ones(size, dtype=dtype)
    source = source.pin_memory() if pinned else source
    busy = torch.ones(4096, 4096, device="cuda")
    for k in range(1, 6):
        for _ in range(5):
            busy = (busy @ busy).clamp_(-1, 1)  # the copy has to wait for this
        source.fill_(k)
        device_transfer.send(target, source)
        source.zero_()
        assert torch.equal(target.cpu(), torch.full((size,), float(k)))


@pytest.mark.gpu
def test_feeding_does_not_wait_for_the_gpu():
    target, source = torch.zeros(1 << 20, device="cuda"), torch.ones(1 << 20)
    device_transfer.send(target, source)
    torch.cuda.synchronize()
    torch.cuda._sleep(200_000_000)  # some tenths of a second
    device_transfer.send(target, source)
    event = torch.cuda.Event()
    event.record()
    assert not event.query()
    torch.cuda.synchronize()


@pytest.mark.gpu
def test_a_module_reads_a_batch_that_changes_after_the_call():
    net = mx.sym.identity(mx.sym.Variable("data"))
    mod = mx.mod.Module(net, label_names=(), context=mx.gpu())
    mod.bind([("data", (512, 2048))], for_training=False)
    mod.init_params()
    data = mx.nd.zeros((512, 2048))
    for k in range(5):
        data[:] = k
        mod.forward(mx.io.DataBatch([data]), is_train=False)
        data[:] = -1
        assert (mod.get_outputs()[0].asnumpy() == k).all()
