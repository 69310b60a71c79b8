"""Operators called on two examples at once, by their batch rules, give what a call for each gives."""

import torch

import dpmodule as mx
from dpmodule import ops
from dpmodule.ops.spec import NEVER, ROWS, SHARE
from helpers.op_case import call_parsed, parsed
from helpers.op_tables import arrays_of, recorded_calls, table_rows
from helpers.walk import family_of, walks


def is_batched(op):
    return op.batch != NEVER and not op.random and not op.num_subgraphs


def of_tables():
    return [row for row in table_rows() if is_batched(ops.get(row.name))]


def of_recordings():
    for group, case in recorded_calls():
        node = mx.sym.load_json(case["symbol_json"]).graph.heads[0][0]
        scalars = [key for key in case["arguments"] if not arrays_of(group)[f"{case['name']}/in/{key}"].ndim]
        named = [source.name for source, _ in node.inputs] == case["arguments"]
        if is_batched(node.op) and named and not scalars:
            yield group, case, node


def check(op, attributes, arrays):
    def function(*tensors):
        return call_parsed(op, attributes, tensors)

    rules = [i.batch for i in op.active_inputs(attributes, len(arrays))]
    one = [torch.tensor(x) for x in arrays]
    if ROWS in rules:
        other = [x.flip(0) if rule == ROWS else x for x, rule in zip(one, rules, strict=True)]
        pairs = zip(one, other, rules, strict=True)
        found = function(*(x if rule == SHARE else torch.cat([x, y]) for x, y, rule in pairs))
        wanted = [torch.cat(pair) for pair in zip(function(*one), function(*other), strict=True)]
    else:
        places = tuple(None if rule == SHARE else 0 for rule in rules)
        both = [x if rule == SHARE else torch.stack([x, x]) for x, rule in zip(one, rules, strict=True)]
        found = torch.vmap(function, places)(*both)
        wanted = [torch.stack([x, x]) for x in function(*one)]
    for here, there in zip(found, wanted, strict=True):
        torch.testing.assert_close(here, there, rtol=1e-4, atol=1e-5, equal_nan=True)


@walks(of_tables(), family=lambda row: family_of(row.name))
def test_calls_of_the_tables(row):
    check(ops.get(row.name), parsed(row.name, row.attrs, len(row.inputs)), row.inputs)


@walks(of_recordings(), family=lambda group, case, node: group)
def test_recorded_calls(group, case, node):
    data = arrays_of(group)
    arrays = [data[f"{case['name']}/in/{name}"] for name in case["arguments"]]
    check(node.op, node.op.parse(node.params), arrays)


VMAPPED = "cbrt rcbrt hard_sigmoid max min norm sum broadcast_maximum _mod dot transpose Reshape slice take"
VMAPPED = {*VMAPPED.split(), "SliceChannel", "pick", "one_hot", "topk", "repeat"}


@walks([(group, case, node) for group, case, node in of_recordings() if node.op.name in VMAPPED])
def test_recorded_calls_under_vmap(group, case, node):
    data, attributes = arrays_of(group), node.op.parse(node.params)
    arrays = [torch.tensor(data[f"{case['name']}/in/{name}"]) for name in case["arguments"]]
    both = [torch.stack([x, x.flip(0)]) for x in arrays]
    leaves = [x.requires_grad_() if x.is_floating_point() else x for x in both]

    def function(*row):
        return call_parsed(node.op, attributes, row)[0]

    together = torch.vmap(function)(*leaves)
    loop = torch.stack([function(*row) for row in zip(*leaves, strict=True)])
    torch.testing.assert_close(together, loop, rtol=1e-4, atol=1e-5, equal_nan=True)
    if loop.requires_grad:
        wanted = [x for x in leaves if x.requires_grad]
        grads = [torch.autograd.grad(x.sum(), wanted, allow_unused=True) for x in (together, loop)]
        for one, other in zip(*grads):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
