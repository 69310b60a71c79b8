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
    with pool.borrowed() as first:
        assert first is module
        with pool.borrowed() as second:
            assert second is not module
            assert second[0].weight is module[0].weight
            assert second[1].running_mean is module[1].running_mean
    with pool.borrowed() as again, pool.borrowed() as other:
        assert again is module
        assert other is second


def test_an_error_gives_the_module_back():
    module = net()
    pool = TorchModulePool(module)
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


def test_a_copy_follows_the_modes_of_the_module():
    module = net()
    pool = TorchModulePool(module)
    with pool.borrowed(), pool.borrowed():
        pass
    module[1].eval()
    with pool.borrowed(), pool.borrowed() as other:
        assert [part.training for part in other.modules()] == [True, True, False, True]


@pytest.mark.parametrize("is_train", [True, False])
def test_modes_come_back(is_train):
    module = net()
    module[1].eval()
    flags = [part.training for part in module.modules()]
    with in_mode(module, is_train):
        inside = [part.training for part in module.modules()]
    assert inside == (flags if is_train else [False] * 4)
    assert [part.training for part in module.modules()] == flags
    module.eval()
    with in_mode(module, True):
        assert all(part.training for part in module.modules())
    assert not any(part.training for part in module.modules())


def test_numbers_come_from_the_generator_and_torchs_own_stays():
    def fresh():
        return torch.Generator().manual_seed(5)

    generator = fresh()
    torch.manual_seed(9)
    with drawing_from(generator, torch.device("cpu")):
        drawn = torch.rand(3), torch.rand(3)
    wanted = torch.rand(6, generator=fresh())
    torch.testing.assert_close(torch.cat(drawn), wanted, rtol=0, atol=0)
    assert torch.rand(1) == torch.rand(1, generator=torch.Generator().manual_seed(9))
    reference = fresh()
    torch.rand(6, generator=reference)
    assert torch.rand(1, generator=generator) == torch.rand(1, generator=reference)
    with pytest.raises(ValueError, match="inside"), drawing_from(generator, torch.device("cpu")):
        raise ValueError("inside")
    torch.manual_seed(9)
    with drawing_from(None, torch.device("cpu")):
        inside = torch.rand(1)
    assert inside == torch.rand(1, generator=torch.Generator().manual_seed(9))
