"""Mixed-precision training: the rules of `Module(amp=...)`, device support, and the loss scale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from .._devices.single_thread import single_thread
from ..base import ArgumentError
from ..context import Context
from ..symbol.mixed_precision import LOSS_SCALE, HalfRules

if TYPE_CHECKING:
    from .types import AmpLike

_DTYPES = {"bf16": "bfloat16", "bfloat16": "bfloat16", "fp16": "float16", "float16": "float16"}

_default: HalfRules | None = None


def set_default_rules(rules: HalfRules | None) -> HalfRules | None:
    """Set the rules of modules that are made without ``amp=``, and return the previous ones.

    Args:
        rules: the rules; None for no casts.
    """
    global _default
    previous, _default = _default, rules
    return previous


def rules_of(amp: AmpLike) -> HalfRules | None:
    """Return the rules for ``Module(amp=...)``, or None."""
    if amp is None:
        return _default
    if amp is False:
        return None
    if isinstance(amp, HalfRules):
        return amp
    if amp not in _DTYPES:
        raise ArgumentError(f'amp is {amp!r}, expected "bf16", "fp16", False or None')
    return HalfRules(_DTYPES[amp])


def check_devices(rules: HalfRules, contexts: Iterable[Context]) -> None:
    """Raise ArgumentError if a device cannot compute in 16 bits."""
    for context in contexts:
        with single_thread():
            is_supported = _supports(context.torch_device, rules.dtype)
        if not is_supported:
            raise ArgumentError(
                f"amp: {context} cannot multiply {rules.dtype} numbers; use another type, or omit amp"
            )


@cache
def _supports(device: torch.device, dtype: str) -> bool:
    """Return True if a device can run a product and a convolution, with their gradients."""
    torch_dtype = getattr(torch, dtype)
    try:
        x = torch.ones(2, 2, 4, 4, dtype=torch_dtype, device=device, requires_grad=True)
        weight = torch.ones(2, 2, 3, 3, dtype=torch_dtype, device=device, requires_grad=True)
        output = torch.nn.functional.conv2d(x, weight).flatten(1)
        (output @ output.T).sum().backward()  # type: ignore[no-untyped-call]
    except RuntimeError:
        return False
    return True


class LossScale:
    """Factor of the loss gradient, so that small gradients do not underflow in float16.

    It is halved when a gradient is not finite, and doubled after `window` updates without overflow.

    Attributes:
        value: the factor.
    Source: Micikevicius et al., "Mixed precision training", 2018; the numbers are those of MXNet 1.9.1.
    """

    def __init__(self, value: float = 2.0**16, window: int = 2000) -> None:
        self.value = value
        self._window = window
        self._good = 0

    @property
    def can_shrink(self) -> bool:
        """True if the factor can be halved; it stays at least 1."""
        return self.value > 1

    def note_overflow(self) -> bool:
        """Halve the factor; return False if it is 1 already."""
        self._good = 0
        if not self.can_shrink:
            return False
        self.value /= 2
        return True

    def note_update(self) -> None:
        """Count an update, and double the factor after each window."""
        self._good += 1
        if self._good >= self._window:
            self._good = 0
            self.value = min(self.value * 2, 2.0**24)

    def write(self, executors: Iterable[Any]) -> None:
        """Write the factor into executors."""
        for executor in executors:
            executor.arg_dict[LOSS_SCALE].raw.fill_(self.value)

    def state_dict(self) -> dict[str, float]:
        """Return the state to save with a run."""
        return {"value": self.value, "good": self._good}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `state_dict`."""
        self.value, self._good = float(state["value"]), int(state["good"])
