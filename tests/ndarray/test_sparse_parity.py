"""Functions on sparse arrays give the values and storage types that MXNet 1.9.1 gave."""

import json
from pathlib import Path

import numpy as np

import dpmodule as mx
from helpers.sparse_calls import calls
from helpers.walk import walks

FOLDER = Path(__file__).parents[1] / "data" / "goldens" / "sparse"
STYPES = json.loads((FOLDER / "calls.json").read_text())
VALUES = dict(np.load(FOLDER / "calls.npz"))


@walks(calls(mx))
def test_call(label, function):
    found = function()
    assert (found.stype, np.dtype(found.dtype)) == (STYPES[label], VALUES[label].dtype)
    np.testing.assert_allclose(found.asnumpy(), VALUES[label], rtol=1e-4, atol=1e-5)
