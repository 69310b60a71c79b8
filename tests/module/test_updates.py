"""Which store a module takes, and whether the optimizer runs inside it: MXNet 1.9.1's rules."""

import pytest

import dpmodule as mx
from helpers.small_fits import SHAPES, TWO, ready

MADE = mx.kv.create


def updates_of(kvstore, count):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1, name="fc")
    mod = ready(net, TWO[:count], shapes=SHAPES[:1])
    mod.init_optimizer(kvstore() if callable(kvstore) else kvstore)
    return mod.updates


# store, contexts, MXNET_UPDATE_ON_KVSTORE, elements of what is large (fc_weight has 6); type, whether it updates
@pytest.mark.parametrize(
    ("kvstore", "count", "setting", "large", "kind", "inside"),
    [
        ("local", 1, "1", 99, None, False),
        ("nccl", 1, "1", 99, None, False),
        (None, 2, "1", 99, None, False),
        ("local", 2, "1", 6, "local", True),
        ("local", 2, "1", 5, "local", False),
        ("local", 2, "0", 99, "local", False),
        ("device", 2, "1", 5, "device", True),
        (lambda: MADE("local"), 2, "1", 5, "local", True),  # as in MXNet: only the name counts
        (lambda: MADE("device"), 1, "1", 99, "device", True),
        (lambda: MADE("teststore"), 1, "1", 99, "teststore", False),  # runs no optimizer
        ("teststore", 2, "1", 99, "teststore", False),
    ],
)
def test_stores_are_mxnets(kvstore, count, setting, large, kind, inside, monkeypatch):
    assert mx.kv._LARGE == 16 * 1024 * 1024
    monkeypatch.setattr(mx.kv, "_LARGE", large)
    monkeypatch.setenv("MXNET_UPDATE_ON_KVSTORE", setting)
    found = updates_of(kvstore, count)
    assert (found.store and found.store.type, found.updater is None) == (kind, inside)
