"""Blocks of exported networks, against results recorded with MXNet 1.9.1."""

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.gluon import SymbolBlock
from helpers import gluon_cases as cases
from helpers.gluon_files import expected, nets, same


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return nets(tmp_path_factory.mktemp("nets"))


@pytest.mark.parametrize("net", ["conv", "lstm", "cell", "pair"])
def test_predictions_as_in_mxnet(folder, net):
    same(cases.predict(mx, folder, net), expected(f"predict {net}"))


def test_two_calls_in_one_recording(folder):
    same(cases.twice(mx, folder), expected("twice"))


def statistics(block):
    return block.collect_params(".*running").items()


@pytest.mark.parametrize(
    ("frozen", "updates"), [(None, True), ("(?!.*dense)", False), (".*conv", True), (".*batchnorm", True)]
)
def test_statistics_change_in_backward_unless_nothing_below_is_trained(folder, frozen, updates):
    block, x = cases.opened(mx, folder, "conv"), mx.nd.array(cases.batches("conv")[0][0])
    if frozen:
        block.collect_params(frozen).setattr("grad_req", "null")
    before = {name: param.data().asnumpy() for name, param in statistics(block)}
    with mx.autograd.train_mode():
        batch = block(x)
    with mx.autograd.record():
        y = block(x)
    np.testing.assert_allclose(y.asnumpy(), batch.asnumpy(), rtol=1e-5, atol=2e-6)
    assert all((param.data().asnumpy() == before[name]).all() for name, param in statistics(block))
    y.backward()
    assert all(
        (param.data().asnumpy() != before[name]).all() is np.bool_(updates)
        for name, param in statistics(block)
    )


def test_dropout_and_modes():
    x = mx.sym.Variable("data")
    block = SymbolBlock(mx.sym.Dropout(x * 1, p=0.5), x)
    ones = mx.nd.ones((50, 50))
    ones.attach_grad()
    assert block(ones).asnumpy().min() == 1
    with mx.autograd.record(train_mode=False):
        assert block(ones).asnumpy().min() == 1
    with mx.autograd.train_mode():
        assert block(ones).asnumpy().min() == 0
    with mx.autograd.record():
        y = block(ones)
    y.backward()
    np.testing.assert_array_equal(ones.grad.asnumpy(), y.asnumpy())


def test_statistics_of_a_repeated_recording_use_the_same_random_numbers():
    x, mean = mx.sym.Variable("data"), None
    net = mx.sym.BatchNorm(mx.sym.Dropout(x * mx.sym.Variable("w"), p=0.5), fix_gamma=False, name="bn")
    for repeat in (False, True):
        mx.random.seed(3)
        block = SymbolBlock(net, x)
        block.initialize(mx.init.One())
        block.params["bn_moving_mean"].initialize(mx.init.Zero(), force_reinit=True) if repeat else None
        data = mx.nd.random.uniform(shape=(40, 3))
        with mx.autograd.record():
            y = block(data)
        if repeat:  # a write between forward and backward
            block.params["bn_moving_mean"].set_data(mx.nd.zeros(3))
        y.backward()
        found = block.params["bn_moving_mean"].data().asnumpy()
        mean = found if mean is None else mean
    np.testing.assert_allclose(found, mean, rtol=1e-6)


def test_tensors_and_nested_inputs_and_outputs():
    a, b, c = (mx.sym.Variable(name) for name in "abc")
    block = SymbolBlock([a + b, [b * c]], [a, [b, c]])
    found = block(torch.ones(2), [mx.nd.array([2, 3]), torch.tensor([4.0, 5.0])])
    assert [found[0].asnumpy().tolist(), found[1][0].asnumpy().tolist()] == [[3, 4], [8, 15]]
    group = SymbolBlock(mx.sym.Group([a + 1, a * 2]), a)
    assert [out.asscalar() for out in group(mx.nd.array([3]))] == [4, 6]
    assert isinstance(group(mx.sym.Variable("x"))[1], mx.sym.Symbol)
    composed = SymbolBlock(a + b, [a, b])(mx.sym.Variable("x"), mx.sym.Variable("y"))
    assert composed.list_arguments() == ["x", "y"]


