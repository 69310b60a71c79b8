"""Operators called on two equal examples at once, by their batch rules, give twice what one call gives."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from dpmodule import ops
from dpmodule.ops.spec import NEVER, ROWS, SHARE, Env
from helpers.op_case import parsed

FOLDER = Path(__file__).parent / "cases"


def rows():
    for name in ("linalg", "utility", "contrib", "pdf"):
        spec = importlib.util.spec_from_file_location(f"batched_{name}", FOLDER / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield from (case for case in module.CASES if ops.get(case.name).batch != NEVER)


def function_of(op, attributes):
    if op.bind is not None:
        return op.bind(attributes)
    return lambda *tensors: op.run(attributes, Env(torch.device("cpu"), None, True), *tensors)


def first(found):
    return found if isinstance(found, torch.Tensor) else found[0]


@pytest.mark.parametrize("case", list(rows()), ids=str)
def test_two_at_once(case):
    op = ops.get(case.name)
    attributes = parsed(case.name, case.attrs, len(case.inputs))
    function, inputs = function_of(op, attributes), op.wanted(attributes, len(case.inputs))
    tensors = [torch.from_numpy(np.array(x)) for x in case.inputs]
    alone = first(function(*tensors))
    if any(i.batch == ROWS for i in inputs):
        doubled = [x if i.batch == SHARE else torch.cat([x, x]) for x, i in zip(tensors, inputs, strict=True)]
        found, wanted = first(function(*doubled)), torch.cat([alone, alone])
    else:
        doubled = [torch.stack([x, x]) for x in tensors]
        found, wanted = first(torch.vmap(function)(*doubled)), torch.stack([alone, alone])
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted)
