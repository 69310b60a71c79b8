"""Row-wise operators on ragged values: they run on the values and keep the row lengths.

An operator is row-wise if all of its inputs are declared to be joined along the first axis or shared (`Input.batch`),
or if it is listed here, and if no attribute selects the first axis.
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
argsort reverse sort topk _np_cumsum _random_uniform_like
"""
_ROWWISE_BY_AXIS = frozenset(_ROWWISE_NAMES.split())
"""Row-wise unless an axis is the first one, although not declared so because of `torch.vmap`."""

_AXES = ("axis", "axes", "dim", "dim1", "dim2", "begin_axis")
_ALL_UNLESS_NAMED = frozenset(
    {
        *(
            "_np_cumsum",
            "argmax",
            "argmin",
            "argsort",
            "max",
            "mean",
            "min",
            "nanprod",
            "nansum",
            "norm",
            "pick",
            "prod",
        ),
        *("sort", "squeeze", "sum", "topk"),
    }
)
"""Operators that reduce all axes, including the first, if no axis is given."""
_NOT_ROWWISE_NAMES = """
_contrib_hawkesll _identity_with_attr_like_rhs _onehot_encode cast_storage reshape_like shape_array size_array
"""
_NOT_ROWWISE = frozenset(_NOT_ROWWISE_NAMES.split())
"""Operators declared as row-wise that concern the storage or the whole array."""


def first_ragged(name: str, inputs: Sequence[Any]) -> Ragged:
    """Return the first ragged input; raises ShapeError if the ragged inputs have different row lengths."""
    ragged = [value for value in inputs if isinstance(value, Ragged)]
    for other in ragged[1:]:
        if not ragged[0].has_same_rows(other):
            raise ShapeError(
                f"{name}: the ragged inputs have different row lengths: offsets end in "
                f"{int(ragged[0].offsets[-1])} and {int(other.offsets[-1])} for {ragged[0].shape[0]} and "
                f"{other.shape[0]} rows; expected equal offsets"
            )
    return ragged[0]


def _axes_of(op: Op, a: Any) -> list[int] | None:
    """Return the axes given by attributes; None for all axes."""
    axes: list[int] = []
    for name in _AXES:
        if not hasattr(a, name):
            continue
        value = getattr(a, name)
        if value is None or value == ():
            if op.name in _ALL_UNLESS_NAMED:
                return None
            continue
        axes += [
            int(axis)
            for axis in (value if isinstance(value, (tuple, list)) else (value,))
            if axis is not None
        ]
    return axes


def _is_refused(op: Op, a: Any) -> bool:
    """Return True if the attributes show that an operator is not row-wise."""
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
    """Row-wise operator on ragged values."""

    def __init__(self, op: Op) -> None:
        self._op = op

    def storage(self, a: Any, stypes: Stypes) -> Stypes | None:
        """Return the storage of the outputs; raises OpError if the first axis is used or a parameter is ragged."""
        if _is_refused(self._op, a):
            raise OpError(f"{self._op.name} takes no ragged input if it works along the first axis")
        for declared, stype in zip(self._op.active_inputs(a, len(stypes)), stypes):
            if declared.batch == SHARE and stype == "ragged":
                raise OpError(f"{self._op.name} takes no ragged {declared.name}, which all rows share")
        return ("ragged",) * len(self._op.output_names(a))

    def grad_storage(self, a: Any, stypes: Stypes) -> Stypes:
        """Return the storage of the inputs' gradients."""
        inner = tuple("default" if stype == "ragged" else stype for stype in stypes)
        rule = rule_of(self._op)
        dense_storage = inner if rule is None or rule.grad_storage is None else rule.grad_storage(a, inner)
        if rule is None or rule.grad_storage is None:
            dense_storage = ("default",) * len(stypes)
        return tuple(
            "ragged" if stype == "ragged" else storage for stype, storage in zip(stypes, dense_storage)
        )

    def run(self, a: Any, env: Env, *inputs: Any) -> Any:
        """Run without recording gradients."""
        return self.recorded(a, env, (False,) * len(inputs), *inputs)

    def recorded(self, a: Any, env: Env, takes_rows: Sequence[bool], *inputs: Any) -> Any:
        """Run on the values, recording gradients."""
        like = first_ragged(self._op.name, inputs)
        self.check_axes(a, len(like.shape))
        declared = self._op.active_inputs(a, len(inputs))
        values = [
            _values(value, like, one.kind, self._op) for value, one in zip(inputs, declared, strict=True)
        ]
        outputs = self._on_values(a, env, takes_rows, values)
        if isinstance(outputs, (tuple, list)):
            return tuple(like.replaced(one) for one in outputs)
        return like.replaced(outputs)

    def _on_values(self, a: Any, env: Env, takes_rows: Sequence[bool], values: list[Any]) -> Any:
        """Run on tensors, by the operator's sparse rule if one applies."""
        rule = rule_of(self._op)
        kinds = tuple(value.stype if isinstance(value, Sparse) else "default" for value in values)
        stypes = None if rule is None else rule.storage(a, kinds)
        if rule is not None and stypes is not None:
            return SparseCall(self._op, rule, stypes, takes_rows)(a, env, *values)
        log_fallback(self._op.name, kinds)
        return self._op.run(a, env, *map(densify, values))

    def check_axes(self, a: Any, rank: int) -> None:
        """Raise an error for negative axes that are the first axis."""
        inside = rank + 1 if self._op.name == "expand_dims" else rank
        if any(axis % inside == 0 for axis in _axes_of(self._op, a) or ()):
            raise OpError(
                f"{self._op.name} takes no ragged input if it works along the first axis, which is also the last of a "
                f"ragged value with {rank} axes"
            )


def _values(value: Any, like: Ragged, kind: str, op: Op) -> Any:
    """Return an input for the operator on values; rows of a dense input are repeated for each element."""
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
    """Return an operator's rule for ragged inputs; None if it is not row-wise."""
    if not _is_rowwise(op):
        return None
    operator = _RowwiseOperator(op)
    return SparseRule(
        operator.storage,
        operator.run,
        None,
        operator.grad_storage,
        operator.recorded,
        check=operator.check_axes,
    )


add_ragged_rule_finder(rowwise_rule)
