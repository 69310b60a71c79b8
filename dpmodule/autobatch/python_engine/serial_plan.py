"""The plan without batching: one node at a time, in the order of their making."""

from __future__ import annotations

import numpy as np

from ..plan import BatchPlan, BatchStep, NodeTable
from ..signature import EXTRA

__all__ = ["make_serial_plan"]


def make_serial_plan(graph: NodeTable, first: int, end: int) -> BatchPlan:
    """Make a plan in which every node from `first` to before `end` is a batch of its own."""
    steps = []
    for node in range(first, end):
        kind = graph.signature(node).kind
        if kind.op is EXTRA:
            continue
        args = np.array(graph.operands(node), np.int64)
        if kind.many:
            steps.append(BatchStep(kind, np.array([node]), args, [len(args)]))
        else:
            steps.append(BatchStep(kind, np.array([node]), args[None]))
    return BatchPlan(steps, first, end)
