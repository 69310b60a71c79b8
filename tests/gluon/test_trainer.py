"""Trainer over parameters of blocks, against results recorded with MXNet 1.9.1."""

import numpy as np
import pytest

import dpmodule as mx
from helpers import gluon_cases as cases
from helpers.gluon_files import GOLDEN, expected, nets, same


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return nets(tmp_path_factory.mktemp("nets"))


@pytest.mark.parametrize("name", cases.TRAININGS)
def test_training_as_in_mxnet(folder, name):
    same(cases.train(mx, folder, name), expected(f"train {name}"))


def test_stale_gradients_are_an_error_or_left(folder):
    same(cases.stale(mx, folder), expected("stale"))


@pytest.mark.parametrize("name", ["sgd", "adam", "two"])
def test_states_of_mxnet_are_resumed(folder, tmp_path, name):
    prefix = str(tmp_path / "run")
    cases.begin(mx, folder, name, prefix)  # our files
    same(cases.go_on(mx, name, prefix), expected(f"go on {name}"))
    (tmp_path / "run.states").write_bytes(GOLDEN[f"{name} states"].tobytes())
    same(cases.go_on(mx, name, prefix), expected(f"go on {name}"))


def weights(contexts=None, **options):
    param = mx.gluon.Parameter("w", shape=(2,), **options)
    param.initialize(mx.init.One(), ctx=contexts)
    return param


def backward(param, factor=3):
    with mx.autograd.record():
        losses = [(array * factor).sum() for array in param.list_data()]
    mx.autograd.backward(losses)


def test_gradients_are_summed_before_the_update():
    param = weights([mx.cpu(0), mx.cpu(1)])
    trainer = mx.gluon.Trainer({"w": param}, "sgd", {"learning_rate": 1.0}, update_on_kvstore=False)
    backward(param)
    trainer.allreduce_grads()
    assert [grad.asnumpy()[0] for grad in param.list_grad()] == [6, 6]
    for grad in param.list_grad():
        grad[:] = 1
    trainer.update(2)
    assert [array.asnumpy()[0] for array in param.list_data()] == [0.5, 0.5]


def test_written_parameters_reach_the_store():
    param = weights([mx.cpu(0), mx.cpu(1)])
    trainer = mx.gluon.Trainer([param], "sgd", {"learning_rate": 1.0})
    for _ in range(2):
        param.set_data(mx.nd.array([10, 20]))
        backward(param, 1)
        trainer.step(2)
        assert [array.asnumpy().tolist() for array in param.list_data()] == [[9, 19]] * 2


def test_rates_and_multipliers():
    param = weights()
    trainer = mx.gluon.Trainer([param], mx.optimizer.SGD(learning_rate=1.0), kvstore=None)
    for lr_mult, wanted in ((1, -2), (0.5, -3.5), (0, -3.5)):
        param.lr_mult = lr_mult
        backward(param)
        trainer.step(1)
        assert param.data().asnumpy()[0] == wanted
    trainer.set_learning_rate(0.25)
    assert trainer.learning_rate == trainer.optimizer.learning_rate == 0.25


def test_gradients_in_half_precision_are_scaled():
    param = weights()
    trainer = mx.gluon.Trainer([param], "sgd", {"learning_rate": 1.0})
    mx.contrib.amp.init_trainer(trainer)
    with mx.autograd.record():
        loss = (param.data() * 3).sum()
        with mx.contrib.amp.scale_loss(loss, trainer) as scaled:
            scaled.backward()
    trainer.step(1)
    assert param.data().asnumpy()[0] == -2
    with mx.autograd.record():
        loss = (param.data() * np.inf).sum()
    loss.backward()
    trainer.step(1)
    assert param.data().asnumpy()[0] == -2


def test_a_fused_network_trains(folder):
    block, (x, y) = cases.opened(mx, folder, "lstm"), cases.batches("lstm")[0]
    trainer = mx.gluon.Trainer(block.collect_params(), "adam", {"learning_rate": 0.1})
    loss_of, found = mx.gluon.loss.SoftmaxCrossEntropyLoss(), []
    for _ in range(20):
        with mx.autograd.record():
            loss = loss_of(block(mx.nd.array(x)), mx.nd.array(y))
        loss.backward()
        trainer.step(len(y))
        found.append(loss.mean().asscalar())
    assert found[-1] < found[0] / 2
