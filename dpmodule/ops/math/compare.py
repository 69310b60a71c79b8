"""Comparison and logic; the answers are 0 and 1 in the type of the operands."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...compat.torch_private import is_batched
from ..spec import Onnx
from .binary import declare_pair

Test = Callable[..., torch.Tensor]


def in_operand_type(test: Test) -> Test:
    """Return a test whose answers come as 0 and 1 in the type of the left operand.

    torch writes them in that type at once when it is told where; converting truth values takes ten times as long,
    but is all that `torch.vmap` can do.
    """

    def run(left: torch.Tensor, right: torch.Tensor | float) -> torch.Tensor:
        left, other = left.detach(), right.detach() if isinstance(right, torch.Tensor) else right
        if is_batched(left) or isinstance(other, torch.Tensor) and is_batched(other):
            return test(left, other).to(left.dtype)
        return test(left, other, out=left.new_empty(0))

    run.__name__ = getattr(test, "__name__", "run")
    return run


COMPARISONS: dict[str, tuple[Test, str, str, Onnx]] = {
    "equal": (torch.eq, "Equal", "both are equal", Onnx("Equal", builder="compare")),
    "not_equal": (
        torch.ne,
        "Not_Equal",
        "they differ",
        Onnx("Equal", builder="not_equal"),
    ),
    "greater": (
        torch.gt,
        "Greater",
        "the first is greater",
        Onnx("Greater", builder="compare"),
    ),
    "greater_equal": (
        torch.ge,
        "Greater_Equal",
        "the first is greater or equal",
        Onnx("GreaterOrEqual", builder="compare"),
    ),
    "lesser": (torch.lt, "Lesser", "the first is smaller", Onnx("Less", builder="compare")),
    "lesser_equal": (
        torch.le,
        "Lesser_Equal",
        "the first is smaller or equal",
        Onnx("LessOrEqual", builder="compare"),
    ),
    "logical_and": (
        torch.logical_and,
        "Logical_And",
        "neither is 0",
        Onnx("And", builder="logic"),
    ),
    "logical_or": (
        torch.logical_or,
        "Logical_Or",
        "one of them is not 0",
        Onnx("Or", builder="logic"),
    ),
    "logical_xor": (
        torch.logical_xor,
        "Logical_Xor",
        "exactly one of them is not 0",
        Onnx("Xor", builder="logic"),
    ),
}
"""Word: test, spelling of the alias, when it holds, ONNX builder."""

for _word, (_test, _alias, _holds, _onnx) in COMPARISONS.items():
    declare_pair(
        in_operand_type(_test),
        f"Return 1 where {_holds}, else 0, in the dtype of the operands and without a gradient",
        (f"_{_word}", f"_{_alias}"),
        (f"broadcast_{_word}",),
        _onnx,
    )
