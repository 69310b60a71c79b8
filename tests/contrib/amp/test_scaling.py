"""`contrib.amp.init`, `init_trainer`, `scale_loss` and `unscale`."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, StateError
from dpmodule.contrib import amp
from dpmodule.module.half_training import use_by_default
from helpers.small_fits import blobs, classifier


@pytest.fixture(autouse=True)
def as_before():
    before = use_by_default(None)
    yield
    use_by_default(before)


def test_init_is_for_modules_made_afterwards():
    def summary(**options):
        module = mx.mod.Module(classifier(), **options)
        module.bind([("data", (4, 2))], [("softmax_label", (4,))])
        return module.summary()

    assert "amp_cast" not in summary()
    amp.init("bfloat16")
    assert "amp_cast" in summary()
    assert "amp_cast" not in summary(amp=False)
    amp.init("float16", target_precision_ops=[])
    assert "_amp_cast_float16" not in summary()
    with pytest.raises(ArgumentError, match="target_dtype is 'int8'"):
        amp.init("int8")
    with pytest.raises(ArgumentError, match="fp32_ops has 'nothing', which is no operator"):
        amp.init(fp32_ops=["nothing"])


def test_modules_scale_by_themselves():
    amp.init()
    module = mx.mod.Module(classifier())
    amp.init_trainer(module)
    module.fit(blobs(), num_epoch=1, initializer="xavier")
    before = module.store.grad("hidden_weight", 0).asnumpy()
    with amp.scale_loss(mx.nd.array([2.0]), module) as loss:
        assert loss.asscalar() == 2
    amp.unscale(module)
    assert (module.store.grad("hidden_weight", 0).asnumpy() == before).all()


class Parameter:
    def __init__(self, value):
        self.data = mx.nd.array(value)
        self.data.attach_grad()
        self._grad = [self.data.grad]


class Trainer:
    """The part of Gluon's that scaling deals with."""

    def __init__(self, params, rate):
        self._params, self._scale, self._rate = params, 1.0, rate

    def step(self):
        self._update()

    def _update(self):
        for param in self._params:
            param.data[:] = param.data - self._rate * self._scale * param._grad[0]


def test_a_trainer_in_the_form_of_gluon():
    param = Parameter([1.0, 2.0])
    trainer = Trainer([param], 0.5)
    with pytest.raises(StateError, match=r"scale_loss: call init_trainer\(\) with this Trainer first"):
        amp.scale_loss(mx.nd.ones((1,)), trainer).__enter__()
    amp.init_trainer(trainer)

    def backward(factor=1.0):
        with mx.autograd.record():
            loss = (param.data * param.data).sum() * factor
            with amp.scale_loss(loss, trainer) as scaled:
                mx.autograd.backward(scaled)

    backward()
    assert param._grad[0].asnumpy().tolist() == [2 * 2**16, 4 * 2**16]
    trainer.step()
    np.testing.assert_allclose(param.data.asnumpy(), [0, 0], atol=1e-6)
    param.data[:] = 1
    backward()
    amp.unscale(trainer)
    assert param._grad[0].asnumpy().tolist() == [2, 2]
    trainer.step()
    np.testing.assert_allclose(param.data.asnumpy(), [0, 0], atol=1e-6)
    param.data[:] = 1
    backward(1e38)
    trainer.step()  # is left out
    assert param.data.asnumpy().tolist() == [1, 1]
    assert trainer._amp_loss_scaler.value == 2.0**15
    with amp.scale_loss([mx.nd.ones((1,))], trainer) as scaled:
        assert scaled[0].asscalar() == 2**15


def test_what_is_no_trainer_is_refused():
    with pytest.raises(ArgumentError, match="SGD is no trainer; make a Module"):
        amp.init_trainer(mx.optimizer.SGD())
