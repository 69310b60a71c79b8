"""The optimizers' base: rates, decays, counts, names, registration."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import lr_scheduler, optimizer
from dpmodule.base import StateError
from dpmodule.optimizer.base import registry

NAMES = {0: "fc_weight", 1: "fc_bias", 2: "bn_gamma", 3: "bn_beta"}


class FakeSymbol:
    def attr_dict(self):
        weight = {"__lr_mult__": "2.0", "__wd_mult__": "0.5"}
        return {"fc_weight": weight, "fc_bias": {"__wd_mult__": "3.0"}, "stranger": {"__lr_mult__": "9"}}

    def list_arguments(self):
        return ["data", *NAMES.values()]


def test_multipliers_come_from_symbol_then_setters():
    made = optimizer.SGD(learning_rate=1.0, wd=1.0, param_idx2name=NAMES, sym=FakeSymbol())
    assert made._get_lrs([0, 1, 2, 3]) == [2.0, 1.0, 1.0, 1.0]
    assert made._get_wds([0, 1, 2, 3]) == [0.5, 3.0, 1.0, 0.0]
    made.set_lr_mult({"bn_gamma": 0.25, 3: 4.0})
    made.set_wd_mult({"fc_weight": 7.0})
    assert made._get_lrs([0, 1, 2, 3]) == [2.0, 1.0, 0.25, 4.0]
    assert made._get_wds([0, 1, 2, 3]) == [7.0, 3.0, 1.0, 0.0]
    assert made._get_lr("bn_gamma") == 0.25  # a kvstore's keys are names
    assert optimizer.SGD(wd=0.1, param_idx2name=NAMES)._get_wds([0, 1, 2, 3, 4]) == [0.1, 0.0, 0.1, 0.0, 0.1]


def test_param_dict_goes_first():
    class Parameter:
        lr_mult, wd_mult = 0.5, 0.0

    options = {"param_dict": {0: Parameter()}, "param_idx2name": {0: "a_weight"}}
    made = optimizer.SGD(learning_rate=1.0, wd=1.0, **options)
    made.set_lr_mult({"a_weight": 9.0})
    assert (made._get_lr(0), made._get_wd(0)) == (0.5, 0.0)


def test_scheduler_decides_the_rate():
    made = optimizer.SGD(lr_scheduler=lr_scheduler.FactorScheduler(1, 0.5, base_lr=0.4))
    assert made.learning_rate == 0.4
    w = mx.nd.array([0.0])
    for expected in (-0.4, -0.6, -0.7):
        made.update(0, w, mx.nd.array([1.0]), None)
        assert w.asscalar() == pytest.approx(expected)
    for kind in (StateError, UserWarning):
        with pytest.raises(kind, match="FactorScheduler"):
            made.set_learning_rate(1.0)
    made = optimizer.create("SGD", learning_rate=0.5)
    made.set_learning_rate(0.25)
    assert made.learning_rate == 0.25
    with pytest.raises(DeprecationWarning):
        made.set_lr_scale({})


def test_rate_beside_a_scheduler_replaces_its_base_and_says_so():
    schedule = lr_scheduler.FactorScheduler(10, base_lr=0.4)
    with pytest.warns(UserWarning, match=r"0\.7 replaces base_lr 0\.4"):
        made = optimizer.SGD(learning_rate=0.7, lr_scheduler=schedule)
    assert made.learning_rate == 0.7


def test_counts_are_kept_per_index_and_device():
    made = optimizer.SGD(begin_num_update=10)
    made._update_count(0)
    made._update_count([0, 1])
    assert (made._index_update_count, made.num_update) == ({0: 12, 1: 11}, 12)
    made._set_current_context(1)
    made._update_count(0)
    assert (made._index_update_count, made.num_update) == ({0: 11}, 12)
    made._set_current_context(0)
    assert made._index_update_count == {0: 12, 1: 11}


def test_an_instance_passes_through():
    made = optimizer.SGD()
    assert optimizer.create(made) is made
    assert type(optimizer.Optimizer.create_optimizer("ccsgd")) is optimizer.ccSGD
    assert optimizer.Optimizer.opt_registry["sgd"] is optimizer.SGD
    assert {"sgd", "adam"} <= {*optimizer.Optimizer.opt_registry}
    assert optimizer.Optimizer().create_state(0, mx.nd.ones(1)) is None


def test_registering():
    class Mine(optimizer.Optimizer):
        pass

    assert optimizer.register(Mine) is Mine
    assert type(optimizer.create("mine", wd=0.5)) is Mine
    with pytest.warns(UserWarning, match="replaces"):
        optimizer.Optimizer.register(Mine)
    registry._classes.pop("mine")


def test_custom_optimizer_gets_float32_masters():
    class Halver(optimizer.Optimizer):
        def create_state(self, index, weight):
            return mx.nd.zeros(weight.shape, dtype=weight.dtype)

        def update(self, index, weight, grad, state):
            assert weight.dtype == grad.dtype == state.dtype == np.float32
            weight[:] = weight * 0.5

    made, w = Halver(multi_precision=True), mx.nd.array([4.0], dtype="float16")
    state = made.create_state_multi_precision(0, w)
    made.update_multi_precision(0, w, w, state)
    assert w.asscalar() == 2.0
