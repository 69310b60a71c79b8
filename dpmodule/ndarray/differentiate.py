"""Gradients of recorded arrays: `backward` and `autograd.grad` over the graph of `tape`.

Source: MXNet 1.9.1 `autograd.backward` and `autograd.grad`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from .._core import mode, torch_private
from ..base import ShapeError, StateError
from ..context import Context
from ..ops.sparse import leaf_of
from .handle import Handle
from .tape import TapeNode, TapeStep, TapeVariable, in_graph, inputs_of, rows_array, values_of, variable_of

Tensor = torch.Tensor

_TWICE = "To differentiate one graph twice, pass retain_graph=True to the first backward"


def _reached(nodes: Iterable[TapeNode | None]) -> dict[TapeNode, None]:
    """Return all nodes reachable from some, later ones first; iterative, for deep graphs."""
    reached: dict[TapeNode, None] = {}
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node is not None and node not in reached:
            reached[node] = None
            stack += node.inputs
    return reached


def _head_node(head: Handle) -> TapeNode:
    """Return the node of an array to differentiate."""
    if not in_graph(head):
        raise StateError(
            "Cannot differentiate node because it is not in a computational graph: compute it inside "
            "autograd.record, from arrays with attach_grad(). " + _TWICE
        )
    node: TapeNode = head.trace[1]
    return node


def _seed(root: Tensor, given: Handle | None, create_graph: bool) -> Tensor:
    """Return the gradient of a head."""
    if given is None:
        return torch.ones_like(root, requires_grad=False)
    if given.stype == "ragged":
        found = leaf_of(values_of((given,))[0][0])
        tensor = found if create_graph else found.detach()
    else:
        tensor = inputs_of((given,))[0][0] if create_graph else given.raw
    if tensor.numel() != root.numel():
        raise ShapeError(f"a head gradient has shape {given.shape}, expected {tuple(root.shape)} as its head")
    return tensor.to(root.device, root.dtype).reshape(root.shape)


def _wanted(reached: dict[TapeNode, None], variables: Sequence[Handle] | None) -> list[TapeVariable]:
    """Return the variables to differentiate with respect to."""
    if variables is None:
        targets = [n for n in reached if isinstance(n, TapeVariable) and n.request != "null"]
        if not targets:
            raise StateError("there are no inputs in the computational graph that require gradients")
        return targets
    targets = []
    for i, array in enumerate(variables):
        variable = variable_of(array)
        what = f"cannot differentiate with respect to variable {i + 1} ({array.describe()})"
        if variable is None:
            raise StateError(f"{what} because it does not require gradient: call attach_grad() on it first")
        if variable not in reached:
            raise StateError(f"{what} because it is unreachable from the outputs")
        targets.append(variable)
    return targets


def differentiate(
    heads: Sequence[Handle],
    head_grads: Sequence[Handle | None],
    variables: Sequence[Handle] | None = None,
    retain_graph: bool = False,
    create_graph: bool = False,
    train_mode: bool = True,
) -> list[Any]:
    """Compute gradients of heads, each weighted by its head gradient.

    Args:
        head_grads: one gradient for each head; None means ones.
        variables: arrays to differentiate with respect to; None writes into all variables that the heads depend on.

    Returns:
        The gradients of `variables` as new arrays; empty if `variables` is None.
    """
    nodes = [_head_node(head) for head in heads]
    reached = _reached(nodes)
    wanted = _wanted(reached, variables)
    pairs = [(h.trace[0], g) for h, g in zip(heads, head_grads, strict=True)]
    roots = [(root, given) for root, given in pairs if root.requires_grad]
    seeds = [_seed(root, given, create_graph) for root, given in roots]
    for node in reached:
        loss = node.loss
        if loss is not None and loss.requires_grad and not any(loss is root for root, _ in roots):
            roots.append((loss, None))
            seeds.append(torch.zeros_like(loss, requires_grad=False))
    inputs = [v.alias for v in wanted if v.alias.requires_grad]
    with mode.scope(create_graph, train_mode):
        found = _engine([root for root, _ in roots], seeds, inputs, retain_graph, create_graph)
    by_input = dict(zip(map(id, inputs), found, strict=True))
    grads = [by_input.get(id(v.alias)) for v in wanted]
    for node in reached:
        if node.states is not None:
            node.states.commit()
    if create_graph:
        reached |= _reached(g.trace[1] for g in head_grads if g is not None and in_graph(g))
    known = [n for n in reached if isinstance(n, TapeVariable)]
    if not retain_graph:
        _free(reached, heads)
    if variables is None:
        for variable, grad in zip(wanted, grads, strict=True):
            variable.write(grad)
        return []
    return [
        _result(v, g, a.context, known if create_graph else None)
        for v, g, a in zip(wanted, grads, variables, strict=True)
    ]


def _engine(
    roots: Sequence[Tensor], seeds: Sequence[Tensor], inputs: Sequence[Tensor], retain: bool, create: bool
) -> Sequence[Tensor | None]:
    """Run torch's backward; None is the gradient of inputs that nothing depends on."""
    if not roots or not inputs:
        return [None] * len(inputs)
    try:
        if not retain and not create:
            return torch_private.run_backward(tuple(roots), tuple(seeds), inputs=tuple(inputs))
        return torch.autograd.grad(
            list(roots),
            list(inputs),
            list(seeds),
            retain_graph=retain,
            create_graph=create,
            allow_unused=True,
        )
    except RuntimeError as error:
        if "backward through the graph a second time" in str(error):
            raise StateError("a part of this graph was freed by an earlier backward; " + _TWICE) from None
        raise


def _free(reached: dict[TapeNode, None], heads: Sequence[Handle]) -> None:
    for node in reached:
        node.free()
    for head in heads:
        if not in_graph(head):
            head.trace = None


def _result(
    variable: TapeVariable, grad: Tensor | None, ctx: Context, known: list[TapeVariable] | None
) -> Handle:
    """Return a gradient as an array with its own memory; in the graph if its variables are passed."""
    if grad is None:
        grad = torch.zeros_like(variable.alias, requires_grad=False)
    if grad.is_sparse:
        if known is None and variable.grad.stype == "row_sparse":
            return rows_array(grad, ctx)
        grad = grad.to_dense()
    if known is None:
        grad = grad.data.to(variable.dtype, copy=True, memory_format=torch.contiguous_format)
        return _shaped(variable, grad, ctx)
    with torch.enable_grad():
        grad = grad.clone(memory_format=torch.contiguous_format)
    made = _shaped(variable, grad.data, ctx)
    made.trace = grad, TapeNode(TapeStep("_backward"), known)
    return made


def _shaped(variable: TapeVariable, grad: Tensor, ctx: Context) -> Handle:
    """Return a gradient as an array; ragged if its variable is."""
    if variable.grad.stype != "ragged":
        return Handle.result_type(grad, ctx)
    rows: Any = variable.grad
    return Handle.of_records["ragged"](rows.stored.replaced(grad), ctx)
