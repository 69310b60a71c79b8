"""Exports of Gluon's layers and models predict, train a step and predict again as recorded with MXNet 1.9.1."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from helpers import gluon_exports as exports
from helpers.walk import walks

FILE = Path(__file__).parents[1] / "data" / "goldens" / "gluon" / "exports.json.gz"
GOLDEN = json.loads(gzip.decompress(FILE.read_bytes()))
QUICK = ("mobilenetv2_0.25", "resnet18_v1", "squeezenet1.1")


def compare(name, inputs):
    golden = GOLDEN[name]
    found = exports.results(mx, golden["symbol"], inputs)
    for values, wanted, tolerance in zip(found, golden["results"], (1e-5, 5e-4), strict=True):
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(values, wanted, rtol=tolerance, atol=tolerance * scale, err_msg=name)


@walks(exports.LAYERS)
def test_layers(name):
    compare(name, exports.LAYERS[name])


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in exports.MODELS]
)
def test_models(name):
    size = exports.MODELS[name]
    compare(name, exports.normal(2, 3, size, size))
