"""Operators named ``_contrib_*`` as functions over arrays, such as ``nd.contrib.box_nms``, and functions made of them.

Source: MXNet 1.9.1 `ndarray.contrib`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..compat import lazy
from .creation import full
from .ndarray import NDArray
from .op_functions import face, face_of, names_in

if TYPE_CHECKING:
    from ..types import ContextLike, Number
    from .control_flow import cond as cond
    from .control_flow import foreach as foreach
    from .control_flow import while_loop as while_loop


_LATER = {"control_flow": "cond foreach while_loop"}

__all__ = [
    *lazy.modules_of(_LATER),
    "adamw_update",
    "isfinite",
    "isinf",
    "isnan",
    "mp_adamw_update",
    "multi_adamw_update",
    "multi_lamb_update",
    "multi_mp_adamw_update",
    "multi_mp_lamb_update",
    "rand_zipfian",
]

__getattr__, __dir__ = lazy.attributes(
    __name__, __all__, _LATER, partial(face_of, "contrib"), __package__, partial(names_in, "contrib")
)


def isinf(data: NDArray) -> Any:
    """Return 1 where an element is infinite, else 0, in the type of `data`."""
    return data.abs() == math.inf


def isnan(data: NDArray) -> Any:
    """Return 1 where an element is NaN, else 0, in the type of `data`."""
    return data != data


def isfinite(data: NDArray) -> Any:
    """Return 1 where an element is neither infinite nor NaN, else 0, in the type of `data`."""
    return face("_mul")(data == data, data.abs() != math.inf)


def rand_zipfian(
    true_classes: NDArray, num_sampled: int, range_max: int, ctx: ContextLike | None = None
) -> tuple[Any, Any, Any]:
    """Draw classes, with replacement, from an approximately Zipfian distribution.

    Class k has a chance of ``log((k + 2) / (k + 1)) / log(range_max + 1)``: numbers should be given in order of
    falling frequency.

    Args:
        true_classes: classes whose expected count is wanted as well, any shape.
        range_max: number of classes.
        ctx: where to draw; None = the current context.

    Returns:
        The classes drawn, (num_sampled,) int64; the expected count of each true class, float64; and of each class
        drawn, (num_sampled,) float64.

    Example:
        >>> drawn, of_true, of_drawn = mx.nd.contrib.rand_zipfian(mx.nd.array([3]), 4, 5)
    """
    span = math.log(range_max + 1)
    given = {} if ctx is None else {"ctx": ctx}
    drawn = face("_random_uniform")(0, span, shape=(num_sampled,), dtype="float64", **given)
    sampled = (drawn.exp() - 1).astype("int64") % range_max

    def expected(classes: NDArray) -> Any:
        number = classes.astype("float64")
        return ((number + 2.0) / (number + 1.0)).log() / span * num_sampled

    return sampled, expected(true_classes.as_in_context(sampled.context)), expected(sampled)


Arrays = Sequence[NDArray]


def _factor(rescale_grad: NDArray | Number, like: NDArray) -> NDArray:
    """Return a gradient's factor as an array on the context of the weight."""
    if isinstance(rescale_grad, NDArray):
        return rescale_grad.as_in_context(like.context)
    return full((1,), rescale_grad, ctx=like.context)


def _interleaved(*lists: Arrays) -> list[NDArray]:
    """Return the first array of each list, then the second of each, and so on."""
    return [array for group in zip(*lists, strict=True) for array in group]


def adamw_update(
    weight: NDArray,
    grad: NDArray,
    mean: NDArray,
    var: NDArray,
    rescale_grad: NDArray | Number,
    lr: float,
    eta: float,
    **attributes: Any,
) -> Any:
    """Update a weight by AdamW; see the operator `_adamw_update`.

    Args:
        rescale_grad: the gradient's factor, a number or an array of one; NaN, infinite or 0 skips the step.
        **attributes: beta1, beta2, epsilon, wd, clip_gradient, and `out`.

    Returns:
        The new weight, or `out`.
    """
    factor = _factor(rescale_grad, weight)
    return face("_adamw_update")(weight, grad, mean, var, factor, lr=lr, eta=eta, **attributes)


def mp_adamw_update(
    weight: NDArray,
    grad: NDArray,
    mean: NDArray,
    var: NDArray,
    weight32: NDArray,
    rescale_grad: NDArray | Number,
    lr: float,
    eta: float,
    **attributes: Any,
) -> Any:
    """Update a 16-bit weight by AdamW through its float32 copy; see `adamw_update`.

    Args:
        mean: running mean of the gradient, float32, updated in place.
        var: running variance of the gradient, float32, updated in place.
        weight32: float32 copy of the weight, updated in place.
        rescale_grad: the gradient's factor, a number or an array of one.
        **attributes: beta1, beta2, epsilon, wd, clip_gradient, and `out`.

    Returns:
        The new weight, or `out`.
    """
    factor = _factor(rescale_grad, weight)
    return face("_mp_adamw_update")(weight, grad, mean, var, weight32, factor, lr=lr, eta=eta, **attributes)


