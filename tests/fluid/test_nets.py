"""Functions of several layers, against torch."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import dpmodule.fluid as fluid
from helpers.fluid_programs import run, values

layers, nets = fluid.layers, fluid.nets


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def weights(*names):
    return map(torch.tensor, values(*names))


def test_convolution_and_pooling_of_images():
    x = numbers(2, 3, 8, 8)
    out = nets.simple_img_conv_pool(layers.data("x", [3, 8, 8]), 4, 3, 2, 2, act="relu", conv_padding=1)
    (found,) = run({"x": x}, [out])
    features = F.conv2d(torch.tensor(x), *weights("conv2d_0_weight", "conv2d_0_bias"), padding=1)
    np.testing.assert_allclose(found, F.max_pool2d(features.relu(), 2), rtol=1e-4, atol=1e-5)


def test_group_of_convolutions():
    x = numbers(2, 3, 8, 8)
    out = nets.img_conv_group(
        layers.data("x", [3, 8, 8]), [4, 5], 2, conv_act="relu", conv_with_batchnorm=[True, False],
        conv_batchnorm_drop_rate=[0.3, 0.0], pool_stride=2, pool_type="avg",
    )  # fmt: skip
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    (found,) = executor.run(fluid.default_main_program().clone(for_test=True), {"x": x}, [out])
    features = F.conv2d(torch.tensor(x), *weights("conv2d_0_weight", "conv2d_0_bias"), padding=1)
    features = (features / (1 + 1e-5) ** 0.5).relu() * 0.7  # dropout in prediction
    features = F.conv2d(features, *weights("conv2d_1_weight", "conv2d_1_bias"), padding=1).relu()
    np.testing.assert_allclose(found, F.avg_pool2d(features, 2), rtol=1e-4, atol=1e-5)


def test_gated_units():
    x = numbers(4, 6)
    (found,) = run({"x": x}, [nets.glu(layers.data("x", [6]))])
    np.testing.assert_allclose(found, F.glu(torch.tensor(x)), rtol=1e-5)


@pytest.mark.parametrize("heads", [1, 2])
def test_attention(heads):
    arrays = {"q": numbers(2, 3, 4), "k": numbers(2, 5, 4, seed=1), "v": numbers(2, 5, 6, seed=2)}
    inputs = [layers.data(name, [*array.shape[1:]]) for name, array in arrays.items()]
    (found,) = run(arrays, [nets.scaled_dot_product_attention(*inputs, num_heads=heads)])
    parts = [torch.tensor(each) for each in arrays.values()]
    if heads > 1:
        names = (f"fc_{i}_weight" for i in range(3))
        mapped = (part @ weight.T for part, weight in zip(parts, weights(*names)))
        parts = [each.unflatten(2, (heads, -1)).transpose(1, 2) for each in mapped]
    expected = F.scaled_dot_product_attention(*parts)
    expected = expected if heads == 1 else expected.transpose(1, 2).flatten(2)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("mode", "shape"), [("all", (1,)), ("channel", (1, 3, 1)), ("element", (1, 3, 2))])
def test_prelu(mode, shape):
    x = numbers(4, 3, 2)
    start = fluid.initializer.NumpyArrayInitializer(numbers(*shape, seed=1))
    out = layers.prelu(layers.data("x", [3, 2]), mode, start)
    fluid.optimizer.SGD(1.0).minimize(layers.reduce_sum(out))
    found, gradient = run({"x": x}, [out, "prelu_0_slope@GRAD"])
    np.testing.assert_allclose(found, np.where(x > 0, x, x * numbers(*shape, seed=1)), rtol=1e-5)
    below = np.minimum(x, 0)
    axes = tuple(i for i in range(3) if i >= len(shape) or shape[i] == 1)
    np.testing.assert_allclose(gradient.ravel(), below.sum(axes).ravel(), rtol=1e-4)
