"""`OptimizedModule`: an executor group's parameters, updated by an optimizer."""

from __future__ import annotations

from typing import Any

from .computing import GroupModule
from .stage import Stage, needs
from .trainable import TrainableModule
from .workers import run_between

__all__ = ["OptimizedModule"]


class OptimizedModule(TrainableModule, GroupModule):
    """A module on an executor group whose parameters an optimizer updates."""

    def updated_group(self) -> Any:
        """Return the executor group."""
        return self.group

    @needs(Stage.READY)
    def update(self) -> None:
        """Apply the optimizer to the gradients of the last backward, summed over devices."""
        run_between(self.group.active_contexts, self.updates.apply)
