"""Copy heads that would otherwise share memory with an argument, a state or each other.

MXNet's outputs own their memory; torch's reshapes, slices and transposes are views. Results of this package's functions
that backward reads are copied as well, if the operators they replace keep separate memory for backward.
"""

from __future__ import annotations

from typing import Any

import torch

from ..lowering import Lowered, Step


def clone(value: Any) -> Any:
    """Return a copy of a tensor or sparse value.

    Shape:
        returns: as the value.
    """
    return value.clone()


def contiguous_clone(value: torch.Tensor) -> torch.Tensor:
    """Return a contiguous copy of a tensor, as outputs are.

    Shape:
        returns: as the value.
    """
    return value.clone(memory_format=torch.contiguous_format)


def _root(low: Lowered, made_by: dict[int, Step], value: int) -> int:
    """Follow a value back through steps that may return a view of their first input.

    A step that a pass added may, unless its function has the attribute `makes_memory`.
    """
    while value in made_by:
        step = made_by[value]
        op = low.graph.nodes[step.node].op if step.node >= 0 else None
        if not step.inputs or not (op is None or op.view) or getattr(step.function, "makes_memory", False):
            break
        value = step.inputs[0]
    return value


def fresh_heads(low: Lowered) -> None:
    """Insert a copy of each head that is a view of a variable, of another head, or of a value that backward reads.

    Backward reads the results of functions with the attribute `keeps_results`.
    """
    made_by = {n: step for step in low.steps for n in step.outputs}
    roots = [_root(low, made_by, head) for head in low.heads]
    for i, head in enumerate(low.heads):
        is_kept = low.recorded and _is_kept(made_by.get(roots[i]))
        if is_kept or roots[i] < low.num_variables or roots[i] in roots[:i]:
            copy = low.new_value(f"{low.names[head]}_copy")
            function = contiguous_clone if is_kept else clone
            low.steps.append(Step(function, "clone", None, [head], [copy], -1, takes_env=False))
            low.heads[i] = copy


def _is_kept(step: Step | None) -> bool:
    return step is not None and bool(getattr(step.function, "keeps_results", False))
