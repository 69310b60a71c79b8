"""Operators that work row by row, on ragged values: they run on the values, and the rows stay as long as they are.

An operator does if each of its inputs is declared to be joined along the first axis, or to be shared
(`Input.batch`), or if it stands in a list here of those whose attributes decide; and if no attribute names the first
axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from ...base import OpError, ShapeError
from ..spec import DATA, LABEL, NEVER, ROWS, SHARE, Env, Op
from .dispatch import SparseCall, SparseRule, Stypes, add_ragged_rule_finder, densify, log_fallback, rule_of
from .storage import Ragged, Sparse

Tensor = torch.Tensor

_ROWWISE_NAMES = """
Concat SliceChannel slice_axis expand_dims squeeze Flatten SwapAxis max mean min prod sum nansum nanprod norm argmax
argmin pick one_hot
broadcast_add broadcast_div broadcast_hypot broadcast_maximum broadcast_minimum broadcast_mod broadcast_mul
broadcast_power broadcast_sub broadcast_equal broadcast_greater broadcast_greater_equal broadcast_lesser
broadcast_lesser_equal broadcast_logical_and broadcast_logical_or broadcast_logical_xor broadcast_not_equal
elemwise_add elemwise_sub elemwise_mul elemwise_div add_n where
"""
_ROWWISE_BY_AXIS = frozenset(_ROWWISE_NAMES.split())
"""Row by row where their axes are not the first one, though not declared so for the sake of `torch.vmap`."""

_AXES = ("axis", "axes", "dim", "dim1", "dim2", "begin_axis")
_ALL_UNLESS_NAMED = frozenset(
    {"argmax", "argmin", "max", "mean", "min", "nanprod", "nansum", "norm", "pick", "prod", "squeeze", "sum"}
)
"""Without an axis these take all axes, the first among them."""
_NOT_ROWWISE_NAMES = """
_contrib_hawkesll _identity_with_attr_like_rhs _onehot_encode cast_storage reshape_like shape_array size_array
"""
_NOT_ROWWISE = frozenset(_NOT_ROWWISE_NAMES.split())
"""Declared row-wise, though they are about storage, or return what is about the whole array."""


def first_ragged(name: str, inputs: Sequence[Any]) -> Ragged:
    """Return the first ragged value among an operator's inputs."""
    ragged = [value for value in inputs if isinstance(value, Ragged)]
    for other in ragged[1:]:
        if not ragged[0].has_same_rows(other):
            raise ShapeError(
                f"{name}: the rows of its ragged inputs are not equally long: offsets end in "
                f"{int(ragged[0].offsets[-1])} and {int(other.offsets[-1])} for {ragged[0].shape[0]} and "
                f"{other.shape[0]} rows; expected equal offsets"
            )
    return ragged[0]


def _axes_of(op: Op, a: Any) -> list[int] | None:
    """Return the axes that attributes name; None where that is all of them."""
    found: list[int] = []
    for name in _AXES:
        if not hasattr(a, name):
            continue
        value = getattr(a, name)
        if value is None or value == ():
            if op.name in _ALL_UNLESS_NAMED:
                return None
            continue
        found += [
            int(axis)
            for axis in (value if isinstance(value, (tuple, list)) else (value,))
            if axis is not None
        ]
    return found


def _is_refused(op: Op, a: Any) -> bool:
    """Return True if attributes alone tell that an operator does not work row by row."""
    axes = _axes_of(op, a)
    return axes is None or 0 in axes or bool(getattr(a, "exclude", False))


def _is_rowwise(op: Op) -> bool:
    if op.name in _ROWWISE_BY_AXIS:
        return True
    if (
        op.batch == NEVER
        or op.mutates
        or op.needs_shapes
        or op.stateful
        or op.num_subgraphs
        or op.owner is not None
    ):
        return False
    if op.loss is not None or op.variadic is not None or callable(op.inputs) or not op.inputs:
        return False
    return op.name not in _NOT_ROWWISE and all(one.batch in (ROWS, SHARE) for one in op.inputs)


