"""Lending a torch module to threads, switching its mode, and random numbers of one's own."""

import threading

import pytest
import torch
from torch import nn

from dpmodule.ops.torch_call import TorchModulePool, drawing_from, in_mode


def net():
    return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5))


def test_the_module_itself_is_lent_first_and_copies_share_its_memory():
    module = net()
    pool = TorchModulePool(module)
    with pool.borrowed() as first, pool.borrowed() as second:
        assert first is module
        assert second is not module
        assert second[0].weight is module[0].weight
        assert second[1].running_mean is module[1].running_mean
    module[1].eval()  # a copy follows the modes of the module
    with pool.borrowed() as again, pool.borrowed() as other:
        assert again is module
        assert other is second
        assert [part.training for part in other.modules()] == [True, True, False, True]
    with pytest.raises(ValueError, match="inside"), pool.borrowed():
        raise ValueError("inside")
    with pool.borrowed() as found:
        assert found is module


def test_threads_never_share_one():
    pool, held, clashes = TorchModulePool(net()), set(), []
    gate = threading.Barrier(4)

    def work():
        for _ in range(50):
            gate.wait()
            with pool.borrowed() as found:
                if id(found) in held:
                    clashes.append(found)
                held.add(id(found))
                gate.wait()
                held.discard(id(found))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert clashes == []


@pytest.mark.parametrize("is_train", [True, False])
def test_modes_come_back(is_train):
    module = net()
    module[1].eval()
    flags = [part.training for part in module.modules()]
    with in_mode(module, is_train):
        inside = [part.training for part in module.modules()]
    assert inside == (flags if is_train else [False] * 4)
    assert [part.training for part in module.modules()] == flags


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def test_numbers_come_from_the_generator_and_torchs_own_stays():
    generator, reference, cpu = seeded(5), seeded(5), torch.device("cpu")
    torch.manual_seed(9)
    with drawing_from(generator, cpu):
        drawn = torch.cat([torch.rand(3), torch.rand(3)])
    assert torch.equal(drawn, torch.rand(6, generator=reference))
    assert torch.rand(1) == torch.rand(1, generator=seeded(9))
    assert torch.rand(1, generator=generator) == torch.rand(1, generator=reference)
    torch.manual_seed(9)
    with drawing_from(None, cpu):
        inside = torch.rand(1)
    assert inside == torch.rand(1, generator=seeded(9))
