"""The interface of automatic differentiation before MXNet 1.0; `mx.autograd` replaces it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any

from .._core import lazy, mode
from ..autograd import backward as backward
from ..autograd import mark_variables as mark_variables
from ..base import ArgumentError
from ..ndarray import NDArray, zeros_like


def set_is_training(is_train: bool) -> bool:
    """Start or stop recording in training mode, and return whether it was training before.

    Args:
        is_train: True to record in training mode.
    """
    mode.set_recording(is_train)
    return mode.set_training(is_train)


def train_section() -> AbstractContextManager[None]:
    """Return a ``with`` block that records in training mode."""
    return mode.scope(recording=True, training=True)


def test_section() -> AbstractContextManager[None]:
    """Return a ``with`` block that predicts without recording."""
    return mode.scope(recording=False, training=False)


test_section.__test__ = False  # type: ignore[attr-defined]  # pytest would collect it as a test


def compute_gradient(outputs: Sequence[NDArray]) -> None:
    """Write the gradients of recorded outputs into the gradient arrays of the marked variables.

    Args:
        outputs: results of recorded operators; the gradient at each is 1.
    """
    backward(outputs)


def grad_and_loss(
    func: Callable[..., Any], argnum: int | Sequence[int] | None = None
) -> Callable[..., tuple[list[NDArray], Any]]:
    """Return a function that returns the gradients of `func` with respect to its arguments, and its result.

    Args:
        func: function of arrays that returns an array or a list of them.
        argnum: number or numbers of the arguments to differentiate with respect to; None for all.
    """

    @wraps(func)
    def gradients_and_result(*args: Any) -> tuple[list[NDArray], Any]:
        numbers = range(len(args)) if argnum is None else [argnum] if isinstance(argnum, int) else argnum
        chosen = [args[i] for i in numbers]
        for argument in chosen:
            if not isinstance(argument, NDArray):
                raise ArgumentError(f"an argument is {type(argument).__name__}, expected NDArray")
        gradients = [zeros_like(argument) for argument in chosen]
        mark_variables(chosen, gradients)
        with train_section():
            result = func(*args)
        backward([result] if isinstance(result, NDArray) else list(result))
        return gradients, result

    return gradients_and_result


def grad(func: Callable[..., Any], argnum: int | Sequence[int] | None = None) -> Callable[..., list[NDArray]]:
    """Return a function that returns the gradients of `func` with respect to its arguments."""
    with_loss = grad_and_loss(func, argnum)

    @wraps(func)
    def gradients(*args: Any) -> list[NDArray]:
        return with_loss(*args)[0]

    return gradients


__all__ = [*lazy.own_names(vars()), "backward", "mark_variables"]
lazy.publish(__name__, __all__)
