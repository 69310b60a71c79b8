"""The attributes of MXNet's `Module` that programs and subclasses read and set."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import StateError


def mlp():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    return mx.sym.SoftmaxOutput(mx.sym.BatchNorm(net, name="bn"), name="softmax")


def bind(mod, rows=4):
    mod.bind([("data", (rows, 2))], [("softmax_label", (rows,))])
    return mod


def batch(rows=4):
    rng = np.random.RandomState(rows)
    return mx.io.DataBatch([mx.nd.array(rng.rand(rows, 2))], [mx.nd.array(rng.randint(0, 3, rows))])


def trained():
    mod = bind(mx.mod.Module(mlp()))
    mod.init_params(mx.init.One())
    mod.init_optimizer(optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    step(mod)
    return mod


def step(mod, rows=4):
    mod.forward_backward(batch(rows))
    mod.update()


def test_a_module_is_made_from_a_checkpoint_by_hand(tmp_path):
    """Subclasses copy MXNet's `Module.load`, which sets the values before binding."""

    class Custom(mx.mod.Module):
        @staticmethod
        def load(prefix, epoch):
            symbol, args, auxs = mx.model.load_checkpoint(prefix, epoch)
            mod = Custom(symbol=symbol)
            mod._arg_params = args
            mod._aux_params = auxs
            mod.params_initialized = True
            mod._preload_opt_states = f"{prefix}-{epoch:04d}.states"
            return mod

    first = trained()
    prefix = str(tmp_path / "net")
    first.save_checkpoint(prefix, 1, save_optimizer_states=True)
    second = bind(Custom.load(prefix, 1))
    assert second.params_initialized
    assert not second.optimizer_initialized
    second.init_optimizer(optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    for mod in (first, second):
        step(mod)
    for name, value in first.get_params()[0].items():
        np.testing.assert_allclose(second._arg_params[name].asnumpy(), value.asnumpy(), rtol=1e-6)
    np.testing.assert_array_equal(
        second._aux_params["bn_moving_mean"].asnumpy(), first.get_params()[1]["bn_moving_mean"].asnumpy()
    )


def test_values_that_are_set_on_a_running_module_are_used():
    mod = trained()
    mod._arg_params = {"fc_bias": mx.nd.full((3,), 7)}
    mod._sync_params_from_devices()
    assert mod._exec_group.execs[0].arg_dict["fc_bias"].asnumpy().tolist() == [7, 7, 7]
    assert mod._params_dirty is False
    mod._params_dirty = True  # programs set it; there is nothing to bring in step


def test_binded_set_to_false_binds_anew_and_keeps_parameters_and_momentum():
    mod, other = trained(), trained()
    mod.binded = False
    assert not mod.binded
    bind(mod, rows=6)
    assert mod.binded
    assert [mod._data_shapes[0].shape, mod._label_shapes[0].shape] == [(6, 2), (6,)]
    other.bind([("data", (6, 2))], [("softmax_label", (6,))], force_rebind=True)
    for each in (mod, other):
        step(each, rows=6)
    for name, value in other.get_params()[0].items():
        np.testing.assert_array_equal(mod.get_params()[0][name].asnumpy(), value.asnumpy())


def test_steps_set_to_false_are_done_again():
    mod = trained()
    mod.params_initialized = False
    with pytest.raises(StateError, match="init_params"):
        mod.get_params()
    mod.init_params(mx.init.Constant(2))
    assert mod._arg_params["fc_weight"].asnumpy().tolist() == [[2, 2]] * 3
    assert not mod.optimizer_initialized
    mod.init_optimizer(optimizer="adam")
    mod.optimizer_initialized = False
    mod.init_optimizer(optimizer="sgd")
    assert isinstance(mod._optimizer, mx.optimizer.SGD)


def test_names_and_shapes():
    mod = mx.mod.Module(mlp(), context=[mx.cpu(0), mx.cpu(1)], work_load_list=[1, 3])
    assert [mod._data_shapes, mod._label_shapes, mod._arg_params, mod._aux_params] == [None] * 4
    assert mod._output_names == ["softmax_output"]
    assert mod._aux_names == ["bn_moving_mean", "bn_moving_var"]
    assert mod._work_load_list == [1, 3]
    assert [mod._kvstore, mod._updater] == [None, None]
