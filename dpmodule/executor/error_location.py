"""Errors inside a graph: the node that failed, its input shapes, and the user's line that made it."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..base import NodeError
from ..graph import Graph, Node
from ..ops.spec import Env
from .interpreter import StepFailed, backward_by_node
from .program import Program

Shapes = Mapping[Node, Sequence[Any]]


def _node_error(
    graph: Graph, shapes: Shapes, indices: Sequence[int], error: BaseException, what: str = ""
) -> NodeError:
    """Describe a failed node, or several that ran as one step; `indices` is empty for a step without a node."""
    if not indices:
        return NodeError(f"{type(error).__name__}{what}: {error}")
    nodes = [graph.nodes[index] for index in indices]
    inside = set(nodes)
    entries = dict.fromkeys(entry for node in nodes for entry in node.inputs if entry[0] not in inside)
    inputs = ", ".join(f"{child.output_names[i]} {shapes[child][i]}" for child, i in entries)
    failed = nodes[0].describe()
    if len(nodes) > 1:
        failed = f"one of the operators from {failed} to {nodes[-1].describe()}, which run together,"
    return NodeError(f"{failed}{what} failed on inputs {inputs or 'none'}: {error}")


def forward_error(error: Exception, program: Program, graph: Graph, shapes: Shapes) -> NodeError:
    """Return the error to raise for one that a generated function or the interpreter raised.

    Args:
        program: the program that ran; its graph may be a different object of the same structure.
        graph: the executor's graph, whose nodes record the user's line that made them.
        shapes: shapes of every node's outputs.
    """
    if isinstance(error, StepFailed):
        return _node_error(graph, shapes, _known(error.node), error.__cause__ or error)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if f.filename == program.filename and f.lineno is not None]
    return _node_error(graph, shapes, program.nodes_at(lines[-1]) if lines else [], error)


def backward_error(
    error: Exception,
    program: Program,
    graph: Graph,
    shapes: Shapes,
    values: Sequence[torch.Tensor],
    envs: tuple[Env, Sequence[Env]],
    heads: Mapping[int, torch.Tensor],
) -> NodeError:
    """Return the error to raise for a failed backward; runs the graph again node by node to find the node.

    Shape:
        values: each as its variable.
        heads: each as the value that it is the gradient of.

    Args:
        shapes: shapes of every node's outputs.
    """
    generator = envs[0].generator
    state = generator.get_state() if generator is not None and program.random else None
    try:
        index = backward_by_node(program, values, *envs, heads)
    except Exception:  # the search itself failed: only the first error is known
        index = -1
    finally:
        if generator is not None and state is not None:
            generator.set_state(state)
    return _node_error(
        graph, shapes, _known(index), error, " (its gradient)" if index >= 0 else " in backward"
    )


def head_error(error: Exception, graph: Graph, shapes: Shapes, output: int) -> NodeError:
    """Return the error to raise when the gradient of a loss failed.

    Args:
        shapes: shapes of every node's outputs.
        output: index of the output that is the loss.
    """
    index = graph.index[graph.heads[output][0]]
    return _node_error(graph, shapes, [index], error, " (its gradient)")


def _known(index: int) -> list[int]:
    return [index] if index >= 0 else []
