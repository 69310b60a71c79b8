"""Update operators give the numbers that MXNet 1.9.1 gave, for weights and states."""

import json
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from helpers.walk import walks

FOLDER = Path(__file__).parents[2] / "data" / "goldens" / "update"
CALLS = json.loads((FOLDER / "update.json").read_text())


@pytest.fixture(scope="module")
def arrays():
    with np.load(FOLDER / "update.npz") as found:
        return dict(found)


def function_of(op):
    return getattr(mx.nd._internal if op.startswith("_") else mx.nd, op)


@walks(enumerate(CALLS))
def test_recorded_call(number, call, arrays):
    name = f"c{number}"
    before = [arrays[f"{name}/in{i}"] for i in range(call["inputs"])]
    given = [mx.nd.array(x, dtype=x.dtype) for x in before]
    outs = call["out"]
    out = given[outs] if isinstance(outs, int) else [given[i] for i in outs]
    found = function_of(call["op"])(*given, out=out, **call["attrs"])
    assert found is out
    for i, (old, new) in enumerate(zip(before, given, strict=True)):
        if call["op"] == "_adamw_update" and i == 1:  # MXNet leaves its rescaled gradient there
            np.testing.assert_array_equal(new.asnumpy(), old)
            continue
        want = arrays.get(f"{name}/after{i}", old)
        tolerance = 2e-3 if want.dtype == np.float16 else 2e-6
        np.testing.assert_allclose(new.asnumpy(), want, tolerance, tolerance, err_msg=f"{call}, input {i}")


@walks(list(enumerate(CALLS))[::3])
def test_without_out_the_weight_stays_and_states_move(number, call, arrays):
    name = f"c{number}"
    before = [arrays[f"{name}/in{i}"] for i in range(call["inputs"])]
    given = [mx.nd.array(x, dtype=x.dtype) for x in before]
    found = function_of(call["op"])(*given, **call["attrs"])
    outs = [call["out"]] if isinstance(call["out"], int) else call["out"]
    results = found if isinstance(found, list) else [found]
    for position, result in zip(outs, results, strict=True):
        np.testing.assert_array_equal(given[position].asnumpy(), before[position])
        want = arrays.get(f"{name}/after{position}", before[position])
        np.testing.assert_allclose(result.asnumpy(), want, 2e-3 if want.dtype == np.float16 else 2e-6, 2e-6)
    for i, new in enumerate(given):
        if i not in (*outs, 1):
            want = arrays.get(f"{name}/after{i}", before[i])
            np.testing.assert_allclose(new.asnumpy(), want, 2e-6, 2e-6)
