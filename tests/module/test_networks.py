"""Whole networks against the same network written in plain PyTorch, and the ones MXNet's examples are made of."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import dpmodule as mx


def bind_and_fill(net, data, label=None, seed=0, **shapes):
    """Bind on the CPU with random parameters; return the executor and its parameters as torch tensors."""
    inputs = {"data": data.shape, **({} if label is None else {"softmax_label": label.shape}), **shapes}
    executor = net.simple_bind(mx.cpu(), **inputs)
    rng = np.random.RandomState(seed)
    for name, array in executor.arg_dict.items():
        if name not in inputs:
            scale = 0.3 if array.ndim > 1 else 0.1
            array[:] = rng.randn(*array.shape) * scale + (1.0 if name.endswith("gamma") else 0.0)
    for name, array in executor.aux_dict.items():
        array[:] = np.abs(rng.randn(*array.shape)) + 0.5 if name.endswith("var") else rng.randn(*array.shape)
    executor.arg_dict["data"][:] = data
    if label is not None:
        executor.arg_dict["softmax_label"][:] = label
    params = {k: v.torch().clone().requires_grad_() for k, v in executor.arg_dict.items() if k not in inputs}
    return executor, params


def check_gradients(executor, params, loss, rtol=1e-3, atol=1e-4):
    executor.forward(is_train=True)
    executor.backward()
    grads = torch.autograd.grad(loss, list(params.values()))
    for name, grad in zip(params, grads):
        np.testing.assert_allclose(executor.grad_dict[name].asnumpy(), grad.numpy(), rtol, atol, err_msg=name)


RNG = np.random.RandomState(7)


def conv_bn(net, width, stride, name, kernel=3, relu=True):
    pad = (kernel // 2, kernel // 2)
    net = mx.sym.Convolution(
        net,
        kernel=(kernel, kernel),
        stride=(stride, stride),
        pad=pad,
        num_filter=width,
        no_bias=True,
        name=name,
    )
    net = mx.sym.BatchNorm(net, fix_gamma=False, eps=2e-5, name=name + "_bn")
    return mx.sym.Activation(net, act_type="relu") if relu else net


def test_residual_network_v1_equals_torch():
    net = conv_bn(mx.sym.Variable("data"), 4, 1, "stem")
    body = conv_bn(conv_bn(net, 6, 2, "a"), 6, 1, "b", relu=False)
    net = mx.sym.Activation(body + conv_bn(net, 6, 2, "skip", kernel=1, relu=False), act_type="relu")
    net = mx.sym.Pooling(net, global_pool=True, kernel=(1, 1), pool_type="avg")
    net = mx.sym.FullyConnected(mx.sym.Flatten(net), num_hidden=3, name="fc")
    net = mx.sym.SoftmaxOutput(net, name="softmax")
    data, label = RNG.randn(5, 2, 8, 8).astype("f4"), np.array([0, 2, 1, 1, 0])
    executor, p = bind_and_fill(net, data, label)

    def layer(x, name, stride, relu=True):
        weight = p[name + "_weight"]
        x = F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        x = F.batch_norm(x, None, None, p[name + "_bn_gamma"], p[name + "_bn_beta"], True, 0, 2e-5)
        return F.relu(x) if relu else x

    x = layer(torch.from_numpy(data), "stem", 1)
    x = F.relu(layer(layer(x, "a", 2), "b", 1, False) + layer(x, "skip", 2, False))
    logits = F.linear(x.mean((2, 3)), p["fc_weight"], p["fc_bias"])
    check_gradients(executor, p, F.cross_entropy(logits, torch.from_numpy(label), reduction="sum"))
    np.testing.assert_allclose(
        executor.outputs[0].asnumpy(), logits.softmax(1).detach(), rtol=1e-4, atol=1e-5
    )


def test_residual_network_v2_moves_statistics_with_the_biased_variance():
    whole = mx.sym.Variable("data")
    net = mx.sym.BatchNorm(whole, fix_gamma=True, momentum=0.8, name="bn0")
    net = mx.sym.Activation(net, act_type="relu")
    body = mx.sym.Convolution(net, kernel=(3, 3), pad=(1, 1), num_filter=2, name="c")
    net = mx.sym.MakeLoss(body + whole, name="loss")
    data = RNG.randn(4, 2, 5, 5).astype("f4")
    executor, _ = bind_and_fill(net, data)
    before = {k: v.asnumpy() for k, v in executor.aux_dict.items()}
    executor.forward(is_train=True)
    np.testing.assert_array_equal(executor.aux_dict["bn0_moving_var"].asnumpy(), before["bn0_moving_var"])
    executor.backward()
    for name, value in (("mean", data.mean((0, 2, 3))), ("var", data.var((0, 2, 3)))):
        want = 0.8 * before[f"bn0_moving_{name}"] + 0.2 * value
        np.testing.assert_allclose(
            executor.aux_dict[f"bn0_moving_{name}"].asnumpy(), want, rtol=1e-5, atol=1e-6
        )
    assert (executor.arg_dict["bn0_gamma"].asnumpy() == 1).all()


def test_unrolled_lstm_equals_torch():
    steps, hidden = 6, 5
    data = mx.sym.Variable("data")
    shared = {n: mx.sym.Variable(n) for n in ("i2h_weight", "i2h_bias", "h2h_weight", "h2h_bias")}
    h = mx.sym.zeros((0, hidden))
    c = mx.sym.zeros((0, hidden))
    outputs = []
    for t, x in enumerate(mx.sym.SliceChannel(data, num_outputs=steps, axis=1, squeeze_axis=True)):
        gates = mx.sym.FullyConnected(
            x, weight=shared["i2h_weight"], bias=shared["i2h_bias"], num_hidden=4 * hidden, name=f"t{t}_i2h"
        ) + mx.sym.FullyConnected(
            h, weight=shared["h2h_weight"], bias=shared["h2h_bias"], num_hidden=4 * hidden, name=f"t{t}_h2h"
        )
        i, f, u, o = mx.sym.SliceChannel(gates, num_outputs=4, name=f"t{t}_slice")
        i, f, o = (mx.sym.Activation(v, act_type="sigmoid") for v in (i, f, o))
        c = f * c + i * mx.sym.Activation(u, act_type="tanh")
        h = o * mx.sym.Activation(c, act_type="tanh")
        outputs.append(mx.sym.expand_dims(h, axis=1))
    net = mx.sym.Reshape(mx.sym.Concat(*outputs, dim=1), shape=(-1, hidden))
    net = mx.sym.FullyConnected(net, num_hidden=3, name="pred")
    label = mx.sym.Reshape(mx.sym.Variable("softmax_label"), shape=(-1,))
    net = mx.sym.SoftmaxOutput(net, label, name="softmax")
    x = RNG.randn(4, steps, 2).astype("f4")
    y = RNG.randint(0, 3, (4, steps))
    executor, p = bind_and_fill(net, x, y)
    flat = [p["i2h_weight"], p["h2h_weight"], p["i2h_bias"], p["h2h_bias"]]
    start = torch.zeros(1, 4, hidden)
    out, _, _ = torch.lstm(torch.from_numpy(x), (start, start), flat, True, 1, 0.0, False, False, True)
    logits = F.linear(out.reshape(-1, hidden), p["pred_weight"], p["pred_bias"])
    check_gradients(executor, p, F.cross_entropy(logits, torch.from_numpy(y.reshape(-1)), reduction="sum"))


def test_autoencoder_learns_to_reproduce():
    rng = np.random.RandomState(0)
    data = (rng.rand(64, 2) @ rng.rand(2, 8)).astype("f4")
    code = mx.sym.Activation(
        mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="encode"), act_type="tanh"
    )
    out = mx.sym.FullyConnected(code, num_hidden=8, name="decode")
    net = mx.sym.LinearRegressionOutput(out, mx.sym.Variable("target"), name="rec")
    mod = mx.mod.Module(net, label_names=["target"], context=[mx.cpu(0), mx.cpu(1)])
    it = mx.io.NDArrayIter(data, data, batch_size=16, label_name="target")
    mod.fit(
        it,
        eval_metric="mse",
        num_epoch=60,
        optimizer="adam",
        optimizer_params={"learning_rate": 0.02},
        initializer=mx.init.Xavier(),
    )
    assert dict(mod.score(it, "mse"))["mse"] < 0.01 * data.var() + 0.01


def inception_bn(net):
    def unit(x, width, kernel, name, stride=1):
        return conv_bn(x, width, stride, name, kernel)

    towers = [
        unit(net, 4, 1, "t1"),
        unit(unit(net, 3, 1, "t2r"), 4, 3, "t2"),
        unit(unit(unit(net, 3, 1, "t3r"), 4, 3, "t3a"), 4, 3, "t3b"),
        unit(mx.sym.Pooling(net, kernel=(3, 3), stride=(1, 1), pad=(1, 1), pool_type="avg"), 2, 1, "t4"),
    ]
    return mx.sym.Concat(*towers, dim=1, name="joined")


def alexnet(net):
    net = mx.sym.Convolution(net, kernel=(3, 3), stride=(1, 1), pad=(1, 1), num_filter=6, name="conv1")
    net = mx.sym.LRN(mx.sym.Activation(net, act_type="relu"), nsize=5, alpha=0.0001, beta=0.75, knorm=2)
    net = mx.sym.Pooling(net, kernel=(3, 3), stride=(2, 2), pool_type="max", pooling_convention="full")
    net = mx.sym.Convolution(net, kernel=(3, 3), pad=(1, 1), num_group=2, num_filter=8, name="conv2")
    net = mx.sym.FullyConnected(
        mx.sym.Flatten(mx.sym.LeakyReLU(net, act_type="leaky")), num_hidden=12, name="fc6"
    )
    return mx.sym.Dropout(mx.sym.Activation(net, act_type="relu"), p=0.5)


def vgg(net):
    for block in range(2):
        for layer in range(2):
            width, name = 4 * (block + 1), f"c{block}{layer}"
            net = mx.sym.Convolution(net, kernel=(3, 3), pad=(1, 1), num_filter=width, name=name)
            net = mx.sym.Activation(net, act_type="relu")
        net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max")
    return mx.sym.Flatten(net)


@pytest.mark.parametrize("body", [inception_bn, alexnet, vgg])
def test_networks_of_the_examples_learn(body):
    net = body(mx.sym.Variable("data"))
    net = mx.sym.FullyConnected(mx.sym.Flatten(net), num_hidden=2, name="scores")
    net = mx.sym.SoftmaxOutput(net, name="softmax")
    rng = np.random.RandomState(1)
    label = rng.randint(0, 2, 32)
    data = rng.randn(32, 2, 12, 12).astype("f4") * 0.3
    data[label == 1, 0, :6] += 1
    mx.random.seed(0)
    mod = mx.mod.Module(net)
    it = mx.io.NDArrayIter(data, label, batch_size=16)
    mod.fit(
        it,
        num_epoch=12,
        initializer=mx.init.Xavier(magnitude=2),
        optimizer="adam",
        optimizer_params={"learning_rate": 0.01},
    )
    assert dict(mod.score(it, "acc"))["accuracy"] >= 0.95
    assert mx.sym.load_json(net.tojson()).tojson() == net.tojson()
