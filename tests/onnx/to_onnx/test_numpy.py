"""Operators of MXNet's NumPy interface in ONNX: random numbers, told by their moments, and what is refused."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.numpy_draws import DRAWS
from helpers.onnx_runs import exported, runtime_outputs, symbol_of

COUNT = 40_000


def drawn(name, attrs, *inputs):
    arrays = {f"x{i}": np.asarray(each) for i, each in enumerate(inputs)}
    return runtime_outputs(exported(symbol_of(name, len(inputs), attrs), arrays), arrays)[0]


@pytest.mark.parametrize(
    ("name", "parameters", "mean", "variance"), [row for row in DRAWS if row[0] != "gamma"]
)
def test_moments(name, parameters, mean, variance):
    values = [np.full((2, 1), value, "float32") for value in parameters.values()]
    found = [
        drawn(f"_npi_{name}", {**parameters, "size": (COUNT,)}),
        drawn(f"_npi_{name}", {**dict.fromkeys(parameters), "size": (2, COUNT // 2)}, *values),
    ]
    for each in found:
        assert abs(each.mean() - mean) < 6 * (variance / each.size) ** 0.5
        assert abs(each.var() / variance - 1) < 0.12


def test_bernoulli():
    attrs = {"prob": 0.3, "logit": None, "is_logit": False, "size": (COUNT,)}
    assert abs(drawn("_npi_bernoulli", attrs).mean() - 0.3) < 0.02


def test_refused_by_name():
    with pytest.raises(ArgumentError, match="_npi_norm 'op'.*: ONNX has no singular values"):
        exported(symbol_of("_npi_norm", 1, {"flag": 2}), {"x0": np.ones((2, 3), "f4")})
    with pytest.raises(mx.MXNetError, match="_npi_svd"):
        exported(symbol_of("_npi_svd", 1, {}), {"x0": np.ones((2, 3), "f4")})
