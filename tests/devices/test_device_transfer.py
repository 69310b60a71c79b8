"""Copies to a GPU that nobody waits for: through page-locked memory, so that the batch may change at once."""

import pytest
import torch

from dpmodule._devices import device_transfer

GPU = torch.device("cuda", 0)


class FakeGpu:
    """Notes what is asked of a tensor on a GPU; copies are done late, as by a stream."""

    device, dtype = GPU, torch.float32

    def copy_(self, source, non_blocking=False):
        self.waiting, self.non_blocking = source, non_blocking
        return self


@pytest.fixture(autouse=True)
def locked(monkeypatch, request):
    """Let page-locked memory be ordinary memory, as there is none without a GPU; return what was made."""
    made, empty, move = [], torch.empty, torch.Tensor.to

    def stand_in(*args, pin_memory=False, **kwargs):
        assert pin_memory
        made.append(empty(*args, **kwargs))
        return made[-1]

    def to(self, *args, **options):
        return (self, GPU, options["non_blocking"]) if args[:1] == (GPU,) else move(self, *args, **options)

    if "gpu" not in request.keywords:
        monkeypatch.setattr(device_transfer.torch, "empty", stand_in)
        monkeypatch.setattr(torch.Tensor, "to", to)
    return made


def test_the_source_may_change_at_once(locked):
    target, source, label = FakeGpu(), torch.arange(6.0).view(2, 3).t(), torch.ones(2)
    device_transfer.send(target, source)
    moved = device_transfer.on_device(label, GPU)
    source.zero_()
    label.zero_()
    assert target.waiting.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert target.waiting is locked[0]
    assert target.non_blocking
    assert (moved[0].tolist(), *moved[1:]) == ([1.0, 1.0], GPU, True)


def test_bytes_cross_as_bytes():
    target = FakeGpu()
    device_transfer.send(target, torch.ones(3, dtype=torch.uint8))
    sent, *where = target.waiting
    assert (sent.dtype, *where) == (torch.uint8, GPU, True)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
@pytest.mark.parametrize("pinned", [False, True])
def test_a_batch_changed_at_once_arrives_as_it_was(dtype, pinned):
    source = torch.ones(1 << 22, dtype=dtype)
    source = source.pin_memory() if pinned else source
    target, busy = torch.zeros(1 << 22, device="cuda"), torch.ones(4096, 4096, device="cuda")
    for k in range(1, 6):
        for _ in range(5):
            busy = (busy @ busy).clamp_(-1, 1)  # the copy has to wait for this
        source.fill_(k)
        device_transfer.send(target, source)
        source.zero_()
        assert torch.equal(target.cpu(), torch.full((1 << 22,), float(k)))
