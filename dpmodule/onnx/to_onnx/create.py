"""Arrays made from attributes alone."""

from __future__ import annotations

from typing import Any

import torch

from ...ops.spec import Env
from .call import OperatorCall
from .common import shape_value

__all__ = ["constant", "filled"]


def constant(c: OperatorCall) -> str:
    """The array that the operator itself makes."""
    env = Env(torch.device("cpu"), None, False, (c.numbers(c.out_shapes[0]),))
    op: Any = c.node.op
    made = op.run(c.a, env)
    array = (made.float() if made.dtype == torch.bfloat16 else made).numpy()
    return c.const(array, c.out_dtypes[0])


def filled(c: OperatorCall) -> str:
    """One number of any shape."""
    number = {"_ones": 1, "_full": getattr(c.a, "value", 0)}.get(c.node.op.name if c.node.op else "", 0)
    found: str = c.emit("Expand", c.const(number, c.out_dtypes[0]), shape_value(c, c.out_shapes[0]))
    return found
