"""Every operator against real MXNet 1.9.1, in a graph and recorded: names, outputs, gradients, states."""

import json
from itertools import product

import numpy as np
import pytest

import dpmodule as mx
from helpers.op_tables import arrays_of, bound_call, recorded_calls
from helpers.walk import walks


def as_tuples(value):
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value


def call(face, case, inputs, **options):
    function = getattr(face, case["op"], None) or getattr(face._internal, case["op"])
    return function(*inputs, **{key: as_tuples(value) for key, value in case["attrs"].items()}, **options)


def make_symbol(case):
    return call(mx.sym, case, [mx.sym.Variable(name) for name in case["inputs"]], name="op")


def from_json(case):
    return mx.sym.load_json(case["symbol_json"])


def check(found, expected, what):
    found = found.asnumpy()
    assert found.shape == expected.shape, what
    assert found.dtype == expected.dtype, what
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(found, expected, err_msg=what)
        return
    rtol, atol = (1e-2, 1e-2) if expected.dtype == np.float16 else (1e-4, 1e-5)
    np.testing.assert_allclose(found.astype("f8"), expected.astype("f8"), rtol, atol, err_msg=what)


def run_and_compare(group, case, symbol, ctx):
    name, data = case["name"], arrays_of(group)
    executor, heads = bound_call(group, case, symbol, ctx)
    if case["eval_too"]:
        for i, output in enumerate(executor.forward(is_train=False)):
            check(output, data[f"{name}/eval/{i}"], f"output {i} in prediction")
    outputs = executor.forward(is_train=case["is_train"])
    for i, output in enumerate(outputs):
        if f"{name}/out/{i}" in data:
            check(output, data[f"{name}/out/{i}"], f"output {i}")
    if case["backward"]:
        executor.backward(heads)
        for key in case["grads"]:
            check(executor.grad_dict[key], data[f"{name}/grad/{key}"], f"gradient of {key}")
    for key, found in executor.aux_dict.items():
        check(found, data[f"{name}/aux_out/{key}"], f"state {key}")


@walks(product(recorded_calls(), (make_symbol, from_json)), family=lambda recorded, make: recorded[0])
@pytest.mark.filterwarnings("ignore:.*lstm_state_clip")
def test_operator_gives_what_mxnet_gives(recorded, make):
    group, case = recorded
    symbol = make(case)
    assert symbol.list_arguments() == case["arguments"]
    assert symbol.list_auxiliary_states() == case["aux"]
    assert symbol.list_outputs() == case["outputs"]
    run_and_compare(group, case, symbol, mx.cpu())


def array(value):
    return mx.nd.array(value, dtype=value.dtype)


@walks(recorded_calls(), family=lambda group, case: group)
@pytest.mark.filterwarnings("ignore:.*lstm_state_clip")
def test_recorded_operator_gives_what_mxnet_gives(group, case):
    name, data = case["name"], arrays_of(group)
    args = {key: array(data[f"{name}/in/{key}"]) for key in case["arguments"]}
    aux = {key: array(data[f"{name}/aux_in/{key}"]) for key in case["aux"]}
    for key in case["grads"]:
        args[key].attach_grad()
    graph = json.loads(case["symbol_json"])  # states stand among the inputs, in the operator's order
    inputs = [graph["nodes"][entry[0]]["name"] for entry in graph["nodes"][graph["heads"][0][0]]["inputs"]]
    with mx.autograd.record(train_mode=case["is_train"]):
        outputs = call(mx.nd, case, [{**args, **aux}[key] for key in inputs])
    outputs = outputs if isinstance(outputs, list) else [outputs]
    for i, output in enumerate(outputs):
        if f"{name}/out/{i}" in data:
            check(output, data[f"{name}/out/{i}"], f"output {i}")
    if not case["backward"] or not case["grads"]:
        return
    heads = [data.get(f"{name}/head/{i}") for i in range(len(outputs))]
    mx.autograd.backward(outputs, [None if h is None else array(h) for h in heads])
    for key in case["grads"]:
        check(args[key].grad, data[f"{name}/grad/{key}"], f"gradient of {key}")
    for key, state in aux.items():
        check(state, data[f"{name}/aux_out/{key}"], f"state {key}")


@pytest.mark.gpu
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore:.*lstm_state_clip")
def test_operators_on_a_gpu():
    failed = {}
    for group, case in recorded_calls():
        try:
            run_and_compare(group, case, from_json(case), mx.gpu())
        except (AssertionError, mx.MXNetError) as error:
            failed[group, case["name"]] = str(error).strip().splitlines()[0]
    assert failed == {}
