"""SVRG against MXNet's recorded runs, against its formula, and bad input."""

from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.contrib.svrg_optimization.svrg_module import SVRGModule
from helpers import chain_cases as cases

GOLDENS = np.load(Path(__file__).parents[2] / "data" / "goldens" / "chain" / "svrg.npz")
TWO = [mx.cpu(0), mx.cpu(1)]


def made(context=None, rows=8, **options):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1, name="fc")
    net = mx.sym.LinearRegressionOutput(net, mx.sym.Variable("label"), name="out")
    mod = SVRGModule(net, ["data"], ["label"], context=context, update_freq=2, **options)
    mod.bind([("data", (rows, 2))], [("label", (rows,))])
    return mod


def ready(context=None, kvstore="local", optimizer="sgd", rate=0.1, **options):
    mod = made(context, **options)
    mod.init_params(mx.init.One())
    mod.init_optimizer(kvstore, optimizer, {"learning_rate": rate})
    return mod


def data(rows=8, count=16):
    x, y = cases.svrg_data()
    return mx.io.NDArrayIter(x[:count], y[:count], rows, label_name="label")


@pytest.mark.parametrize("where", ["one", "two"])
@pytest.mark.parametrize("case", cases.SVRG)
def test_fit_gives_what_mxnet_recorded(case, where):
    contexts, kvstore = (None, "local") if where == "one" else (TWO, None)
    found, start = cases.train_svrg(mx, SVRGModule, case, contexts, kvstore), f"{case}/{where}/"
    wanted = {key[len(start) :]: GOLDENS[key] for key in GOLDENS.files if key.startswith(start)}
    assert set(found) == set(wanted)
    for key in wanted:
        np.testing.assert_allclose(found[key], wanted[key], rtol=2e-5, atol=2e-5, err_msg=key)


@pytest.mark.parametrize("kvstore", ["local", "device", "object"])
def test_a_store_and_two_contexts_change_nothing(kvstore):
    plain = cases.train_svrg(mx, SVRGModule, "every_epoch", None, None)
    kvstore = mx.kv.create("local") if kvstore == "object" else kvstore
    found = cases.train_svrg(mx, SVRGModule, "every_epoch", TWO, kvstore)
    for key in (f"{epoch}/{name}" for epoch in range(4) for name in ("fc_weight", "fc_bias")):
        np.testing.assert_allclose(found[key], plain[key], rtol=1e-5, atol=1e-6, err_msg=key)


def test_a_second_mean_starts_from_the_first():
    mod, train = ready(), data()
    mod.update_full_grads(train)
    first = mod._param_dict[0]["fc_weight"].asnumpy()
    mod.update_full_grads(train)
    np.testing.assert_allclose(mod._param_dict[0]["fc_weight"].asnumpy(), first * 1.5, rtol=1e-6)


def test_both_modules_are_bound_and_reshaped():
    mod = ready(TWO)
    assert mod.binded
    assert mod._mod_aux.binded
    mod.update_full_grads(data())
    mod.reshape([("data", (4, 2))], [("label", (4,))])
    mod.forward_backward(next(data(4)))
    mod.update()
    assert mod.get_outputs()[0].shape == (4, 1)
    mod.bind([("data", (6, 2))], for_training=False, force_rebind=True)
    assert mod.predict(np.ones((6, 2), "f4")).shape == (6, 1)


def test_other_contexts_keep_parameters_and_states():
    results = []
    for contexts in (None, TWO):
        mod, start = made(), {"fc_weight": mx.nd.array([[0.3, -0.2]]), "fc_bias": mx.nd.array([0.1])}
        options = {"eval_metric": "mse", "optimizer_params": {"learning_rate": 0.01, "momentum": 0.5}}
        mod.fit(data(), arg_params=start, num_epoch=2, **options)
        mod.fit(data(), contexts=contexts, begin_epoch=2, num_epoch=4, **options)
        assert mod._ctx_len == len(contexts or [0])
        results.append(mod.get_params()[0])
    for name in results[0]:
        one, other = (found[name].asnumpy() for found in results)
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)
