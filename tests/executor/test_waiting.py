"""Operators that CUDA graphs take: none of them makes Python wait for a number, which would spoil a recording."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import dpmodule as mx
from dpmodule.executor import cuda_graphs
from helpers.op_tables import arrays_of, recorded_calls

_WAITING = """
_local_scalar_dense _unique2 bincount equal histc is_nonzero lift_fresh masked_select multinomial nonzero unique_dim
unique_consecutive
"""

_SOMETIMES = {
    ("SoftmaxOutput", "nonzero"),
    ("relu", "_local_scalar_dense"),
    ("Pooling", "lift_fresh"),
}
"""Known exceptions: two take another way on a GPU, the last, with partial windows, is found by a trial_run."""


class Lookout(TorchDispatchMode):
    """Collects the calls of torch whose result, or its shape, Python has to wait for."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, kinds, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in _WAITING.split() or (name.startswith(("index", "_index_put")) and by_mask(args)):
            self.seen.add(name)
        return func(*args, **(kwargs or {}))


def by_mask(args):
    indices = args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else ()
    return any(isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8) for i in indices)


def calls():
    """Yield the recorded calls of operators that are taken, by group."""
    for group, case in recorded_calls():
        symbol = mx.sym.load_json(case["symbol_json"])
        nodes = [node for node in symbol.graph.nodes if node.op is not None]
        if case["backward"] and all(node.op.name in cuda_graphs._SAFE for node in nodes):
            yield group, case, symbol


def waits(group, case, symbol):
    """Return what a run forward and backward waits for."""
    data, name = arrays_of(group), case["name"]
    arrays = {
        key: mx.nd.array(data[f"{name}/in/{key}"], dtype=data[f"{name}/in/{key}"].dtype)
        for key in case["arguments"]
    }
    grads = {key: mx.nd.zeros_like(arrays[key]) for key in case["grads"]}
    aux = {key: mx.nd.array(data[f"{name}/aux_in/{key}"]) for key in case["aux"]}
    requests = {key: "write" if key in grads else "null" for key in arrays}
    executor = symbol.bind(
        mx.cpu(), arrays, args_grad=grads or None, grad_req=requests, aux_states=aux or None
    )
    outputs = executor.forward(is_train=case["is_train"])
    heads = [mx.nd.ones_like(out) for out in outputs] if case["head_gradient"] else None
    executor.backward(heads)  # what is found out once only
    with Lookout() as lookout:
        executor.forward(is_train=case["is_train"])
        executor.backward(heads)
    return lookout.seen


@pytest.mark.filterwarnings("ignore:.*lstm_state_clip")
def test_safe_operators_wait_for_nothing():
    found, covered = {}, set()
    for group, case, symbol in calls():
        (name,) = {node.op.name for node in symbol.graph.nodes if node.op is not None}
        if name == "RNN" and cuda_graphs.unsupported_reason(
            mx.executor.program.program_of(symbol.graph, True)
        ):
            continue
        covered.add(name)
        seen = {each for each in waits(group, case, symbol) if (name, each) not in _SOMETIMES}
        if seen:
            found.setdefault(name, set()).update(seen)
    assert found == {}
    assert len(covered) > 80
