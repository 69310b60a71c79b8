"""Gradient flow in a graph: the operators that gradients reach, the states they leave unchanged, and head gradients."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any

import torch

from ..base import ArgumentError, NodeError
from ..graph import Graph, Node
from ..ndarray import NDArray
from .sparse_arrays import seed_of


def check_differentiable(graph: Graph, wanted: Iterable[str]) -> None:
    """Reject a graph in which a gradient would have to flow through an operator that is not differentiable."""
    if all(node.op is None or node.op.differentiable for node in graph.nodes):
        return
    leads = dependents_of(graph, wanted)
    for node in reached_by_gradients(graph):
        if node in leads and node.op is not None and not node.op.differentiable:
            raise NodeError(
                f"{node.describe()} is not differentiable, but gradients of its inputs are requested; bind "
                "with grad_req='null', or apply sym.BlockGrad to its output"
            )


def dependents_of(graph: Graph, wanted: Iterable[str], stops: Container[str] = ()) -> set[Node]:
    """Return the wanted arguments and all nodes that depend on them, except through operators of the names `stops`."""
    names, dependents = set(wanted), set[Node]()
    for node in graph.nodes:
        if node.op is None:
            depends = node.name in names
        else:
            depends = node.op.name not in stops and any(child in dependents for child, _ in node.inputs)
        if depends:
            dependents.add(node)
    return dependents


def frozen_states(graph: Graph, wanted: Iterable[str]) -> set[str]:
    """Return the names of states that backward does not update, since no gradient passes their operators.

    These are, for example, the moving means and variances of layers that are not trained.

    Args:
        wanted: names of the arguments whose gradients are wanted.
    Source: MXNet 1.9.1, which updates moving means and variances in the operator's backward.
    """
    if not graph.auxiliary:
        return set()
    above, updated, unchanged = dependents_of(graph, wanted, STOPS), set[str](), set[str]()
    for node in graph.nodes:
        (updated if node in above else unchanged).update(state.name for state, _ in node.auxiliary_inputs)
    return unchanged - updated


def reached_by_gradients(graph: Graph) -> set[Node]:
    """Return the operators that gradients reach: all below heads or losses, except those below a BlockGrad."""
    reached: set[Node] = set()
    waiting = [node for node, _ in graph.heads]
    waiting += [node for node in graph.nodes if node.op is not None and node.op.is_loss(node.a)]
    while waiting:
        node = waiting.pop()
        if node in reached or node.op is None or node.op.name == "BlockGrad":
            continue
        reached.add(node)
        waiting += [child for child, _ in node.inputs]
    return reached


_STEPS = """
equal not_equal greater greater_equal lesser lesser_equal logical_and logical_or logical_xor
"""

_OTHERS = """
BlockGrad zeros_like ones_like round rint ceil floor trunc fix logical_not argmax argmin argsort argmax_channel one_hot
shape_array size_array _contrib_bipartite_matching _contrib_MultiBoxPrior _contrib_MultiBoxTarget
_contrib_MultiBoxDetection _contrib_Proposal _contrib_MultiProposal
"""

STOPS = frozenset(
    _OTHERS.split()
    + [form % step for step in _STEPS.split() for form in ("_%s", "_%s_scalar", "broadcast_%s")]
)
"""Operators that propagate no gradient, and therefore need none."""


def convert_head_gradients(
    out_grads: Any, names: Sequence[str], outputs: Sequence[NDArray]
) -> list[torch.Tensor | None]:
    """Return the gradient given for each output, in the output's type and on its device; None if none is given.

    Shape:
        out_grads: each as its output.

    Args:
        out_grads: an NDArray, a list in the order of the outputs, or a dict by output name.
        names: names of the outputs. As in MXNet, surplus gradients in a list are ignored; missing ones count as not
            given.
    """
    if isinstance(out_grads, (list, tuple)):
        grads: list[Any] = list(out_grads)
    elif isinstance(out_grads, NDArray):
        grads = [out_grads]
    elif isinstance(out_grads, Mapping):
        unknown = [k for k in out_grads if k not in names]
        if unknown:
            raise ArgumentError(
                f"out_grads: {', '.join(map(str, unknown))} is not an output; outputs: {', '.join(names)}"
            )
        grads = [out_grads.get(name) for name in names]
    else:
        raise ArgumentError(f"out_grads is {type(out_grads).__name__}, expected an NDArray, a list or a dict")
    grads += [None] * (len(outputs) - len(grads))
    tensors: list[torch.Tensor | None] = []
    for name, grad, out in zip(names, grads, outputs):  # MXNet ignores surplus gradients
        if grad is None:
            tensors.append(None)
            continue
        if not isinstance(grad, NDArray):
            raise ArgumentError(f"out_grads: {name} is {type(grad).__name__}, expected an NDArray")
        tensors.append(seed_of(grad, out))
    return tensors


def needs_head_gradient(head: Node, wanted: Collection[str]) -> bool:
    """Return True if a wanted gradient depends on the gradient of an output.

    It does not if every path ends in a loss, which ignores its gradient, or in an operator without gradient: a reshaped
    `SoftmaxOutput`, as in R-CNN networks, needs no head gradient.
    """
    seen: set[Node] = set()
    stack = [head]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op is None:
            if node.name in wanted:
                return True
        elif node.op.name not in STOPS and node.op.needs_head_gradient(node.a):
            stack.extend(child for child, _ in node.inputs)
    return False
