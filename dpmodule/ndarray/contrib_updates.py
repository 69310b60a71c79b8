"""Updates of AdamW and LAMB as ``nd.contrib`` offers them: lists of arrays, and a number as the gradient's factor.

Source: MXNet 1.9.1 `ndarray.contrib`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .creation import full
from .ndarray import NDArray
from .op_functions import face

if TYPE_CHECKING:
    from ..types import Number

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
