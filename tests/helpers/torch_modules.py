"""Comparing what `to_torch` makes with an executor: outputs in both modes, gradients, moving statistics."""

import numpy as np
import torch

import dpmodule as mx

__all__ = ["compare", "draw", "without_dropout"]


def without_dropout(symbol):
    """The same network, whose dropout drops nothing."""
    nodes = [
        node for node in symbol.graph.nodes if node.op is not None and node.op.name in ("Dropout", "RNN")
    ]
    for node in nodes:
        node.set_param("p", "0.0")
    return symbol


def draw(symbol, shapes, seed=0, dtype="float64", values=None):
    """Arrays for everything a symbol reads: (inputs and parameters, states)."""
    rng = np.random.RandomState(seed)
    arg_shapes, _, aux_shapes = symbol.infer_shape(**shapes)
    arrays = {}
    for name, shape in zip(symbol.list_arguments(), arg_shapes):
        if values and name in values:
            value = values[name](rng, shape) if callable(values[name]) else values[name]
        elif name in shapes and name.endswith("label"):
            value = rng.randint(0, 2, shape)
        elif len(shape) > 1 and name not in shapes:
            value = rng.randn(*shape) / np.sqrt(np.prod(shape[1:]))
        elif name.endswith("gamma"):
            value = rng.rand(*shape) + 0.5
        else:
            value = rng.randn(*shape) * (1 if name in shapes else 0.1)
        arrays[name] = mx.nd.array(np.asarray(value), dtype=dtype)
    states = {
        name: mx.nd.array(rng.rand(*shape) + (0.5 if "var" in name else 0), dtype=dtype)
        for name, shape in zip(symbol.list_auxiliary_states(), aux_shapes)
    }
    return arrays, states


def compare(symbol, shapes, arrays, states, tolerance=1e-5, train=True, skip=()):
    """Assert that the torch module of a symbol computes what its executor does."""
    inputs = [name for name in symbol.list_arguments() if name in shapes]
    params = {name: value for name, value in arrays.items() if name not in inputs}
    net = symbol.to_torch(params, states)
    assert set(net.state_dict()) == {*params, *states}
    executor = symbol.bind(
        mx.cpu(),
        {name: value.copy() for name, value in arrays.items()},
        {name: mx.nd.zeros(value.shape, dtype=value.dtype) for name, value in arrays.items()},
        {name: "null" if name in skip else "write" for name in arrays},
        {name: value.copy() for name, value in states.items()},
    )
    given = [arrays[name].torch() for name in inputs]
    wanted = [out.asnumpy() for out in executor.forward(is_train=False)]
    with torch.no_grad():
        _close("eval", _all(net.eval()(*given)), wanted, tolerance)
    if not train:
        return net
    given = [
        t.clone().requires_grad_(name not in skip and t.is_floating_point()) for name, t in zip(inputs, given)
    ]
    outputs = executor.forward(is_train=True)
    found = _all(net.train()(*given))
    _close("train", [t.detach() for t in found], [out.asnumpy() for out in outputs], tolerance)
    rng = np.random.RandomState(1)
    heads = [rng.randn(*t.shape) for t in found]
    executor.backward([mx.nd.array(h, dtype=out.dtype) for h, out in zip(heads, outputs)])
    pairs = [(t, torch.from_numpy(h).to(t.dtype)) for t, h in zip(found, heads) if t.requires_grad]
    torch.autograd.backward([t for t, _ in pairs], [h for _, h in pairs])
    leaves = {**dict(net.named_parameters()), **dict(zip(inputs, given))}
    for name in (n for n in arrays if n not in skip):
        grad = leaves[name].grad
        grad = torch.zeros_like(leaves[name]) if grad is None else grad
        _close(f"gradient of {name}", [grad], [executor.grad_dict[name].asnumpy()], tolerance)
    for name in states:
        _close(name, [net.get_buffer(name)], [executor.aux_dict[name].asnumpy()], tolerance)
    return net


def _all(outputs):
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _close(what, found, wanted, tolerance):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted):
        assert tuple(one.shape) == other.shape, (what, one.shape, other.shape)
        scale = max(np.abs(other).max(initial=0), 1e-3)
        assert np.abs(one.numpy() - other).max(initial=0) <= tolerance * scale, what
