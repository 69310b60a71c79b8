"""Lending a torch module to threads, and switching its mode."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch import nn

from dpmodule.ops.torch_call import TorchModulePool, in_mode


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
    gate = threading.Barrier(4, timeout=10)

    def work(_):
        for _ in range(50):
            gate.wait()
            with pool.borrowed() as found:
                if id(found) in held:
                    clashes.append(found)
                held.add(id(found))
                gate.wait()
                held.discard(id(found))

    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(work, range(4))] == [None] * 4
    assert clashes == []


@pytest.mark.parametrize(("is_train", "inside"), [(True, [True, True, False, True]), (False, [False] * 4)])
def test_modes_come_back(is_train, inside):
    module = net()
    module[1].eval()
    with in_mode(module, is_train):
        assert [part.training for part in module.modules()] == inside
    assert [part.training for part in module.modules()] == [True, True, False, True]
