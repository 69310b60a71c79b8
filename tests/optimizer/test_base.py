"""The optimizers' base: rates, decays, counts, names, registration."""

import copy
import pickle

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


def test_attributes_are_mxnets():
    made = optimizer.SGD()
    assert (made.lr, made.wd, made.rescale_grad, made.clip_gradient) == (0.01, 0.0, 1.0, None)
    assert (made.num_update, made.begin_num_update, made.multi_precision) == (0, 0, False)
    assert (made.lr_mult, made.wd_mult, made.idx2name, made.sym_info, made.param_dict) == ({}, {}, {}, (), {})
    assert (made.momentum, made.lazy_update, made.aggregate_num) == (0.0, True, 4)
    assert optimizer.Adam().lr == 0.001
    assert optimizer.RMSProp().lr == 0.001
    assert optimizer.AdaGrad().float_stable_eps == 1e-7


def test_decay_is_off_for_names_without_weight_or_gamma():
    made = optimizer.SGD(wd=0.1, param_idx2name=NAMES)
    assert made.wd_mult == {"fc_bias": 0.0, "bn_beta": 0.0}
    assert made._get_wds([0, 1, 2, 3]) == [0.1, 0.0, 0.1, 0.0]
    assert made._get_wd("unknown") == 0.1


def test_multipliers_come_from_symbol_then_setters():
    made = optimizer.SGD(learning_rate=1.0, wd=1.0, param_idx2name=NAMES, sym=FakeSymbol())
    assert made._get_lrs([0, 1, 2, 3]) == [2.0, 1.0, 1.0, 1.0]
    assert made._get_wds([0, 1, 2, 3]) == [0.5, 3.0, 1.0, 0.0]
    made.set_lr_mult({"bn_gamma": 0.25, 3: 4.0})
    made.set_wd_mult({"fc_weight": 7.0})
    assert made._get_lrs([0, 1, 2, 3]) == [2.0, 1.0, 0.25, 4.0]
    assert made._get_wds([0, 1, 2, 3]) == [7.0, 3.0, 1.0, 0.0]
    assert made._get_lr("bn_gamma") == 0.25  # a kvstore's keys are names


def test_param_dict_goes_first():
    class Parameter:
        lr_mult, wd_mult = 0.5, 0.0

    made = optimizer.SGD(
        learning_rate=1.0, wd=1.0, param_dict={0: Parameter()}, param_idx2name={0: "a_weight"}
    )
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


DEFAULTS = {
    "adadelta": {"lr": 0.01, "rho": 0.9, "epsilon": 1e-5},
    "adamax": {"lr": 0.002, "beta1": 0.9, "beta2": 0.999},
    "nadam": {"lr": 0.001, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "schedule_decay": 0.004, "m_schedule": 1.0},
    "ftrl": {"lr": 0.1, "lamda1": 0.01, "beta": 1},
    "ftml": {"lr": 0.01, "beta1": 0.6, "beta2": 0.999, "epsilon": 1e-8},
    "signum": {"lr": 0.01, "momentum": 0.9, "wd_lh": 0.0},
    "sgld": {"lr": 0.01},
    "dcasgd": {"lr": 0.01, "momentum": 0.0, "lamda": 0.04, "weight_previous": {}},
    "lars": {"lr": 0.01, "momentum": 0.0, "eta": 0.001, "eps": 0, "momentum_correction": True, "aggregate_num": 4},
    "lamb": {
        "lr": 0.001, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6, "lower_bound": None, "upper_bound": None,
        "bias_correction": True, "aggregate_num": 45,
    },
    "lbsgd": {
        "lr": 0.01, "momentum": 0.0, "warmup_strategy": "linear", "warmup_epochs": 5, "batch_scale": 1,
        "updates_per_epoch": 32, "init_updates": 0, "num_epochs": 60, "lbmult": 1, "admult": 1, "adaptive": False,
    },
    "groupadagrad": {"lr": 0.01, "float_stable_eps": 1e-5},
}  # fmt: skip


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_mxnets(name):
    made = optimizer.create(name)
    assert {key: getattr(made, key) for key in DEFAULTS[name]} == DEFAULTS[name]


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


def test_pickle_and_copy_leave_param_dict_behind():
    made = optimizer.Adam(learning_rate=0.3, param_dict={0: object()})
    made._update_count([0, 1])
    for other in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert (other.lr, other.num_update, other.param_dict) == (0.3, 1, {})
        other._update_count(0)
        assert other._all_index_update_counts == {0: {0: 2, 1: 1}}


def test_custom_optimizer_gets_float32_masters():
    class Halver(optimizer.Optimizer):
        def create_state(self, index, weight):
            return mx.nd.zeros(weight.shape, dtype=weight.dtype)

        def update(self, index, weight, grad, state):
            assert weight.dtype == grad.dtype == state.dtype == np.float32
            weight[:] = weight * 0.5

    made = Halver(multi_precision=True)
    w = mx.nd.array([4.0], dtype="float16")
    state = made.create_state_multi_precision(0, w)
    made.update_multi_precision(0, w, w, state)
    assert w.asscalar() == 2.0
