"""`ParamAttr`: what a layer is told about one of its parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..base import ArgumentError
from ..compat import lazy
from ..initializer import Initializer
from .regularizer import L2Decay

__all__ = ["ParamAttr"]

lazy.publish(__name__, __all__)


@dataclass(frozen=True)
class ParamAttr:
    """What a layer is told about one of its parameters.

    Args:
        name: layers that give the same name share the parameter; None: it gets a name of its own.
        initializer: its first values; None: as the layer says.
        learning_rate: factor of the optimizer's rate.
        regularizer: its weight decay, in place of the optimizer's.
        trainable: whether it is trained.

    Raises:
        ArgumentError: an argument is of another type.
    """

    name: str | None = None
    initializer: Any = None
    learning_rate: float = 1.0
    regularizer: L2Decay | None = None
    trainable: bool = True

    def __post_init__(self) -> None:
        if self.name is not None and (not isinstance(self.name, str) or not self.name):
            raise ArgumentError(f"ParamAttr: name is {self.name!r}, expected a string or None")
        if self.initializer is not None and not isinstance(self.initializer, Initializer):
            raise ArgumentError(
                f"ParamAttr: initializer is {self.initializer!r}, expected one of fluid.initializer or mx.init"
            )
        if self.regularizer is not None and not isinstance(self.regularizer, L2Decay):
            raise ArgumentError(
                f"ParamAttr: regularizer is {self.regularizer!r}, expected L2Decay(coefficient)"
            )

    @classmethod
    def of(cls, given: Any) -> ParamAttr:
        """Return what a layer's argument stands for: None, a name, an initializer, or a `ParamAttr` itself.

        Args:
            given: a name, an initializer, a regularizer, or a `ParamAttr`; None and True stand for the
                defaults.

        Raises:
            ArgumentError: it is something else.
        """
        if given is None or given is True:
            return cls()
        if isinstance(given, str):
            return cls(given)
        if isinstance(given, Initializer):
            return cls(initializer=given)
        if isinstance(given, L2Decay):
            return cls(regularizer=given)
        if isinstance(given, cls):
            return given
        raise ArgumentError(f"param_attr is {given!r}, expected a ParamAttr, a name, an initializer or None")
