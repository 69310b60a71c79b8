"""Updates of AdamW as ``sym.contrib`` offers them: with a number or a symbol as the gradient's factor.

Source: MXNet 1.9.1 `symbol.contrib`.
"""

from __future__ import annotations

from typing import Any

from .creation import full
from .op_functions import face_of
from .symbol import Symbol


def _factor(rescale_grad: Symbol | float) -> Symbol:
    if isinstance(rescale_grad, Symbol):
        return rescale_grad
    constant: Symbol = full(shape=(1,), val=rescale_grad)
    return constant


def adamw_update(
    weight: Symbol,
    grad: Symbol,
    mean: Symbol,
    var: Symbol,
    rescale_grad: Symbol | float,
    lr: float,
    eta: float,
    **attributes: Any,
) -> Symbol:
    """Return AdamW's new weight; see the operator `_adamw_update`.

    Args:
        **attributes: beta1, beta2, epsilon, wd, clip_gradient, and `name`.
    """
    update = face_of("_internal", "_adamw_update")
    return update(weight, grad, mean, var, _factor(rescale_grad), lr=lr, eta=eta, **attributes)


def mp_adamw_update(
    weight: Symbol,
    grad: Symbol,
    mean: Symbol,
    var: Symbol,
    weight32: Symbol,
    rescale_grad: Symbol | float,
    lr: float,
    eta: float,
    **attributes: Any,
) -> Symbol:
    """Return AdamW's new weight for a 16-bit one with a float32 copy; see the operator `_mp_adamw_update`.

    Args:
        mean: running mean of the gradient, float32.
        var: running variance of the gradient, float32.
        weight32: float32 copy of the weight.
        **attributes: beta1, beta2, epsilon, wd, clip_gradient, and `name`.
    """
    update = face_of("_internal", "_mp_adamw_update")
    return update(weight, grad, mean, var, weight32, _factor(rescale_grad), lr=lr, eta=eta, **attributes)
