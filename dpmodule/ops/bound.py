"""Declaring an operator by the function that its attributes make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from .registry import op
from .spec import Attr, Env, Input

Bind = Callable[[Any], Callable[..., Any]]


def bound(
    name: str,
    inputs: Iterable[Input] | Callable[[Any], tuple[Input, ...]] = (),
    attrs: Mapping[str, Attr] | None = None,
    **fields: Any,
) -> Callable[[Bind], Bind]:
    """Declare an operator; the decorated function turns attributes into a function of tensors.

    The executor calls what it returns directly; work that depends on attributes alone is done once, at bind.

    Args:
        fields: as in `registry.op`, without `bind`.
    """

    def declare_bind(bind: Bind) -> Bind:
        def run(a: Any, env: Env, *tensors: torch.Tensor) -> Any:
            return bind(a)(*tensors)

        run.__doc__ = bind.__doc__
        op(name, inputs, attrs, bind=bind, **fields)(run)
        return bind

    return declare_bind
