"""What is known of every operator: the tables in ops/cases, and recorded calls of MXNet 1.9.1 in data/goldens/ops."""

import importlib.util
import json
from functools import cache
from pathlib import Path

import numpy as np

import dpmodule as mx

TESTS = Path(__file__).parents[1]
GOLDENS = TESTS / "data" / "goldens" / "ops"


@cache
def table_rows():
    """Return every `OpCase` of the tables."""
    found = []
    for path in sorted((TESTS / "ops" / "cases").glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"cases_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found += module.CASES
    return found


@cache
def recorded_calls():
    """Return the group of every recorded call, and its description."""
    paths = sorted(GOLDENS.glob("*.json"))
    return [(path.stem, case) for path in paths for case in json.loads(path.read_text())]


@cache
def arrays_of(group):
    """Return the inputs, outputs and gradients of a group's calls by name."""
    with np.load(GOLDENS / f"{group}.npz") as found:
        return dict(found)


def bound_call(group, case, symbol, ctx, types=None):
    """Bind a recorded call, with its element types or others for them; returns it and its head gradients or None."""
    name, data = case["name"], arrays_of(group)
    with mx.np_shape(group.startswith("numpy")):
        return _bound(name, data, case, symbol, ctx, types or {})


def _bound(name, data, case, symbol, ctx, types):
    def given(key):
        return mx.nd.array(data[key], ctx=ctx, dtype=types.get(data[key].dtype, data[key].dtype))

    args = {key: given(f"{name}/in/{key}") for key in case["arguments"]}
    grads = {key: mx.nd.zeros(args[key].shape, ctx=ctx, dtype=args[key].dtype) for key in case["grads"]}
    states = {key: data[f"{name}/aux_in/{key}"] for key in case["aux"]}
    aux = {key: mx.nd.array(value, ctx=ctx, dtype=value.dtype) for key, value in states.items()}
    requests = {key: "write" if key in grads else "null" for key in args}
    heads = [
        given(key) for key in sorted(data, key=lambda key: (len(key), key)) if key.startswith(f"{name}/head/")
    ]
    executor = symbol.bind(ctx, args, args_grad=grads or None, grad_req=requests, aux_states=aux or None)
    return executor, heads if case["head_gradient"] else None
