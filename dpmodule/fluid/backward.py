"""`append_backward`, for optimizers whose gradients a program changes before it applies them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from .._core import lazy
from .optimizer import trained_parameters
from .variable import Parameter


def append_backward(
    loss: Any,
    parameter_list: Sequence[Any] | None = None,
    no_grad_set: Collection[Any] | None = None,
    callbacks: Any = None,
    checkpoints: Any = None,
) -> list[tuple[Parameter, str]]:
    """Return the parameters that a loss trains, each with the name of its gradient.

    Give the pairs to `apply_gradients` of an optimizer.

    Args:
        loss: a scalar variable, such as the result of `layers.mean`.
        parameter_list: variables or names to train; None: all that the loss depends on.
        no_grad_set: variables or names not to train.
        callbacks: accepted.
        checkpoints: accepted.

    Raises:
        ArgumentError: the loss is not a scalar, or does not depend on a trained parameter.

    Source: Paddle 1.8 `append_backward`.
    """
    _, trained = trained_parameters("append_backward", loss, parameter_list, no_grad_set)
    loss.program.differentiated = loss
    return [(parameter, f"{parameter.name}@GRAD") for parameter in trained]


__all__ = lazy.own_names(vars())
lazy.publish(__name__, __all__)
