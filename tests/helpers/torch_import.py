"""Comparing symbols that come from torch modules with these."""

import inspect
import math
import re

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import dpmodule as mx


class Functions(nn.Module):
    """A module that applies many functions to its inputs, and returns a dict of what they return.

    Args:
        functions: by name; each takes all inputs.
    """

    def __init__(self, functions):
        super().__init__()
        self.functions = dict(functions)

    def forward(self, x, y=None, z=None):
        given = [v for v in (x, y, z) if v is not None]
        return {name: function(*given) for name, function in self.functions.items()}


def array(tensor):
    """Return a tensor as an array; truth values as numbers, and no axes as one."""
    tensor = tensor.detach()
    tensor = tensor.float() if tensor.dtype is torch.bool else tensor
    return mx.nd.array(tensor.reshape(tensor.shape or (1,)), dtype=str(tensor.dtype).removeprefix("torch."))


def equal(found, wanted, what, tolerance=1e-5):
    """Compare an array with a tensor, with a relative tolerance of 1e-4."""
    want = wanted.detach().double().numpy()
    assert found.shape == (tuple(want.shape) or (1,)), f"{what}: shape {found.shape}, torch has {want.shape}"
    numbers = found.asnumpy().astype(np.float64).reshape(want.shape)
    np.testing.assert_allclose(numbers, want, 1e-4, tolerance, err_msg=what)


def bind_like(module, found, inputs):
    """Bind a symbol that came from a module, with gradients of its parameters and floating inputs."""
    symbol, args, states = found
    given = dict(args)
    for name, value in inspect.signature(module.forward).bind(*inputs).arguments.items():
        if name in symbol.list_arguments():
            given[name] = array(value)
    wanted = [n for n in given if given[n].dtype in (np.float32, np.float64)]
    grads = {n: mx.nd.zeros(given[n].shape, dtype=given[n].dtype) for n in wanted}
    need = {n: "write" if n in grads else "null" for n in given}
    return symbol.bind(mx.cpu(), given, args_grad=grads, grad_req=need, aux_states=states)


def _tensors(tree):
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _check_outputs(found, names, wanted, mode, tolerance):
    assert len(found) == len(wanted)
    for name, one, want in zip(names, found, wanted):
        equal(one, want, f"{mode}: {name}", tolerance)


def compare(module, inputs, evaluates=False, tolerance=1e-5):
    """Turn a module into a symbol, and compare outputs and a step of gradient descent for another batch size.

    Args:
        module: the module.
        inputs: makes the arguments of forward for a batch size.
        evaluates: keep the module in evaluation mode.
        tolerance: greatest absolute difference.

    Returns:
        What `sym.from_torch` returned.
    """
    found = mx.sym.from_torch(module.train(not evaluates), *inputs(3))
    given = tuple(v.requires_grad_() if v.dtype.is_floating_point else v for v in inputs(5))
    executor, names = bind_like(module, found, given), found[0].list_outputs()
    with torch.no_grad():
        wanted = _tensors(module.eval()(*given))
    _check_outputs(executor.forward(is_train=False), names, wanted, "prediction", tolerance)
    wanted = _tensors(module.train(not evaluates)(*given))
    outputs = executor.forward(is_train=True)
    _check_outputs(outputs, names, wanted, "training", tolerance)
    heads = [torch.randn_like(w) if w.requires_grad else None for w in wanted]
    roots = [(w, h) for w, h in zip(wanted, heads) if h is not None]
    torch.autograd.backward([w for w, _ in roots], [h for _, h in roots])
    executor.backward([mx.nd.zeros_like(o) if h is None else array(h) for o, h in zip(outputs, heads)])
    _check_step(module, executor, given, tolerance)
    return found


def _check_step(module, executor, given, tolerance):
    """Compare parameters after a step with a rate of 0.1, and the gradients of inputs."""
    arguments = inspect.signature(module.forward).bind(*given).arguments
    for name, value in (*module.named_parameters(), *arguments.items()):
        made = executor.grad_dict.get(name)
        if value.grad is not None and (made is not None or value.grad.any()):
            assert made is not None, f"the symbol has no {name}"
            found = executor.arg_dict[name] - 0.1 * made
            equal(found, value - 0.1 * value.grad, f"step of {name}", tolerance)


def _parts(text):
    return [part.strip() for part in re.split(r";|\n", text) if part.strip()]


def evaluated(text):
    """Return the values of expressions such as ``nn.Linear(2, 3)``, separated by semicolons or ends of lines."""
    return [eval(part, {"nn": nn, "torch": torch}) for part in _parts(text)]


def expressions(text, names="x"):
    """Return a module of functions whose bodies are expressions, separated by semicolons or ends of lines."""
    known = {"F": F, "math": math, "nn": nn, "torch": torch}
    return Functions({f"f{i}": eval(f"lambda {names}: {p}", known) for i, p in enumerate(_parts(text))})
