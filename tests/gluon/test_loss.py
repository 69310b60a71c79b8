"""Losses of `mx.gluon.loss`, against results recorded with MXNet 1.9.1."""

import numpy as np
import pytest

import dpmodule as mx
from helpers import gluon_cases as cases
from helpers.gluon_files import expected, same


def test_losses_as_in_mxnet():
    same(cases.losses(mx), expected("losses"))


@pytest.mark.parametrize(("name", "options"), cases.LOSSES)
def test_losses_of_symbols(name, options):
    loss_of = getattr(mx.gluon.loss, name)(**options)
    random = np.random.RandomState(3)
    values = [mx.nd.array(random.rand(4, 3)) for _ in "ab"]
    pred, label = mx.sym.Variable("pred"), mx.sym.Variable("label")
    found = loss_of(pred, label).eval(pred=values[0], label=values[1])[0]
    np.testing.assert_allclose(found.asnumpy(), loss_of(*values).asnumpy(), rtol=1e-6)


def test_an_own_loss():
    class Quartic(mx.gluon.loss.Loss):
        def __init__(self, weight=None, batch_axis=0, **kwargs):
            super().__init__(weight, batch_axis, **kwargs)

        def hybrid_forward(self, F, pred, label):
            return F.mean((pred - F.reshape_like(label, pred)) ** 4, axis=self._batch_axis, exclude=True)

    loss_of = Quartic(prefix="quartic_")
    loss_of.hybridize()
    assert loss_of(mx.nd.array([[1, 2]]), mx.nd.zeros((1, 2))).asscalar() == 8.5
    assert isinstance(loss_of, mx.gluon.HybridBlock)
    assert repr(loss_of) == "Quartic(batch_axis=0, w=None)"