class _RowwiseOperator:
    """What an operator does on ragged values."""

    def __init__(self, op: Op) -> None:
        self._op = op

    def storage(self, a: Any, stypes: Stypes) -> Stypes | None:
        """Return the storage of the outputs; errors where attributes name the first axis, or a parameter is ragged."""
        if _is_refused(self._op, a):
            raise OpError(f"{self._op.name} takes no ragged input where it works along the first axis")
        for one, stype in zip(self._op.active_inputs(a, len(stypes)), stypes):
            if one.batch == SHARE and stype == "ragged":
                raise OpError(f"{self._op.name} takes no ragged {one.name}, which all rows share")
        return ("ragged",) * len(self._op.output_names(a))

    def grad_storage(self, a: Any, stypes: Stypes) -> Stypes:
        """Return the storage of the inputs' gradients."""
        inner = tuple("default" if stype == "ragged" else stype for stype in stypes)
        rule = rule_of(self._op)
        found = inner if rule is None or rule.grad_storage is None else rule.grad_storage(a, inner)
        if rule is None or rule.grad_storage is None:
            found = ("default",) * len(stypes)
        return tuple("ragged" if kind == "ragged" else one for kind, one in zip(stypes, found))

    def run(self, a: Any, env: Env, *inputs: Any) -> Any:
        """Run without history."""
        return self.recorded(a, env, (False,) * len(inputs), *inputs)

    def recorded(self, a: Any, env: Env, takes_rows: Sequence[bool], *inputs: Any) -> Any:
        """Run on the values; what comes out carries their history."""
        like = first_ragged(self._op.name, inputs)
        self.check_axes(a, len(like.shape))
        declared = self._op.active_inputs(a, len(inputs))
        values = [
            _values(value, like, one.kind, self._op) for value, one in zip(inputs, declared, strict=True)
        ]
        found = self._on_values(a, env, takes_rows, values)
        if isinstance(found, (tuple, list)):
            return tuple(like.replaced(one) for one in found)
        return like.replaced(found)

    def _on_values(self, a: Any, env: Env, takes_rows: Sequence[bool], values: list[Any]) -> Any:
        """Run on tensors, by the operator's rule for sparse arrays where there is one for these."""
        rule = rule_of(self._op)
        kinds = tuple(value.stype if isinstance(value, Sparse) else "default" for value in values)
        stypes = None if rule is None else rule.storage(a, kinds)
        if rule is not None and stypes is not None:
            return SparseCall(self._op, rule, stypes, takes_rows)(a, env, *values)
        log_fallback(self._op.name, kinds)
        return self._op.run(a, env, *map(densify, values))

    def check_axes(self, a: Any, rank: int) -> None:
        """Refuse axes that turn out to be the first, counted from the end."""
        inside = rank + 1 if self._op.name == "expand_dims" else rank
        if any(axis % inside == 0 for axis in _axes_of(self._op, a) or ()):
            raise OpError(
                f"{self._op.name} takes no ragged input where it works along the first axis, which is the last of a "
                f"ragged value of {rank} axes, too"
            )


def _values(value: Any, like: Ragged, kind: str, op: Op) -> Any:
    """Return an input as the operator on values reads it: a dense one once for each element of its row."""
    if isinstance(value, Ragged):
        return value.values
    if kind not in (DATA, LABEL) or isinstance(value, Sparse):
        return value
    spreads = value.dim() < len(like.shape) or (value.shape[0] == 1 and like.shape[0] != 1)
    if spreads and op.name.startswith("broadcast_"):
        return value
    return like.expanded(value)


@cache
def rowwise_rule(op: Op) -> SparseRule | None:
    """Return what an operator does with ragged inputs; None if it does not work row by row."""
    if not _is_rowwise(op):
        return None
    made = _RowwiseOperator(op)
    return SparseRule(made.storage, made.run, None, made.grad_storage, made.recorded, check=made.check_axes)


add_ragged_rule_finder(rowwise_rule)
