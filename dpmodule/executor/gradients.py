"""Delivering the engine's gradients into gradient arrays.

A gradient that autograd returns may be anything: a view of another, the head gradient itself, a stride-0 expansion.
It replaces the array's tensor only where that can be seen by nobody; else it is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from .. import private
from ..base import NodeError
from ..graph import Graph, Node
from ..ndarray import NDArray

__all__ = ["check_differentiable", "deliver", "fed_by", "reached_by_gradients", "resting_states"]


def check_differentiable(graph: Graph, wanted: Iterable[str]) -> None:
    """Refuse a graph in which a gradient would have to flow through an operator that has none.

    Args:
        graph: the graph.
        wanted: names of the arguments whose gradients are wanted.

    Raises:
        NodeError: names the operator.
    """
    if all(node.op is None or node.op.differentiable for node in graph.nodes):
        return
    leads = fed_by(graph, wanted)
    for node in reached_by_gradients(graph):
        if node in leads and node.op is not None and not node.op.differentiable:
            raise NodeError(
                f"{node.describe()} is not differentiable, but gradients of what it reads are asked for; bind "
                "with grad_req='null', or put sym.BlockGrad behind it"
            )


def fed_by(graph: Graph, wanted: Iterable[str]) -> set[Node]:
    """Return the wanted arguments and all nodes that read them, directly or through others."""
    names, found = set(wanted), set[Node]()
    for node in graph.nodes:
        if node.name in names if node.op is None else any(child in found for child, _ in node.inputs):
            found.add(node)
    return found


def resting_states(graph: Graph, wanted: Iterable[str]) -> set[str]:
    """Return the names of states that backward leaves as they are, as it has no work at the operators that own them.

    These are the states of operators below which no gradient is wanted: moving means and variances of layers that
    are not trained.

    Args:
        graph: the graph.
        wanted: names of the arguments whose gradients are wanted.

    Source: MXNet 1.9.1, which updates moving means and variances in the operator's backward.
    """
    if not graph.auxiliary:
        return set()
    above, moving, resting = fed_by(graph, wanted), set[str](), set[str]()
    for node in graph.nodes:
        (moving if node in above else resting).update(state.name for state, _ in node.auxiliary_inputs)
    return resting - moving


def reached_by_gradients(graph: Graph) -> set[Node]:
    """Return the operators that gradients reach: all below the heads, but nothing from a BlockGrad on."""
    found: set[Node] = set()
    waiting = [node for node, _ in graph.heads]
    while waiting:
        node = waiting.pop()
        if node in found or node.op is None or node.op.name == "BlockGrad":
            continue
        found.add(node)
        waiting += [child for child, _ in node.inputs]
    return found


def _is_own_memory(tensor: torch.Tensor) -> bool:
    """Say whether a tensor is C-contiguous and fills its storage exactly."""
    return tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes


def deliver(
    grads: Sequence[torch.Tensor | None],
    targets: Sequence[NDArray],
    adds: Sequence[bool],
    taken: Iterable[torch.Tensor],
) -> None:
    """Write, or add, gradients to their arrays.

    Args:
        grads: what the engine returned; None for an argument that no head depends on.
        targets: the arrays.
        adds: whether to add instead of write, for each.
        taken: tensors whose memory must not end up in an array: head gradients, arguments, outputs.
    """
    seen = {t.data_ptr() for t in taken}
    sums: list[torch.Tensor] = []
    terms: list[torch.Tensor] = []
    for grad, target, add in zip(grads, targets, adds):
        tensor = target.raw
        if add:
            if grad is not None:
                sums.append(tensor)
                terms.append(grad)
        elif grad is None:
            tensor.zero_()
        else:
            pointer = grad.data_ptr()
            if (
                not target.pinned
                and pointer not in seen
                and grad.dtype == tensor.dtype
                and grad.shape == tensor.shape
                and _is_own_memory(grad)
            ):
                target.raw = grad
            else:
                tensor.copy_(grad)
            seen.add(pointer)
    if sums:
        private.foreach_add(sums, terms)
