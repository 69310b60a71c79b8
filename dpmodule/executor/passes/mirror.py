"""Recompute results in backward instead of keeping them, which saves memory and costs time.

The recomputed results are those of operators with the attribute ``force_mirroring``; all cheap ones with
``mirror=True`` or MXNet's environment variable MXNET_BACKWARD_DO_MIRROR=1; or, with ``mirror=n``, all except those
passed between n equal parts of the network.

Needs:
    storage: dense
    rank: any
    type: any
    layout: any
    gradients: any
"""

from __future__ import annotations

import os
from collections import Counter

from ...graph import Graph, Node
from ..gradients import STOPS
from ..lowering import Lowered, Step

Policy = bool | int | None
"""None: follow the environment; False: no operators; True: cheap operators; a number: parts of the network."""

_COSTLY_NAMES = """
Concat Convolution Correlation Deconvolution Dropout Embedding FullyConnected RNN SoftmaxOutput batch_dot dot
linalg_gemm linalg_gemm2 _contrib_DeformableConvolution
"""
_COSTLY = frozenset(_COSTLY_NAMES.split())
"""Operators whose results are kept unless parts are recomputed: recomputing them takes long or saves nothing. MXNet
keeps those of BatchNorm too, since recomputing would update its moving averages twice.
"""


def policy(given: Policy) -> Policy:
    """Return the policy, which the environment may set."""
    return (os.environ.get("MXNET_BACKWARD_DO_MIRROR", "0") != "0" or None) if given is None else given


def _is_forced(node: Node) -> bool:
    text = node.attrs.get("__force_mirroring__", node.attrs.get("force_mirroring", ""))
    return text.lower() in ("true", "1")


def _is_repeatable(node: Node) -> bool:
    """Return True if an operator gives the same result when called again, and is differentiable."""
    op = node.op
    return (
        op is not None
        and op.loss is None
        and op.owner is None
        and not (op.stateful or node.subgraphs or op.name in STOPS)
        and op.differentiable
    )


def marked(graph: Graph, wanted: Policy) -> frozenset[int]:
    """Return the indices of the nodes whose results may be recomputed."""
    if wanted is False:
        return frozenset()
    everything = wanted is not None and wanted is not True
    return frozenset(
        i
        for i, node in enumerate(graph.nodes)
        if node.op is not None
        and (everything or _is_forced(node) or (wanted and node.op.name not in _COSTLY))
        and _is_repeatable(node)
    )


def _members(low: Lowered) -> list[Step]:
    """Return the steps that compute only marked nodes."""
    nodes = low.mirrored
    return [
        step
        for step in low.steps
        if step.node in nodes
        and nodes.issuperset(step.covers)
        and step.inputs
        and not (step.detach_first or step.own_env or step.keeps or step.reuses or low.is_sparse(step))
    ]


def _part_boundaries(low: Lowered, members: list[Step], parts: int) -> set[int]:
    """Return the values that a part reads from another part, and those read at the end."""
    size = -(-len(members) // parts)
    part = {id(step): i // size for i, step in enumerate(members)}
    made_in = {value: part[id(step)] for step in members for value in step.outputs}
    values = {*low.heads, *(loss.root for loss in low.losses)}  # kept in any case
    here = 0
    for step in low.steps:
        here = part.get(id(step), here)
        values.update(value for value in step.inputs if made_in.get(value, here) != here)
    return values


def _read_often(low: Lowered) -> set[int]:
    """Return the values with several readers, such as the sums of a residual network.

    Recomputing the last of these sums would recompute all of them together.
    """
    count = Counter(value for step in low.steps for value in step.inputs)
    return {value for value, readers in count.items() if readers > 1}


def mirror(low: Lowered) -> int:
    """Wrap the steps whose results are recomputed.

    Returns:
        Number of wrapped steps.
    """
    if low.is_subgraph or not low.mirrored:
        return 0
    from ..recompute import Recomputed

    members = _members(low)
    kept = _part_boundaries(low, members, low.mirror_parts) if low.mirror_parts else _read_often(low)
    members = [
        step for step in members if kept.isdisjoint(step.outputs) or _is_forced(low.graph.nodes[step.node])
    ]
    for step in members:
        op, a = low.operator(step)
        step.function = Recomputed(
            step.function, step.takes_env, op is not None and op.draws(a) and step.takes_env
        )
    return len(members)
