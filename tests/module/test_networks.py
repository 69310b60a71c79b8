"""Whole networks against the same network written in plain PyTorch, and the ones MXNet's examples are made of."""

import numpy as np
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
    sizes = {"kernel": (kernel, kernel), "stride": (stride, stride), "pad": (kernel // 2, kernel // 2)}
    net = mx.sym.Convolution(net, num_filter=width, no_bias=True, name=name, **sizes)
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
    found = executor.outputs[0].asnumpy()
    np.testing.assert_allclose(found, logits.softmax(1).detach(), rtol=1e-4, atol=1e-5)


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
        found, want = (
            executor.aux_dict[f"bn0_moving_{name}"].asnumpy(),
            0.8 * before[f"bn0_moving_{name}"] + 0.2 * value,
        )
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    assert (executor.arg_dict["bn0_gamma"].asnumpy() == 1).all()
