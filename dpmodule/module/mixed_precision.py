"""Training in 16 bits: what `Module(amp=...)` asks for, whether a device can, and the scale of the loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from ..base import ArgumentError
from ..context import Context
from ..devices.single_thread import single_thread
from ..symbol.half import LOSS_SCALE, HalfRules

if TYPE_CHECKING:
    from .types import AmpLike

_DTYPES = {"bf16": "bfloat16", "bfloat16": "bfloat16", "fp16": "float16", "float16": "float16"}

_default: HalfRules | None = None


def set_default_rules(rules: HalfRules | None) -> HalfRules | None:
    """Set what modules take that are made without ``amp=``, and return what it was before.

    Args:
        rules: the rules; None: they run as their symbols say.
    """
    global _default
    before, _default = _default, rules
    return before


def rules_of(amp: AmpLike) -> HalfRules | None:
    """Return the rules that ``Module(amp=...)`` asks for, None for none."""
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
    """Refuse devices that cannot compute in 16 bits."""
    for context in contexts:
        with single_thread():
            is_supported = _supports(context.torch_device, rules.dtype)
        if not is_supported:
            raise ArgumentError(
                f"amp: {context} cannot multiply {rules.dtype} numbers; take another type, or leave amp out"
            )


@cache
def _supports(device: torch.device, dtype: str) -> bool:
    """Try what networks need most: a product and a convolution, with their gradients."""
    kind = getattr(torch, dtype)
    try:
        x = torch.ones(2, 2, 4, 4, dtype=kind, device=device, requires_grad=True)
        weight = torch.ones(2, 2, 3, 3, dtype=kind, device=device, requires_grad=True)
        found = torch.nn.functional.conv2d(x, weight).flatten(1)
        (found @ found.T).sum().backward()  # type: ignore[no-untyped-call]
    except RuntimeError:
        return False
    return True


class LossScale:
    """The number by which the gradient of the loss is multiplied, so that small ones are not lost in float16.

    It is halved when a gradient is not finite, and doubled after so many updates in which all were.

    Attributes:
        value: the number.
    Source: Micikevicius et al., "Mixed precision training", 2018; the numbers are those of MXNet 1.9.1.
    """

    def __init__(self, value: float = 2.0**16, window: int = 2000) -> None:
        self.value = value
        self._window = window
        self._good = 0

    @property
    def can_shrink(self) -> bool:
        """Whether the number can be halved: it does not go below 1."""
        return self.value > 1

    def note_overflow(self) -> bool:
        """Halve the number; say whether that could be done."""
        self._good = 0
        if not self.can_shrink:
            return False
        self.value /= 2
        return True

    def note_update(self) -> None:
        """Count an update; after a whole window of them the number is doubled."""
        self._good += 1
        if self._good >= self._window:
            self._good = 0
            self.value = min(self.value * 2, 2.0**24)

    def write(self, executors: Iterable[Any]) -> None:
        """Give the number to executors."""
        for executor in executors:
            executor.arg_dict[LOSS_SCALE].raw.fill_(self.value)

    def state_dict(self) -> dict[str, float]:
        """Return what is to be saved with a run."""
        return {"value": self.value, "good": self._good}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self.value, self._good = float(state["value"]), int(state["good"])
