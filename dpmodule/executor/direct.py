"""Gradients of perceptrons without autograd.

Where a graph is a chain of dense layers below a loss, nothing else, what backward has to do is known beforehand.
Recording and replaying it through autograd's engine costs such small networks a tenth of their time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..ops.nn.dense_chain import ChainRun, DenseChain
from ..ops.spec import Env
from .lowering import Lowered, Step

__all__ = ["DirectRoot", "direct_forward"]


class DirectRoot:
    """Where backward starts: stands for the tensor that a recorded forward would have there.

    Args:
        run: the layers.
        chain: how the layers belong to the chain's arguments.
        values: the chain's arguments.
    """

    __slots__ = ("_chain", "_run", "_values")

    requires_grad = True

    def __init__(self, run: ChainRun, chain: DenseChain, values: Sequence[torch.Tensor]) -> None:
        self._run, self._chain, self._values = run, chain, values

    @property
    def dtype(self) -> torch.dtype:
        """Type of the tensor."""
        return self._run.outputs[-1].dtype

    def detach(self) -> torch.Tensor:
        """Return the tensor."""
        return self._run.outputs[-1]

    def gradients(self, seed: torch.Tensor, leaves: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """Return the gradients of some of the chain's arguments, as `private.run_backward` does.

        Args:
            seed: gradient of the tensor.
            leaves: the arguments.
        """
        numbers = {id(leaf): number for number, leaf in enumerate(leaves)}
        places = self._chain.by_layer([numbers.get(id(value)) for value in self._values], None)
        found: list[torch.Tensor | None] = [None] * len(leaves)
        for number, grad in zip(places, self._run.gradients(seed, [n is not None for n in places])):
            if number is not None and grad is not None:
                before = found[number]
                grad = grad.reshape(leaves[number].shape)
                found[number] = grad if before is None else before + grad
        return found


def direct_forward(low: Lowered) -> Callable[..., Any] | None:
    """Return a function that does what the generated one does, but records no gradients; None for other graphs.

    Its arguments and results are those of `Program.forward`; with `DirectRoot` for the root. It returns None where
    it does not know the types or shapes, or something fails.

    Args:
        low: the steps, after passes.
    """
    if not (low.recorded and len(low.steps) == 2 and len(low.heads) == len(low.losses) == 1):
        return None
    step, head = low.steps
    chain = step.function
    if not (isinstance(chain, DenseChain) and head.detach_first and head.inputs[0] == step.outputs[0]):
        return None
    if low.mutated or not all(value < low.num_variables for value in (*step.inputs, *head.inputs[1:])):
        return None
    return _forward_of(chain, step, head)


def _forward_of(chain: DenseChain, step: Step, head: Step) -> Callable[..., Any]:
    slots, rest = list(step.inputs), list(head.inputs[1:])
    nothing = ((None,) * len(rest),)

    def forward(values: Sequence[torch.Tensor], env: Env, shaped: Sequence[Env]) -> Any:
        own = [values[slot] for slot in slots]
        try:
            run = chain.run(*own)
            if run is None:
                return None
            out = head.function(head.fixed, env, run.outputs[-1], *(values[slot] for slot in rest))
        except Exception:
            return None  # the generated function fails as well, and tells where
        return (out,), (DirectRoot(run, chain, own),), nothing, ()

    return forward
