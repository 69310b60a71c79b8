"""Weight decay of parameters."""

from __future__ import annotations

from ..base import ArgumentError
from ..compat import lazy

__all__ = ["L2Decay", "L2DecayRegularizer"]

lazy.publish(__name__, __all__)


class L2Decay:
    """Add a multiple of the parameter to its gradient.

    Raises:
        ArgumentError: it is negative.
    """

    def __init__(self, regularization_coeff: float = 0.0) -> None:
        if not regularization_coeff >= 0:
            raise ArgumentError(
                f"L2Decay: the coefficient is {regularization_coeff!r}, expected a number from 0"
            )
        self.coefficient = float(regularization_coeff)

    def __repr__(self) -> str:
        return f"L2Decay({self.coefficient!r})"


L2DecayRegularizer = L2Decay
