"""What a bucketing module passes on to its current bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .bucketing_names import BucketingNames
from .stage import Stage, needs

if TYPE_CHECKING:
    from ..executor.explanation import Explanation

__all__ = ["CurrentBucket"]


class CurrentBucket(BucketingNames):
    """Shapes and results of `BucketingModule`, which are those of the bucket that ran last."""

    @property
    def symbol(self) -> Any:
        """The symbol of the current bucket."""
        return self._current.symbol

    @property
    def data_names(self) -> list[str]:
        """Names of the inputs of the current bucket."""
        return self._current.data_names

    @property
    def label_names(self) -> list[str]:
        """Names of the labels of the current bucket."""
        return self._current.label_names

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs of the current bucket."""
        return self._current.output_names

    @property
    def data_shapes(self) -> Any:
        """Descriptions of the inputs of the current bucket."""
        return self._current.data_shapes

    @property
    def label_shapes(self) -> Any:
        """Descriptions of the labels of the current bucket."""
        return self._current.label_shapes

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """(name, shape) of the outputs of the current bucket."""
        return self._current.output_shapes

    @needs(Stage.INITIALIZED)
    def backward(self, out_grads: Any = None) -> None:
        """Run backward of the current bucket."""
        self._current.backward(out_grads)

    @needs(Stage.INITIALIZED)
    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the outputs of the current bucket's last forward."""
        return self._current.get_outputs(merge_multi_context)

    def output_probes(self) -> list[list[torch.Tensor]]:
        """Return, for every output of the last forward, tensors that are finite only if all of it is."""
        return self._current.output_probes()

    def bad_gradient(self) -> str | None:
        """Return the name of a parameter whose gradient of the last backward is not finite, None if all are."""
        return self._current.bad_gradient()

    def take_back(self) -> None:
        """Put auxiliary states back to what they were before the last backward."""
        self._current.take_back()

    @needs(Stage.INITIALIZED)
    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the gradients of the current bucket's inputs."""
        return self._current.get_input_grads(merge_multi_context)

    @needs(Stage.INITIALIZED)
    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the states of the current bucket."""
        return self._current.get_states(merge_multi_context)

    @needs(Stage.INITIALIZED)
    def set_states(self, states: Any = None, value: float | None = None) -> None:
        """Set the states of the current bucket."""
        self._current.set_states(states, value)

    @needs(Stage.INITIALIZED)
    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False, pad: int = 0) -> None:
        """Show a metric the outputs of the current bucket's last forward."""
        self._current.update_metric(eval_metric, labels, pre_sliced, pad)

    @needs(Stage.BOUND)
    def explain(
        self, is_train: bool | None = None, times: bool = False, measure_memory: bool = False
    ) -> Explanation:
        """Return what the current bucket runs, and what it costs; see `Module.explain`."""
        return self._current.explain(is_train, times, measure_memory)
