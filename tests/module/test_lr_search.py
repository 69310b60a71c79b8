"""`Module.lr_find`: it finds a good learning rate, and leaves everything as it was."""

import numpy as np
import pytest

import dpmodule as mx
from helpers.small_fits import TWO, blobs, classifier, parameters, same


def test_the_best_decade_is_found():
    def fresh():
        mx.random.seed(1)
        return mx.mod.Module(classifier())

    def loss_at(rate):
        module, data = fresh(), blobs(256, batch_size=16)
        options = {"optimizer": "adam", "optimizer_params": {"learning_rate": rate}}
        module.fit(data, num_epoch=4, eval_metric="ce", initializer=mx.init.Xavier(), **options)
        return module.score(data, "ce")[0][1]

    losses = {exponent: loss_at(10.0**exponent) for exponent in range(-4, 2)}
    found = fresh().lr_find(blobs(256, batch_size=16), optimizer="adam", initializer=mx.init.Xavier())
    best = min(losses, key=losses.get)
    assert abs(np.log10(found.suggestion) - best) < 1, (losses, found)
    assert loss_at(found.suggestion) <= losses[best] + 0.03 * losses[-4], (losses, found)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_everything_stays_as_it_was(optimizer):
    def rest_of_epoch(search):
        mx.random.seed(3)
        schedule = mx.lr_scheduler.FactorScheduler(5, 0.9, base_lr=0.01)
        module, data = mx.mod.Module(classifier(dropout=0.3)), blobs(shuffle=True)
        params = {"lr_scheduler": schedule, "learning_rate": 0.01}
        module.fit(blobs(), num_epoch=1, optimizer=optimizer, optimizer_params=params, initializer="xavier")
        batches = [next(data)]
        before, states = parameters(module), module.updates.saved_states()
        if search:
            module.lr_find(data, num_batches=30)
        assert module.updates.saved_states() == states
        same(parameters(module), before)
        batches += data
        drawn = mx.nd.random.uniform(shape=(3,)).asnumpy()
        return np.array([each.data[0].asnumpy() for each in batches]), drawn

    (found, drawn), (expected, then) = rest_of_epoch(True), rest_of_epoch(False)
    assert len(found) == 12
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(drawn, then)


def test_a_module_that_is_not_bound_stays_so():
    module = mx.mod.Module(classifier(), context=TWO)
    found = module.lr_find(blobs(), start_lr=1e-3, end_lr=0.1, num_batches=25)
    assert not module.binded
    assert len(found.rates) == len(found.losses) == 25
    assert (found.rates[0], found.rates[-1]) == (pytest.approx(1e-3), pytest.approx(0.1))
    assert str(found).startswith("<RateSearch: 25 rates up to 0.1, suggestion 0.")
    axes = found.plot()
    assert (axes.get_xscale(), list(axes.lines[0].get_ydata())) == ("log", found.losses)


def test_a_search_ends_before_the_loss_explodes():
    source, dense = np.random.RandomState(0), mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1)
    data = source.standard_normal((256, 10)).astype("f4")
    lines = mx.io.NDArrayIter(data, {"label": data @ source.standard_normal((10, 1)).astype("f4")}, 16)
    net = mx.sym.LinearRegressionOutput(dense, mx.sym.Variable("label"))
    module = mx.mod.Module(net, label_names=["label"])
    found = module.lr_find(lines, start_lr=1e-4, end_lr=1e4, num_batches=80)
    assert 22 < len(found.losses) == len(found.rates) < 80
    assert found.losses[-1] < 2 * min(found.losses)
    assert len(module.lr_find(lines, start_lr=1e-4, end_lr=1e-3, num_batches=22).losses) == 22