def multi_adamw_update(
    weights: Arrays,
    grads: Arrays,
    mean: Arrays,
    var: Arrays,
    rescale_grad: NDArray | Number,
    lrs: Sequence[float],
    wds: Sequence[float],
    etas: Sequence[float],
    size: int = 0,
    **attributes: Any,
) -> Any:
    """Update several weights by AdamW; see `adamw_update`.

    Args:
        rescale_grad: the gradients' factor, a number or an array of one.
        size: number of weights; 0 counts them.
        **attributes: beta1, beta2, epsilon, clip_gradient, and `out`, a list.

    Returns:
        The new weights, or `out`.
    """
    arrays = [*_interleaved(weights, grads, mean, var), _factor(rescale_grad, weights[0])]
    rates = {"lrs": tuple(lrs), "wds": tuple(wds), "etas": tuple(etas)}
    return face("_multi_adamw_update")(*arrays, num_weights=size or len(weights), **rates, **attributes)


def multi_mp_adamw_update(
    weights: Arrays,
    grads: Arrays,
    mean: Arrays,
    var: Arrays,
    weights32: Arrays,
    rescale_grad: NDArray | Number,
    lrs: Sequence[float],
    wds: Sequence[float],
    etas: Sequence[float],
    size: int = 0,
    **attributes: Any,
) -> Any:
    """Update several 16-bit weights by AdamW through their float32 copies; see `multi_adamw_update`.

    Args:
        mean: running means of the gradients, float32, updated in place.
        var: running variances of the gradients, float32, updated in place.
        weights32: float32 copies of the weights, updated in place.
        rescale_grad: the gradients' factor, a number or an array of one.
        size: number of weights; 0 counts them.
        **attributes: beta1, beta2, epsilon, clip_gradient, and `out`, a list.

    Returns:
        The new weights, or `out`.
    """
    arrays = [*_interleaved(weights, grads, mean, var, weights32), _factor(rescale_grad, weights[0])]
    rates = {"lrs": tuple(lrs), "wds": tuple(wds), "etas": tuple(etas)}
    return face("_multi_mp_adamw_update")(*arrays, num_weights=size or len(weights), **rates, **attributes)


def multi_lamb_update(
    weights: Arrays,
    grads: Arrays,
    mean: Arrays,
    var: Arrays,
    step_count: Sequence[int],
    lrs: Sequence[float],
    wds: Sequence[float],
    num_tensors: int = 0,
    **attributes: Any,
) -> Any:
    """Update several weights by LAMB; see the operator `_multi_lamb_update`.

    Args:
        step_count: number of this update of each weight, from 1.
        num_tensors: number of weights; 0 counts them.
        **attributes: beta1, beta2, epsilon, rescale_grad, clip_gradient, lower_bound, upper_bound,
            bias_correction, and `out`, a list.

    Returns:
        The new weights, or `out`.
    """
    arrays = _interleaved(weights, grads, mean, var)
    rates = {"learning_rates": tuple(lrs), "wds": tuple(wds), "step_count": tuple(step_count)}
    return face("_multi_lamb_update")(*arrays, num_tensors=num_tensors or len(weights), **rates, **attributes)


def multi_mp_lamb_update(
    weights: Arrays,
    grads: Arrays,
    mean: Arrays,
    var: Arrays,
    weights32: Arrays,
    step_count: Sequence[int],
    lrs: Sequence[float],
    wds: Sequence[float],
    num_tensors: int = 0,
    **attributes: Any,
) -> Any:
    """Update several 16-bit weights by LAMB through their float32 copies; see `multi_lamb_update`.

    Args:
        mean: running means of the gradients, float32, updated in place.
        var: running variances of the gradients, float32, updated in place.
        weights32: float32 copies of the weights, updated in place.
        step_count: number of this update of each weight, from 1.
        num_tensors: number of weights; 0 counts them.

    Returns:
        The new weights, or `out`.
    """
    arrays = _interleaved(weights, grads, mean, var, weights32)
    rates = {"learning_rates": tuple(lrs), "wds": tuple(wds), "step_count": tuple(step_count)}
    number = num_tensors or len(weights)
    return face("_multi_mp_lamb_update")(*arrays, num_tensors=number, **rates, **attributes)
