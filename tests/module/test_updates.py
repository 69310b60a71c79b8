"""Which store a module takes, and whether the optimizer runs inside it: MXNet 1.9.1's rules."""

import pytest

import dpmodule as mx
from dpmodule.module import mxnet_helpers
from helpers.small_fits import SHAPES, TWO, ready


def updates_of(kvstore, contexts=TWO):
    mod = ready(
        mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1, name="fc"), contexts, shapes=SHAPES[:1]
    )
    mod.init_optimizer(kvstore)
    return mod.updates


def described(found):
    return found.store and found.store.type, found.updater is None


@pytest.mark.parametrize("kvstore", ["local", "device", "local_allreduce_cpu", "nccl", "LOCAL"])
def test_a_single_device_needs_no_store(kvstore):
    assert described(updates_of(kvstore, [mx.cpu()])) == (None, False)


@pytest.mark.parametrize("kvstore", ["local", "device", "local_allreduce_cpu", "local_allreduce_device"])
def test_several_devices_update_on_the_store(kvstore, monkeypatch):
    assert described(updates_of(kvstore)) == (kvstore, True)
    monkeypatch.setenv("MXNET_UPDATE_ON_KVSTORE", "0")
    assert described(updates_of(kvstore)) == (kvstore, False)
    monkeypatch.setenv("MXNET_UPDATE_ON_KVSTORE", "1")
    assert described(updates_of(kvstore)) == (kvstore, True)


def test_large_parameters_are_not_updated_by_the_local_store(monkeypatch):
    assert mxnet_helpers._LARGE == 16 * 1024 * 1024
    monkeypatch.setattr(mxnet_helpers, "_LARGE", 6)  # the elements of fc_weight
    assert described(updates_of("local")) == ("local", True)
    monkeypatch.setattr(mxnet_helpers, "_LARGE", 5)
    assert described(updates_of("local")) == ("local", False)
    assert described(updates_of("device")) == ("device", True)
    assert described(updates_of(mx.kv.create("local"))) == (
        "local",
        True,
    )  # as in MXNet: only the name counts


def test_stores_that_run_no_optimizer_only_sum():
    assert described(updates_of("teststore")) == ("teststore", False)
    assert described(updates_of(mx.kv.create("teststore"), [mx.cpu()])) == ("teststore", False)
    assert described(updates_of(mx.kv.create("device"), [mx.cpu()])) == ("device", True)
    assert described(updates_of(None)) == (None, False)
