"""Rarely used names of DyNet's module, against what DyNet does (recorded by calling it)."""

from __future__ import annotations

import numpy as np
import pytest

import dpmodule.autobatch as dy

FLAT = np.arange(6.0)


@pytest.fixture(params=["python", "auto"], autouse=True)
def _engine(request):
    dy.configure(engine=request.param)
    yield
    dy.configure(engine="auto", autobatch=False, weight_decay=0.0)


@pytest.mark.parametrize(
    ("dim", "batch_size", "expected"),
    [
        ((2, 3), 1, [[0, 2, 4], [1, 3, 5]]),
        ((3, 2), 1, [[0, 3], [1, 4], [2, 5]]),
        ((2,), 3, [[0, 2, 4], [1, 3, 5]]),
        (None, 1, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_input_tensor_transpose(dim, batch_size, expected):
    x = dy.inputTensorTranspose(FLAT, dim, batch_size)
    assert x.dim() == (dim or (6,), batch_size)
    np.testing.assert_array_equal(x.npvalue(), expected)


def test_input_tensor_transpose_reads_integers_and_lists():
    assert dy.inputTensorTranspose([1, 2, 3]).dim() == ((3,), 1)
    assert dy.inputTensorTranspose(np.arange(4), (2, 2)).npvalue().tolist() == [[0, 2], [1, 3]]


@pytest.mark.parametrize(("dim", "batch_size"), [((2, 2), 1), ((7,), 1), (None, 2)])
def test_input_tensor_transpose_refuses_other_sizes(dim, batch_size):
    with pytest.raises(ValueError, match=r"6 values.*test_dynet_names\.py"):
        dy.inputTensorTranspose(FLAT, dim, batch_size)


def test_input_tensor_transpose_refuses_what_is_not_flat():
    with pytest.raises(TypeError, match="flat"):
        dy.inputTensorTranspose(FLAT.reshape(2, 3))
    with pytest.raises(TypeError, match="numbers"):
        dy.inputTensorTranspose(["a"])


def config(**changes):
    common = {"mem": "512", "seed": 0, "autobatch": 0, "profiling": 0, "weight_decay": 0}
    return {**common, "shared_params": 0, "requested_gpus": 0, "gpu_mask": [], **changes}


def test_params_from_config():
    params = dy.DynetParams()
    params.from_config(config(autobatch=1, weight_decay=0.5))
    assert not dy.settings()["autobatch"]
    params.init()
    assert dy.settings()["autobatch"]
    assert dy.settings()["weight_decay"] == 0.5
    params.from_config(config(gpu_mask=None))
    params.init()
    assert not dy.settings()["autobatch"]
    with pytest.raises(KeyError):
        params.from_config({"seed": 3})
