"""Every operator's recorded calls on the simulated device: MXNet's values, one device, no waiting but for reasons."""

import contextlib
import json

import numpy as np
import pytest
import torch

from dpmodule import native
from dpmodule.executor import cuda_graphs
from helpers import accelerator
from helpers.op_tables import TESTS, arrays_of, bound_call, recorded_calls

mx = accelerator.install()
WAITS = accelerator.WAITS
ALLOWED = json.loads((TESTS / "data" / "waiting_operators.json").read_text())


def operators_of(case):
    symbol = mx.sym.load_json(case["symbol_json"])
    return symbol, {node.op.name for node in symbol.graph.nodes if node.op is not None}


def check(found, expected, what):
    found = accelerator.on_host(found.raw).numpy()
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype), what
    tolerance = {"e": (1e-2, 1e-2), "f": (1e-4, 1e-5), "d": (1e-4, 1e-5)}.get(expected.dtype.char, (0, 0))
    np.testing.assert_allclose(found, expected, *tolerance, err_msg=what)


def run(case, executor, heads):
    """Run a recorded call as it was run."""
    if case["eval_too"]:
        executor.forward(is_train=False)
    executor.forward(is_train=case["is_train"])
    if case["backward"]:
        executor.backward(heads)


def compare(group, case, executor):
    name, data = case["name"], arrays_of(group)
    for number, output in enumerate(executor.outputs):
        if f"{name}/out/{number}" in data:
            check(output, data[f"{name}/out/{number}"], f"output {number}")
    for key in case["grads"] if case["backward"] else ():
        check(executor.grad_dict[key], data[f"{name}/grad/{key}"], f"gradient of {key}")
    for key, state in executor.aux_dict.items():
        check(state, data[f"{name}/aux_out/{key}"], f"state {key}")


def failures(chosen):
    """Return what is wrong by recorded call, and the operators that waited."""
    wrong, waited = {}, set()
    for group, case in chosen:
        symbol, names = operators_of(case)
        may_wait = names & ALLOWED.keys()
        try:
            executor, heads = bound_call(group, case, symbol, mx.gpu())
            before = len(WAITS.found)
            with contextlib.nullcontext() if may_wait else WAITS.refused():
                run(case, executor, heads)
            if len(WAITS.found) > before:
                waited |= may_wait
            compare(group, case, executor)
        except Exception as error:
            wrong[case["name"]] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return wrong, waited


@pytest.mark.filterwarnings("ignore:.*lstm_state_clip")
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_operators_wait_for_nothing_without_need(every):
    """The first recorded call of each operator, or every call."""
    first = {}
    for group, case in recorded_calls():
        for name in [case["name"]] if every else operators_of(case)[1]:
            first.setdefault(name, (group, case))
    assert len(first) >= 200
    wrong, waited = failures({case["name"]: (group, case) for group, case in first.values()}.values())
    assert wrong == {}
    assert not every or waited == ALLOWED.keys(), "operators that no longer wait are still in the table"


def test_the_table_has_reasons():
    assert all(len(reason.split()) > 3 for reason in ALLOWED.values())
    assert set(ALLOWED) <= set(mx.ops.names())
    assert not ALLOWED.keys() & set(cuda_graphs._SAFE)


def test_devices_are_not_mixed():
    data, weight = mx.sym.Variable("data"), mx.sym.Variable("w")
    arrays = {"data": mx.nd.ones((2, 3), ctx=mx.gpu()), "w": mx.nd.ones((2, 3))}
    with pytest.raises(mx.MXNetError):
        mx.sym.elemwise_add(data, weight).bind(mx.gpu(), arrays).forward()


@pytest.mark.skipif(native.core is None, reason="there is no extension")
def test_the_extension_is_kept_off_the_device():
    here, there = torch.ones(3), torch.ones(3, device=mx.gpu().torch_device)
    assert native.core.first_nonfinite([here.data_ptr()], [3]) < 0
    with pytest.raises(RuntimeError, match="address of the device's memory"):
        native.core.first_nonfinite([there.data_ptr()], [3])
