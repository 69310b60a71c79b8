"""Scaling of the loss as programs for MXNet write it: `init`, `init_trainer`, `scale_loss`, `unscale`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from ...base import ArgumentError, StateError
from ...module import BaseModule
from ...module.finite import are_finite
from ...module.half_training import LossScale, use_by_default
from ...symbol.half import Conditions, HalfRules
from .amp import checked, checked_names
from .lists import CONDITIONAL_FP32, FP32, LP16


def init(
    target_dtype: str = "float16",
    target_precision_ops: Sequence[str] | None = None,
    conditional_fp32_ops: Conditions | None = None,
    fp32_ops: Sequence[str] | None = None,
) -> None:
    """Train all modules that are made from now on in mixed precision, unless they say ``amp=False`` or otherwise.

    Args:
        target_dtype: "float16" or "bfloat16".
        target_precision_ops: operators to run in 16 bits; None = `list_lp16_ops`.
        conditional_fp32_ops: (operator, attribute, values) to run in float32; None = `list_conditional_fp32_ops`.
        fp32_ops: operators to run in float32; None = `list_fp32_ops`.

    Raises:
        ArgumentError: another type, or an unknown operator.

    Source: MXNet 1.9.1 `contrib.amp.init`, which changes the functions that make operators instead.
    """
    rules = HalfRules(
        checked(target_dtype),
        sorted(checked_names("target_precision_ops", target_precision_ops, LP16)),
        sorted(checked_names("fp32_ops", fp32_ops, FP32)),
        CONDITIONAL_FP32 if conditional_fp32_ops is None else conditional_fp32_ops,
    )
    use_by_default(rules)


def init_trainer(trainer: Any) -> None:
    """Have a trainer scale losses, and leave updates out whose gradients are not finite.

    Args:
        trainer: a module in mixed precision, which does so by itself; or an object in the form of Gluon's ``Trainer``,
            with ``_scale``, ``_params`` and ``_update``.

    Raises:
        ArgumentError: it is neither.
    """
    if isinstance(trainer, BaseModule):
        return
    if not all(hasattr(trainer, name) for name in ("_scale", "_params", "_update")):
        raise ArgumentError(
            f"init_trainer: {type(trainer).__name__} is no trainer; make a Module(amp='fp16') instead, which scales "
            "the loss by itself"
        )
    trainer._amp_loss_scaler = LossScale()
    trainer._amp_original_scale = trainer._scale
    trainer._update = partial(_update_if_finite, trainer, trainer._update)


def _update_if_finite(trainer: Any, update: Any, *arguments: Any, **options: Any) -> None:
    """Update, unless a gradient is not finite."""
    scale = trainer._amp_loss_scaler
    if all(are_finite(grad.raw) for grad in _gradients(trainer)):
        update(*arguments, **options)
        scale.note_update()
    else:
        scale.note_overflow()


def _gradients(trainer: Any) -> list[Any]:
    return [grad for param in trainer._params if param._grad is not None for grad in param._grad]


@contextmanager
def scale_loss(loss: Any, optimizer_or_trainer: Any) -> Iterator[Any]:
    """Give a scaled loss for backward, and have the trainer divide gradients by the scale again.

    Args:
        loss: an array, or a list of them.
        optimizer_or_trainer: what `init_trainer` was given; a module scales inside, so that its loss stays as it is.

    Raises:
        StateError: `init_trainer` has not been called.

    Example:
        >>> module = mx.mod.Module(mx.sym.Variable("data") * mx.sym.Variable("w"), label_names=None, amp="fp16")
        >>> with mx.contrib.amp.scale_loss(mx.nd.ones((2,)), module) as loss:
        ...     print(loss.asnumpy())
        [1. 1.]
    """
    trainer = optimizer_or_trainer
    if isinstance(trainer, BaseModule):
        yield loss
        return
    scale = _scale_of(trainer, "scale_loss").value
    trainer._scale = trainer._amp_original_scale / scale
    yield [each * scale for each in loss] if isinstance(loss, (list, tuple)) else loss * scale


def unscale(optimizer_or_trainer: Any) -> None:
    """Divide gradients by the scale now, to look at them or clip them before the update.

    Args:
        optimizer_or_trainer: what `init_trainer` was given; gradients of a module are never scaled.

    Raises:
        StateError: `init_trainer` has not been called.
    """
    trainer = optimizer_or_trainer
    if isinstance(trainer, BaseModule):
        return
    _scale_of(trainer, "unscale")
    for grad in _gradients(trainer):
        grad[:] = grad * (trainer._scale / trainer._amp_original_scale)
    trainer._scale = trainer._amp_original_scale


def _scale_of(trainer: Any, what: str) -> LossScale:
    found = getattr(trainer, "_amp_loss_scaler", None)
    if not isinstance(found, LossScale):
        raise StateError(f"{what}: call init_trainer() with this {type(trainer).__name__} first")
    return found
