"""Every operator on arrays, recorded: outputs, gradients and states of MXNet 1.9.1's recorded cases."""

import json

import numpy as np
import pytest

import dpmodule as mx
from helpers.op_tables import arrays_of, recorded_calls
from helpers.walk import walks


def as_tuples(value):
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value


def array(value):
    return mx.nd.array(value, dtype=value.dtype)


def check(found, expected, what):
    found = found.asnumpy()
    assert found.shape == expected.shape, what
    assert found.dtype == expected.dtype, what
    rtol, atol = (1e-2, 1e-2) if expected.dtype == np.float16 else (1e-4, 1e-5)
    np.testing.assert_allclose(found.astype("f8"), expected.astype("f8"), rtol, atol, err_msg=what)


def input_names(case):
    """Return the names of the operator's inputs, states among them, in its order."""
    graph = json.loads(case["symbol_json"])
    nodes = graph["nodes"]
    return [nodes[entry[0]]["name"] for entry in nodes[graph["heads"][0][0]]["inputs"]]


def as_list(value):
    return value if isinstance(value, list) else [value]


@walks(recorded_calls(), family=lambda group, case: group)
@pytest.mark.filterwarnings("ignore:.*lstm_state_clip")
def test_recorded_operator_gives_what_mxnet_gives(group, case):
    name, data = case["name"], arrays_of(group)
    function = getattr(mx.nd, case["op"], None) or getattr(mx.nd._internal, case["op"])
    args = {key: array(data[f"{name}/in/{key}"]) for key in case["arguments"]}
    aux = {key: array(data[f"{name}/aux_in/{key}"]) for key in case["aux"]}
    for key in case["grads"]:
        args[key].attach_grad()
    inputs = [{**args, **aux}[key] for key in input_names(case)]
    attrs = {key: as_tuples(value) for key, value in case["attrs"].items()}
    with mx.autograd.record(train_mode=case["is_train"]):
        outputs = as_list(function(*inputs, **attrs))
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
