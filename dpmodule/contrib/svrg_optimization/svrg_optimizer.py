"""The optimizer of `SVRGModule`: another optimizer for parameters, plain assignment for full gradients."""

from __future__ import annotations

from typing import Any

from ... import optimizer as opt
from ...base import ArgumentError
from ...compat import lazy
from ...ndarray import NDArray

__all__: list[str] = []

lazy.publish(__name__, __all__)

_BASE_ARGUMENTS = (
    "rescale_grad",
    "param_idx2name",
    "wd",
    "clip_gradient",
    "learning_rate",
    "lr_scheduler",
    "sym",
    "begin_num_update",
    "multi_precision",
    "param_dict",
)


@opt.register
class _AssignmentOptimizer(opt.Optimizer):
    """Sets each parameter to its gradient, so that a kvstore passes gradients on."""

    def update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        weight.raw.copy_(grad.raw)


@opt.register
class _SVRGOptimizer(opt.Optimizer):
    """Updates parameters by an optimizer and keys with "full" in their name by assignment."""

    def __init__(self, default_optimizer: Any, **kwargs: Any) -> None:
        super().__init__(**{key: kwargs[key] for key in _BASE_ARGUMENTS if key in kwargs})
        is_made = isinstance(default_optimizer, opt.Optimizer)
        self.default_opt: opt.Optimizer = (
            default_optimizer if is_made else opt.create(default_optimizer, **kwargs)
        )
        self.aux_opt: opt.Optimizer = opt.create(_AssignmentOptimizer.__name__)

    def unshared(self) -> str:
        return "it holds two optimizers with counts of their own"

    def update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        self._responsible(index).update(index, weight, grad, state)

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return self._responsible(index).create_state(index, weight)

    def _responsible(self, index: Any) -> opt.Optimizer:
        return self.aux_opt if "full" in self._check_index(index) else self.default_opt

    def _check_index(self, index: Any) -> str:
        """Return the name of a parameter given by name or number."""
        if isinstance(index, str):
            return index
        if index not in self.idx2name:
            numbers = ", ".join(map(str, self.idx2name)) or "none"
            raise ArgumentError(
                f"_SVRGOptimizer: no parameter has the number {index!r}; param_idx2name has {numbers}"
            )
        return self.idx2name[index]
