"""`Module.lr_find`: it finds a good learning rate, and leaves everything as it was."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import NonFiniteError
from helpers.small_fits import TWO, blobs, classifier, parameters, same

S = mx.sym


def lines(count=256):
    """Points of a linear function of ten numbers."""
    source = np.random.RandomState(0)
    data = source.standard_normal((count, 10)).astype("f4")
    return mx.io.NDArrayIter(data, {"label": data @ source.standard_normal((10, 1)).astype("f4")}, 16)


def linear():
    return S.LinearRegressionOutput(S.FullyConnected(S.Variable("data"), num_hidden=1), S.Variable("label"))


NETS = {
    "linear": (linear, lines, "label", "sgd", "mse"),
    "perceptron": (classifier, lambda: blobs(256, batch_size=16), "softmax_label", "adam", "ce"),
}


@pytest.mark.parametrize("name", NETS)
def test_the_best_decade_is_found(name):
    net, data, label, optimizer, metric = NETS[name]

    def fresh():
        mx.random.seed(1)
        return mx.mod.Module(net(), label_names=[label])

    def loss_at(rate):
        module = fresh()
        options = {"optimizer": optimizer, "optimizer_params": {"learning_rate": rate}}
        try:
            module.fit(data(), num_epoch=4, eval_metric=metric, initializer=mx.init.Xavier(), **options)
        except NonFiniteError:
            return float("inf")
        return module.score(data(), metric)[0][1]

    losses = {exponent: loss_at(10.0**exponent) for exponent in range(-4, 2)}
    found = fresh().lr_find(data(), optimizer=optimizer, initializer=mx.init.Xavier())
    best = min(losses, key=losses.get)
    assert abs(np.log10(found.suggestion) - best) < 1, (losses, found)
    assert loss_at(found.suggestion) <= losses[best] + 0.03 * losses[-4], (losses, found)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_everything_stays_as_it_was(optimizer):
    def trained():
        mx.random.seed(3)
        params = {
            "lr_scheduler": mx.lr_scheduler.FactorScheduler(5, 0.9, base_lr=0.01),
            "learning_rate": 0.01,
        }
        module = mx.mod.Module(classifier(dropout=0.3))
        module.fit(blobs(), num_epoch=1, optimizer=optimizer, optimizer_params=params, initializer="xavier")
        return module

    module, data = trained(), blobs(shuffle=True)
    batch = next(data)
    before, states = parameters(module), module.updates.saved_states()
    module.lr_find(data, num_batches=30)
    assert module.updates.saved_states() == states
    same(parameters(module), before)
    rest_of_epoch = [each.data[0].asnumpy() for each in data]
    drawn = mx.nd.random.uniform(shape=(3,)).asnumpy()

    module, data = trained(), blobs(shuffle=True)
    assert (next(data).data[0].asnumpy() == batch.data[0].asnumpy()).all()
    expected = [each.data[0].asnumpy() for each in data]
    assert len(expected) == len(rest_of_epoch) == 11
    assert all((one == other).all() for one, other in zip(expected, rest_of_epoch))
    assert (mx.nd.random.uniform(shape=(3,)).asnumpy() == drawn).all()


def test_a_module_that_is_not_bound_stays_so():
    module = mx.mod.Module(classifier(), context=TWO)
    found = module.lr_find(blobs(), start_lr=1e-3, end_lr=0.1, num_batches=25)
    assert not module.binded
    assert len(found.rates) == len(found.losses) == 25
    assert found.rates[0] == pytest.approx(1e-3)
    assert found.rates[-1] == pytest.approx(0.1)
    assert str(found).startswith("<RateSearch: 25 rates up to 0.1, suggestion 0.")
    axes = found.plot()
    assert axes.get_xscale() == "log"
    assert list(axes.lines[0].get_ydata()) == found.losses


def test_a_search_ends_before_the_loss_explodes():
    module = mx.mod.Module(linear(), label_names=["label"])
    found = module.lr_find(lines(), start_lr=1e-4, end_lr=1e4, num_batches=80)
    assert 22 < len(found.losses) == len(found.rates) < 80
    assert found.losses[-1] < 2 * min(found.losses)
