"""Compute x * sigmoid(x) and x * hard_sigmoid(x) in one call.

These are SiLU (swish) and hard swish, for which torch has kernels, and which `fused_convolutions` fuses. The gradient
of hard swish at NaN and infinities may be the output's, where the product's is NaN.

Needs:
    storage: dense
    rank: any
    type: any floating type, of hard swish but float64; others run as two operators
    layout: any
    gradients: any
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache

import torch
from torch.nn import functional as F

from ...ops.nn.activation import activation_name
from ..lowering import Lowered, Step

_PRODUCTS = frozenset({"broadcast_mul", "elemwise_mul"})


class GatedActivation:
    """The product of a value and its gate.

    Args:
        name: "silu" or "hardswish".
        gate: computes the gate.
    """

    def __init__(self, name: str, gate: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.name = name
        self._product: Callable[[torch.Tensor], torch.Tensor] = getattr(F, name)
        self._gate = gate
        # the slope of a hard sigmoid, 1/6, is a float32
        self._other_types = frozenset({torch.float64}) if name == "hardswish" else frozenset()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return the product, of the shape of x."""
        is_fast = x.is_floating_point() and x.dtype not in self._other_types
        return self._product(x) if is_fast else x * self._gate(x)


@cache
def _has_same_gradient() -> bool:
    """Return True if torch's gradient of hard swish is the product's at its two corners, as in newer versions."""
    corners = torch.tensor([-3.0, 3.0])
    found: list[float] = torch.ops.aten.hardswish_backward(torch.ones(2), corners).tolist()
    return found == [0.0, 1.0]


def _name(low: Lowered, gate: Step) -> str:
    """Return the name of the activation of which a step is the gate; "" for other steps."""
    op, a = low.operator(gate)
    if op is None or gate.takes_env:
        return ""
    if activation_name(op.name, a) == "sigmoid":
        return "silu"
    is_hard = op.name == "hard_sigmoid" and abs(a.alpha - 1 / 6) < 1e-6 and a.beta == 0.5
    return "hardswish" if is_hard and (not low.recorded or _has_same_gradient()) else ""


def gated_activations(low: Lowered) -> int:
    """Replace products of a value and its gate.

    Returns:
        Number of replaced products.
    """
    made_by = {value: step for step in low.steps for value in step.outputs}
    readers = Counter(value for step in low.steps for value in step.inputs)
    readers.update(low.kept())
    held = low.held_by_operators()
    gone: set[int] = set()
    count = 0
    for step in low.steps:
        op, _ = low.operator(step)
        if op is None or op.name not in _PRODUCTS or step.takes_env:
            continue
        for x, value in (step.inputs, step.inputs[::-1]):
            gate = made_by.get(value)
            if gate is not None and gate.inputs == [x] and x not in held and _name(low, gate):
                step.function = GatedActivation(_name(low, gate), gate.function)
                step.name, step.inputs = step.function.name, [x]
                count += 1
                if readers[value] == 1:
                    gone.add(id(gate))
                    step.covers = (gate.node,)
                break
    low.steps = [step for step in low.steps if id(step) not in gone]
    return count
