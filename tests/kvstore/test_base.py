"""Stores of one's own: registration, what they must give, and training with them."""

import numpy as np
import pytest

import dpmodule as mx
from helpers.small_fits import TWO, batch, parameters, ready, step

Base = mx.kv.KVStoreBase


@pytest.fixture
def register(monkeypatch):
    monkeypatch.setattr(Base, "kv_registry", dict(Base.kv_registry))
    return Base.register


def trained(kvstore, lr=0.1):
    """Return the weight after one step of a small net on two contexts."""
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="fc")
    mod = ready(mx.sym.SoftmaxOutput(net, name="softmax"), TWO, init="ones")
    mod.init_optimizer(kvstore, "sgd", {"learning_rate": lr})
    step(mod, batch())
    return parameters(mod)["fc_weight"]


def test_a_store_of_ones_own_trains_a_module(register):
    calls = []

    @register
    class Doubling(Base):
        """Written as for MXNet: one key in a call."""

        def broadcast(self, key, value, out, priority=0):
            calls.append((key, len(out), priority))
            for array in out:
                array[:] = value

        def pushpull(self, key, value, out=None, priority=0):
            calls.append((key, len(value), priority))
            total = sum(2 * array.asnumpy() for array in value)
            for array in out:
                array[:] = total

    np.testing.assert_allclose(trained("doubling"), trained("local", 0.2), rtol=1e-5)
    assert calls == [("fc_weight", 2, 0), ("fc_bias", 2, 0), ("fc_weight", 2, 0), ("fc_bias", 2, -1)]
    np.testing.assert_allclose(trained(Doubling()), trained("local", 0.2), rtol=1e-5)


def test_the_test_store():
    np.testing.assert_allclose(trained("teststore"), trained("device"), rtol=1e-6)
    store = mx.kv.create("TestStore")
    assert (store.type, store.rank, store.num_workers) == ("teststore", 0, 1)
    assert not store.is_capable("OPTIMIZER")
    store.broadcast("k", mx.nd.ones((2,)), out := mx.nd.zeros((2,)))
    assert out.asnumpy().tolist() == [1, 1]
    values = [mx.nd.ones((2,), ctx=c) for c in TWO]
    store.pushpull("k", values)
    assert [v.asnumpy().tolist() for v in values] == [[2, 2], [2, 2]]
    store.pushpull("k", mx.nd.ones((2,)), out=values)
    assert [v.asnumpy().tolist() for v in values] == [[1, 1], [1, 1]]


def test_registration(register):
    before = type("Mine", (Base,), {})
    register(before)
    with pytest.warns(UserWarning, match="replaces"):
        after = register(type("Mine", (Base,), {}))
    assert type(mx.kv.create("MINE")) is after is not before
