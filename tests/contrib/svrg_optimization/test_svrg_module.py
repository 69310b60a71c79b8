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


def gradient(x, y, weight, bias):
    """Return the sum of the squared error's gradients (of half the square), as LinearRegressionOutput gives them."""
    off = x @ weight.T + bias - y[:, None]
    return off.T @ x, off.sum(0)


@pytest.mark.parametrize("where", ["one", "two"])
@pytest.mark.parametrize("case", cases.SVRG)
def test_fit_gives_what_mxnet_recorded(case, where):
    contexts, kvstore = (None, "local") if where == "one" else (TWO, None)
    found = cases.train_svrg(mx, SVRGModule, case, contexts, kvstore)
    start = f"{case}/{where}/"
    wanted = {key[len(start) :]: GOLDENS[key] for key in GOLDENS.files if key.startswith(start)}
    assert set(found) == set(wanted)
    for key in wanted:
        np.testing.assert_allclose(found[key], wanted[key], rtol=2e-5, atol=2e-5, err_msg=key)


@pytest.mark.parametrize("kvstore", ["local", "device", "object"])
@pytest.mark.parametrize("context", [None, TWO], ids=["one", "two"])
def test_a_store_and_two_contexts_change_nothing(context, kvstore):
    plain = cases.train_svrg(mx, SVRGModule, "every_epoch", None, None)
    kvstore = mx.kv.create("local") if kvstore == "object" else kvstore
    found = cases.train_svrg(mx, SVRGModule, "every_epoch", context, kvstore)
    for key in (f"{epoch}/{name}" for epoch in range(4) for name in ("fc_weight", "fc_bias")):
        np.testing.assert_allclose(found[key], plain[key], rtol=1e-5, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("fixed", [[], ["fc_bias"]])
def test_one_step_follows_the_formula(fixed, by_hand):
    x, y = (array[:8] for array in cases.svrg_data())
    mod, train = ready(fixed_param_names=fixed), data()
    mod.update_full_grads(train)
    old = {name: value.asnumpy() for name, value in mod.get_params()[0].items()}
    weight, bias = old["fc_weight"], old["fc_bias"]
    every = [gradient(part.data[0].asnumpy(), part.label[0].asnumpy(), weight, bias) for part in again(train)]
    means = [sum(parts) / 2 for parts in zip(*every)]
    for name, mean in zip(("fc_weight", "fc_bias"), means):
        assert name in fixed or mod._param_dict[0][name].asnumpy() == pytest.approx(mean, rel=1e-5)
    batch = mx.io.DataBatch([mx.nd.array(x)], [mx.nd.array(y)])
    for _ in range(3):
        new, start = gradient(x, y, weight, bias), gradient(x, y, old["fc_weight"], old["fc_bias"])
        weight = weight - 0.1 / 8 * (new[0] - start[0] + means[0])
        bias = bias if fixed else bias - 0.1 / 8 * (new[1] - start[1] + means[1])
        if by_hand:
            mod.forward(batch, is_train=True)
            mod.backward()
        else:
            mod.forward_backward(batch)
        mod.update()
    args = mod.get_params()[0]
    np.testing.assert_allclose(args["fc_weight"].asnumpy(), weight, rtol=1e-5)
    np.testing.assert_allclose(args["fc_bias"].asnumpy(), bias, rtol=1e-5)


def again(train):
    train.reset()
    return list(train)


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
        mod = made()
        start = {"fc_weight": mx.nd.array([[0.3, -0.2]]), "fc_bias": mx.nd.array([0.1])}
        options = {"eval_metric": "mse", "optimizer_params": {"learning_rate": 0.01, "momentum": 0.5}}
        mod.fit(data(), arg_params=start, num_epoch=2, **options)
        mod.fit(data(), contexts=contexts, begin_epoch=2, num_epoch=4, **options)
        assert mod._ctx_len == len(contexts or [0])
        results.append(mod.get_params()[0])
    for name in results[0]:
        np.testing.assert_allclose(
            results[1][name].asnumpy(), results[0][name].asnumpy(), rtol=1e-5, atol=1e-6
        )
