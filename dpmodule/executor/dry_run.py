"""Running an executor's program on the side: to measure its time and memory without changing anything."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..context import gpu_module
from ..ops.sparse import leaf_of
from ..ops.spec import Env
from .dense_chain import run_backward
from .program import Forward, Program
from .runs import Starts


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A program with all it needs to run; made by `Executor.rehearsal`, inside of which it may run.

    Shape:
        values: each as its variable.

    Attributes:
        values: tensors of the variables; those that record gradients get one.
        targets: the variables whose gradients are wanted; none where no backward follows.
        call: what runs forward: the program's function, or a compiled one.
        starts: where backward starts, of a result of `forward`: number of the head, tensor, gradient. May be asked
            once for each result, of which it may use up the memory.
    """

    program: Program
    env: Env
    shaped: list[Env]
    values: list[torch.Tensor]
    targets: list[torch.Tensor]
    call: Forward
    starts: Callable[[tuple[Any, ...]], Starts]
    gpus: tuple[torch.device, ...] = ()

    def forward(self) -> tuple[Any, ...]:
        """Run forward once; returns what `Program.forward` does."""
        with torch.set_grad_enabled(self.program.low.recorded):
            return self.call(self.values, self.env, self.shaped)

    def backward(self, starts: Starts) -> Sequence[torch.Tensor | None]:
        """Return the gradients of `targets`, from what `starts` returned.

        Shape:
            returns: each as its target.
        """
        leaves = [leaf_of(t) for t in self.targets if t.requires_grad]
        if not starts or not leaves:
            return []
        _, roots, seeds = zip(*starts)
        return run_backward(roots, seeds, leaves)

    def wait(self) -> None:
        """Wait until GPUs have done what they were told."""
        for gpu in self.gpus:
            gpu_module().synchronize(gpu)

    def clock(self) -> float:
        """Return the time in seconds at which everything told so far is done."""
        self.wait()
        return time.perf_counter()