def test_a_new_head_over_an_exported_network(folder):
    base = cases.opened(mx, folder, "conv")
    internals = mx.sym.load(f"{folder}/conv-symbol.json").get_internals()
    features = next(name for name in reversed(internals.list_outputs()) if "pool" in name)
    head = mx.sym.FullyConnected(internals[features], num_hidden=4, name="head")
    block = SymbolBlock(head, mx.sym.Variable("data"), params=base.collect_params())
    for name, param in block.collect_params().items():
        assert (param is base.params[name]) if name in base.params else name.startswith("head")
    block.collect_params("head").initialize(mx.init.Xavier())
    with pytest.raises(mx.gluon.parameter.DeferredInitializationError):
        block.params["head_weight"].data()
    assert block(mx.nd.ones((2, 2, 8, 8))).shape == (2, 4)
    assert block.params["head_bias"].data().asnumpy().tolist() == [0] * 4
    assert block.params["head_weight"].shape == (4, 27)


def test_contexts_of_parameters(folder):
    block = cases.opened(mx, folder, "conv", [mx.cpu(0), mx.cpu(1)])
    x = mx.nd.array(cases.batches("conv")[0][0])
    outs = [block(part) for part in mx.gluon.utils.split_and_load(x, [mx.cpu(0), mx.cpu(1)])]
    assert [out.context for out in outs] == [mx.cpu(0), mx.cpu(1)]
    np.testing.assert_allclose(
        mx.nd.concat(*[o.as_in_context(mx.cpu()) for o in outs], dim=0).asnumpy(),
        block(x).asnumpy(),
        rtol=1e-5,
    )
    block.reset_ctx(mx.cpu(2))
    assert block.collect_params().list_ctx() == [mx.cpu(2)]
    assert block(x.as_in_context(mx.cpu(2))).context == mx.cpu(2)


def test_files_of_parameters(folder, tmp_path):
    block = cases.opened(mx, folder, "conv")
    x = mx.nd.array(cases.batches("conv")[0][0])
    wanted = block(x).asnumpy()
    block.save_parameters(tmp_path / "short.params")
    block.collect_params().save(str(tmp_path / "long.params"))
    block.export(tmp_path / "net", 3)
    assert "conv0_weight" in mx.nd.load(str(tmp_path / "short.params"))
    for name in ("short.params", "long.params", "net-0003.params"):
        other = SymbolBlock.imports(f"{folder}/conv-symbol.json", "data")
        assert other.params["net_conv0_weight"].shape is None
        other.load_parameters(tmp_path / name, ctx=mx.cpu(1))
        assert other.params["net_conv0_weight"].shape == (3, 2, 3, 3)
        np.testing.assert_array_equal(other(x.as_in_context(mx.cpu(1))).asnumpy(), wanted)
    module = mx.mod.Module.load(str(tmp_path / "net"), 3, label_names=None)
    module.bind([("data", x.shape)], for_training=False)
    np.testing.assert_allclose(module.predict(x).asnumpy(), wanted, rtol=1e-5)


def test_checkpoints_of_modules_fill_parameters_one_by_one(folder):
    symbol, args, states = mx.model.load_checkpoint(f"{folder}/conv", 0)
    features = next(name for name in reversed(symbol.get_internals().list_outputs()) if "pool" in name)
    block = SymbolBlock(outputs=symbol.get_internals()[features], inputs=mx.sym.var("data"))
    params = block.collect_params()
    for name, value in {**args, **states}.items():
        if name in params:
            params[name]._load_init(value, ctx=mx.cpu())
    x = mx.nd.array(cases.batches("conv")[0][0])
    assert block(x).shape == (6, 3, 3, 3)


