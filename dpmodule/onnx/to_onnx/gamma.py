"""The gamma function, which ONNX lacks, out of logarithms and a sine."""

from __future__ import annotations

import math

from .formula import Term

__all__ = ["gamma_of", "log_gamma"]

_SHIFT = 7
_LANCZOS = (
    0.99999999999980993,
    676.5203681218851,
    -1259.1392167224028,
    771.32342877765313,
    -176.61502916214059,
    12.507343278686905,
    -0.13857109526572012,
    9.9843695780195716e-6,
    1.5056327351493116e-7,
)
"""Coefficients for a shift of 7 and nine terms, good to 15 digits.

Source: Lanczos, "A precision approximation of the gamma function", 1964, as tabled by Godfrey.
"""


def log_gamma(x: Term) -> Term:
    """Return the logarithm of the gamma function's magnitude; x is of double precision."""
    left = x < 0.5
    z = left.choose(1 - x, x) - 1
    total = _LANCZOS[1] / (z + 1) + _LANCZOS[0]
    for i, each in enumerate(_LANCZOS[2:], start=2):
        total = total + each / (z + i)
    middle = z + (_SHIFT + 0.5)
    # so that an infinite argument gives no difference of infinities
    right_of = (
        (z + 0.5) * (middle.then("Log") - 1) + (0.5 * math.log(2 * math.pi) - _SHIFT) + total.then("Log")
    )
    # reflection; at whole numbers the sine is exactly 0, as there are poles
    sine = ((x - x.then("Floor")) * math.pi).then("Sin")
    return left.choose((math.pi / sine).then("Log") - right_of, right_of)


def gamma_of(x: Term) -> Term:
    """Return the gamma function, NaN at negative whole numbers; x is of double precision."""
    floor = x.then("Floor")
    odd = floor.then("Mod", 2, fmod=1)
    sign = 1 - 2 * abs(odd)
    sign = x.equals(floor).choose(math.nan, sign)
    return log_gamma(x).then("Exp") * (x < 0).choose(sign, 1)
