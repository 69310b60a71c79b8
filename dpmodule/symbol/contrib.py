"""Operators named ``_contrib_*`` as functions of symbols (``sym.contrib``), and control flow.

Source: MXNet 1.9.1 `symbol.contrib`.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from .._core import lazy
from .creation import full
from .op_functions import names_in, op_function_in
from .symbol import Symbol, call

if TYPE_CHECKING:
    from .control_flow import cond as cond
    from .control_flow import foreach as foreach
    from .control_flow import while_loop as while_loop


_LATER = {"control_flow": "cond foreach while_loop"}

__all__ = [*lazy.modules_of(_LATER), "adamw_update", "mp_adamw_update", "rand_zipfian"]

__getattr__, __dir__ = lazy.attributes(
    __name__, __all__, _LATER, partial(op_function_in, "contrib"), __package__, partial(names_in, "contrib")
)


def rand_zipfian(true_classes: Symbol, num_sampled: int, range_max: int) -> tuple[Symbol, Symbol, Symbol]:
    """Draw classes, with replacement, from an approximately Zipfian distribution.

    Class k has the probability ``log((k + 2) / (k + 1)) / log(range_max + 1)``.

    Args:
        range_max: number of classes.

    Returns:
        The sampled classes, (num_sampled,) int64; the expected counts of the true classes, float64; and those of the
        sampled classes, (num_sampled,) float64.
    """
    span = math.log(range_max + 1)
    drawn = call("_random_uniform", low=0, high=span, shape=(num_sampled,), dtype="float64")
    sampled = call("Cast", call("exp", drawn) - 1, dtype="int64") % range_max

    def expected(classes: Symbol) -> Symbol:
        number = call("Cast", classes, dtype="float64")
        return call("log", (number + 2.0) / (number + 1.0)) / span * num_sampled

    return sampled, expected(true_classes), expected(sampled)


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
    update = op_function_in("_internal", "_adamw_update")
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
    update = op_function_in("_internal", "_mp_adamw_update")
    return update(weight, grad, mean, var, weight32, _factor(rescale_grad), lr=lr, eta=eta, **attributes)
