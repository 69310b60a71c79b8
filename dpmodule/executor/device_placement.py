"""Model parallelism: placing the nodes of a graph on contexts.

Variables and operators made in an ``AttrScope(ctx_group="...")`` belong to that group, and `group2ctx` maps a group to
its context. All others use the executor's own context. A value is copied when a node on another device reads it;
gradients are copied back the same way.

Source: MXNet 1.9.1's group2ctx; a group that `group2ctx` omits is an error here, while MXNet silently uses the
executor's context.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

import torch

from ..base import ArgumentError
from ..context import Context, context_of
from ..graph import Graph, Node
from .lowering import Lowered, Step

if TYPE_CHECKING:
    from ..types import ContextLike

Placement = Mapping[Node, Context]


def place_nodes(graph: Graph, ctx: Context, group2ctx: Mapping[str, ContextLike] | None) -> Placement:
    """Return the context of every node; empty if all of them run on `ctx`.

    Args:
        ctx: context of nodes without a group.
    """
    if not group2ctx:
        return {}
    kinds = (Context, torch.device)
    if not isinstance(group2ctx, Mapping) or not all(isinstance(c, kinds) for c in group2ctx.values()):
        raise ArgumentError(f"group2ctx is {group2ctx!r}, expected a dict of Contexts by group name")
    contexts = {}
    for node in graph.nodes:
        group = node.attrs.get("__ctx_group__")
        if group is not None and group not in group2ctx:
            raise ArgumentError(
                f"{node.describe()} belongs to the context group {group!r}, but group2ctx names only "
                f"{', '.join(map(repr, group2ctx))}; add {group!r} to it"
            )
        contexts[node] = ctx if group is None else context_of(group2ctx[group]).check()
    return contexts if any(c != ctx for c in contexts.values()) else {}


@cache
def _mover(device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
    def move(x: torch.Tensor) -> torch.Tensor:
        return x.to(device)

    return move


def move_between(low: Lowered, contexts: tuple[Context, ...]) -> None:
    """Insert copies of values that a step reads from another device.

    Args:
        contexts: context of each node of the graph, in its order.
    """
    graph = low.graph
    variables = (*graph.arguments, *graph.auxiliary)
    made_on: dict[int, torch.device] = {
        number: contexts[graph.index[node]].torch_device for number, node in enumerate(variables)
    }
    moved: dict[tuple[int, torch.device], int] = {}
    steps: list[Step] = []
    for step in low.steps:
        device = contexts[step.node].torch_device
        for position, value in enumerate(step.inputs):
            if made_on[value] == device:
                continue
            if (value, device) not in moved:
                moved[value, device] = low.new_value(
                    f"{low.names[value]}_on_{device.type}{device.index or 0}"
                )
                arrival = moved[value, device]
                steps.append(Step(_mover(device), "move", None, [value], [arrival], -1, takes_env=False))
            step.inputs[position] = moved[value, device]
        made_on.update(dict.fromkeys(step.outputs, device))
        steps.append(step)
    low.steps = steps


def own_environments(low: Lowered, contexts: tuple[Context, ...], ctx: Context) -> None:
    """Mark the steps that run on a context other than the executor's, which need that context's generator.

    Args:
        contexts: context of each node of the graph, in its order.
    """
    for step in low.steps:
        if step.node >= 0 and step.takes_env and contexts[step.node] != ctx:
            step.own_env = True
