"""Detection networks as published programs build them, against outputs and gradients of real MXNet."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from helpers.detection_nets import NETS, fill

PATH = Path(__file__).parents[1] / "data" / "goldens" / "detection" / "heads.npz"


@lru_cache(maxsize=1)
def recorded():
    with np.load(PATH) as found:
        return dict(found)


@pytest.mark.parametrize("name", NETS)
def test_network_gives_what_mxnet_gives(name):
    symbol, shapes = NETS[name](mx)
    executor = symbol.simple_bind(mx.cpu(), grad_req="write", **shapes)
    random = np.random.RandomState(3)
    for key in sorted(executor.arg_dict):
        executor.arg_dict[key][:] = mx.nd.array(fill(key, executor.arg_dict[key].shape, random))
    outputs = executor.forward(is_train=True)
    executor.backward()
    for i, output in enumerate(outputs):
        expected = recorded()[f"{name}/out/{i}"]
        np.testing.assert_allclose(output.asnumpy(), expected, 1e-4, 1e-5, err_msg=f"output {i}")
    for key, grad in executor.grad_dict.items():
        expected = recorded()[f"{name}/grad/{key}"]
        assert grad.shape == expected.shape
        np.testing.assert_allclose(grad.asnumpy(), expected, 1e-3, 1e-5, err_msg=f"gradient of {key}")