def test_a_failed_load_changes_nothing(folder):
    block = cases.opened(mx, folder, "conv")
    before = cases.values(block)
    wrong = {name: mx.nd.zeros(value.shape) for name, value in before.items()}
    wrong["net_dense0_bias"] = mx.nd.zeros(7)
    with pytest.raises(AssertionError, match="shape incompatible"):
        block.load_dict(wrong)
    same(cases.values(block), before)


def test_networks_without_parameters(tmp_path):
    block = SymbolBlock(mx.sym.relu(mx.sym.Variable("data")), mx.sym.Variable("data"))
    block.export(tmp_path / "relu")
    again = SymbolBlock.imports(tmp_path / "relu-symbol.json", "data", tmp_path / "relu-0000.params")
    assert again(mx.nd.array([-1, 2])).asnumpy().tolist() == [0, 2]


def test_half_precision_keeps_batch_norm(folder, tmp_path):
    block = cases.opened(mx, folder, "conv")
    x = mx.nd.array(cases.batches("conv")[0][0])
    wanted = block(x).asnumpy()
    block.cast("float16")
    types = {name: np.dtype(param.dtype).name for name, param in block.collect_params().items()}
    assert {types[name] for name in types if "batchnorm" in name} == {"float32"}
    assert {types[name] for name in types if "batchnorm" not in name} == {"float16"}
    found = block(x.astype("float16"))
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.asnumpy(), wanted, rtol=2e-2, atol=2e-2)
    block.export(str(tmp_path / "half"))
    again = SymbolBlock.imports(
        str(tmp_path / "half-symbol.json"), ["data"], str(tmp_path / "half-0000.params")
    )
    np.testing.assert_array_equal(again(x.astype("float16")).asnumpy(), found.asnumpy())


def test_declared_types_count_where_those_of_inputs_contradict_them():
    weight = mx.sym.Variable("fc_weight", dtype="float16")
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), weight, no_bias=True, num_hidden=2)
    block = SymbolBlock(net, mx.sym.Variable("data", dtype="float32"))
    assert block.params["fc_weight"].dtype == np.float16


def test_hooks_and_names(folder):
    block = cases.opened(mx, folder, "conv")
    seen = []
    before = block.register_forward_pre_hook(lambda own, given: seen.append((own, len(given))))
    after = block.register_forward_hook(lambda own, given, out: seen.append(out.shape))
    x = mx.nd.zeros((1, 2, 8, 8))
    block(x)
    before.detach()
    after.detach()
    block(x)
    assert seen == [(block, 1), (1, 3)]
    assert block.name.startswith("symbolblock")
    assert block.prefix == ""
    block.hybridize(static_alloc=True, static_shape=True)
    assert isinstance(block, (mx.gluon.Block, mx.gluon.nn.HybridBlock))
    assert mx.gluon.nn.SymbolBlock is SymbolBlock
    assert block.apply(lambda own: seen.append(own)) is seen[-1]
    assert "1 -> 1" in repr(block)


def test_changes_of_parameters_reach_predictions(folder):
    block = cases.opened(mx, folder, "conv")
    x = mx.nd.array(cases.batches("conv")[0][0])
    for _ in range(3):  # weights may be packed by now
        first = block(x).asnumpy()
    weight = block.params["net_conv0_weight"]
    weight.set_data(weight.data() * 2)
    assert np.abs(block(x).asnumpy() - first).max() > 1e-2
    weight.data()[:] = weight.data() / 2
    np.testing.assert_allclose(block(x).asnumpy(), first, rtol=1e-5)
    block.params["net_batchnorm0_running_var"].data()[:] = 9
    assert np.abs(block(x).asnumpy() - first).max() > 1e-2


def test_unused_inputs_warn():
    with pytest.warns(UserWarning, match="The 1-th input to SymbolBlock is not used"):
        SymbolBlock(mx.sym.Variable("a") * 2, [mx.sym.Variable("a"), mx.sym.Variable("b")])
