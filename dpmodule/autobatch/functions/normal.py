"""Normalization."""

from __future__ import annotations

from ..errors import ShapeError
from ..expression import Expression, apply, apply_to_padded, plain
from ..ops.normal import LAYER_NORM, WEIGHT_NORM


def layer_norm(x: Expression, g: Expression, b: Expression) -> Expression:
    """Compute ``g * (x - mean) / std + b``.

    Args:
        x: a vector.
        g: gains, of its size.
        b: biases, of its size.

    Source: Ba, Kiros, Hinton, "Layer normalization", 2016, with DyNet's standard deviation (without an epsilon).
    """
    try:
        return plain(LAYER_NORM, x, g, b)
    except ShapeError as error:
        return apply_to_padded(error, LAYER_NORM, (x, g, b))


def weight_norm(w: Expression, g: Expression) -> Expression:
    """Compute ``g * w / |w|``.

    Args:
        w: weights, usually a parameter.
        g: their length; one number.

    Source: Salimans and Kingma, "Weight normalization", 2016.
    """
    return apply(WEIGHT_NORM, (w, g))
