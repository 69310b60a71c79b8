"""Gradient descent for several weights in one call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..attrs import real
from ..dtypes import single
from ..spec import Attr
from .groups import NUM_WEIGHTS, RATES, multi, pairs
from .rules import SCALING, Rule, mixed
from .sgd import descent, momentum_descent

Tensor = torch.Tensor

_MOMENTUM = {"momentum": Attr(real, "share of the last step that is kept", 0.0)}


def _descents(a: Any, lrs: Iterable[Any], wds: Iterable[Any]) -> list[Rule]:
    rescale, clip = single(a.rescale_grad), single(a.clip_gradient)
    return [descent(lr, wd, rescale, clip) for lr, wd in pairs(lrs, wds)]


def _momentum_descents(a: Any, lrs: Iterable[Any], wds: Iterable[Any]) -> list[Rule]:
    momentum, rescale, clip = map(single, (a.momentum, a.rescale_grad, a.clip_gradient))
    return [momentum_descent(lr, wd, momentum, rescale, clip) for lr, wd in pairs(lrs, wds)]


def _given(a: Any) -> tuple[list[float], list[float]]:
    return [single(x) for x in a.lrs], [single(x) for x in a.wds]


_SGD = {**RATES, **SCALING, **NUM_WEIGHTS}
_SGD_MOM = {**RATES, **_MOMENTUM, **SCALING, **NUM_WEIGHTS}
_PRELOADED = {**SCALING, **NUM_WEIGHTS}
_PRELOADED_MOM = {**_MOMENTUM, **SCALING, **NUM_WEIGHTS}


@multi("multi_sgd_update", (), _SGD)
def multi_sgd_update(a: Any, rest: Sequence[Tensor]) -> list[Rule]:
    """Update several weights as `sgd_update` does.

    Shape:
        weight_i, grad_i: one shape and type for each i; given in this order, i after i.
        returns: the new weights.

    Source: MXNet 1.9.1 `multi_sgd_update`.
    """
    return _descents(a, *_given(a))


@multi("multi_sgd_mom_update", ("mom",), _SGD_MOM)
def multi_sgd_mom_update(a: Any, rest: Sequence[Tensor]) -> list[Rule]:
    """Update several weights as `sgd_mom_update` does.

    Shape:
        weight_i, grad_i, mom_i: one shape and type for each i; given in this order, i after i.
        returns: the new weights.

    Source: MXNet 1.9.1 `multi_sgd_mom_update`.
    """
    return _momentum_descents(a, *_given(a))


@multi("multi_mp_sgd_update", ("weight32",), _SGD)
def multi_mp_sgd_update(a: Any, rest: Sequence[Tensor]) -> list[Rule]:
    """Update several 16-bit weights as `mp_sgd_update` does.

    Shape:
        weight_i, grad_i, weight32_i: one shape for each i; the last is float32.
        returns: the new weights in the type of the weights.

    Source: MXNet 1.9.1 `multi_mp_sgd_update`.
    """
    return [mixed(rule) for rule in _descents(a, *_given(a))]


@multi("multi_mp_sgd_mom_update", ("mom", "weight32"), _SGD_MOM)
def multi_mp_sgd_mom_update(a: Any, rest: Sequence[Tensor]) -> list[Rule]:
    """Update several 16-bit weights as `mp_sgd_mom_update` does.

    Shape:
        weight_i, grad_i, mom_i, weight32_i: one shape for each i; the last two are float32.
        returns: the new weights in the type of the weights.

    Source: MXNet 1.9.1 `multi_mp_sgd_mom_update`.
    """
    return [mixed(rule) for rule in _momentum_descents(a, *_given(a))]


@multi("preloaded_multi_sgd_update", (), _PRELOADED, tail=("lrs", "wds"))
def preloaded_multi_sgd_update(a: Any, rest: Sequence[Tensor]) -> list[Rule]:
    """Update several weights as `multi_sgd_update` does, with rates from arrays.

    Shape:
        weight_i, grad_i: one shape and type for each i.
        lrs, wds: (num_weights,), learning rates and weight decays, float32.
        returns: the new weights.

    Source: MXNet 1.9.1 `preloaded_multi_sgd_update`.
    """
    return _descents(a, *rest)


@multi("preloaded_multi_sgd_mom_update", ("mom",), _PRELOADED_MOM, tail=("lrs", "wds"))
def preloaded_multi_sgd_mom_update(a: Any, rest: Sequence[Tensor]) -> list[Rule]:
    """Update several weights as `multi_sgd_mom_update` does, with rates from arrays.

    Shape:
        weight_i, grad_i, mom_i: one shape and type for each i.
        lrs, wds: (num_weights,), learning rates and weight decays, float32.
        returns: the new weights.

    Source: MXNet 1.9.1 `preloaded_multi_sgd_mom_update`.
    """
    return _momentum_descents(a, *rest)


@multi("preloaded_multi_mp_sgd_update", ("weight32",), _PRELOADED, tail=("lrs", "wds"))
def preloaded_multi_mp_sgd_update(a: Any, rest: Sequence[Tensor]) -> list[Rule]:
    """Update several 16-bit weights as `multi_mp_sgd_update` does, with rates from arrays.

    Shape:
        weight_i, grad_i, weight32_i: one shape for each i; the last is float32.
        lrs, wds: (num_weights,), learning rates and weight decays, float32.
        returns: the new weights in the type of the weights.

    Source: MXNet 1.9.1 `preloaded_multi_mp_sgd_update`.
    """
    return [mixed(rule) for rule in _descents(a, *rest)]


@multi("preloaded_multi_mp_sgd_mom_update", ("mom", "weight32"), _PRELOADED_MOM, tail=("lrs", "wds"))
def preloaded_multi_mp_sgd_mom_update(a: Any, rest: Sequence[Tensor]) -> list[Rule]:
    """Update several 16-bit weights as `multi_mp_sgd_mom_update` does, with rates from arrays.

    Shape:
        weight_i, grad_i, mom_i, weight32_i: one shape for each i; the last two are float32.
        lrs, wds: (num_weights,), learning rates and weight decays, float32.
        returns: the new weights in the type of the weights.

    Source: MXNet 1.9.1 `preloaded_multi_mp_sgd_mom_update`.
    """
    return [mixed(rule) for rule in _momentum_descents(a, *rest)]
