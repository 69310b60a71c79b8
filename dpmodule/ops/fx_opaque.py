"""Operators that look at their data, as single calls in what `torch.export` and `torch.compile` record.

Neither can follow code whose way depends on numbers, as that of non-maximum suppression does. They are told the shapes
of the outputs, and call the operator as it is when the program runs: as ``torch.ops.dpmodule.opaque``, which is there
wherever dpmodule is imported and a module of this kind has been made, or `dpmodule.ops.fx` has been imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .attrs import literal
from .dtypes import name_of, torch_dtype
from .infer import infer_shape, infer_type
from .recording import is_recorded, is_traced
from .registry import get
from .spec import Env


def _is_recorded() -> bool:
    """Say what torch 2.6 tells: that it records, and not by Dynamo, as `torch.export` does with ``strict=False``."""
    return torch.compiler.is_compiling() and not torch.compiler.is_dynamo_compiling()


is_exporting = getattr(torch.compiler, "is_exporting", _is_recorded)
"""Say whether `torch.export` is at work."""

_WITHOUT_GRADIENT = frozenset(
    {"_contrib_MultiBoxTarget", "_contrib_MultiBoxDetection", "_contrib_Proposal", "_contrib_MultiProposal"}
)
_IN_PREDICTION = frozenset(
    {
        "CTCLoss",
        "_contrib_RROIAlign",
        "_contrib_SparseEmbedding",
        "_contrib_bipartite_matching",
        "_contrib_box_nms",
        "_contrib_count_sketch",
        "_contrib_hawkesll",
        "_contrib_index_copy",
        "_cvimdecode",
        "_sparse_retain",
    }
)
_BY_NUMPY = frozenset({"_contrib_MultiBoxPrior"})
"""Those that compute on numbers with NumPy, which `torch.compile` takes for arrays."""


def is_opaque(name: str) -> bool:
    """Say whether an operator is recorded as a single call by what is at work now."""
    if name in _BY_NUMPY:
        return torch.compiler.is_dynamo_compiling()
    if name in _WITHOUT_GRADIENT:
        return is_recorded()
    if name not in _IN_PREDICTION:
        return False
    return is_exporting() or is_traced() or (torch.compiler.is_compiling() and not torch.is_grad_enabled())


def call(name: str, attributes: dict[str, Any], tensors: Sequence[torch.Tensor]) -> Any:
    """Call an operator as it is, without gradient."""
    found = _opaque(name, repr(list(attributes.items())), [each.detach() for each in tensors])
    return found[0] if len(found) == 1 else tuple(found)


def _record(name: str, attributes: str) -> Any:
    """Return an operator's record of attributes."""
    op, given = get(name), dict(literal(attributes))
    return op.parse_record(*(given.get(key, attr.default) for key, attr in op.attrs.items()))


@torch.library.custom_op(
    "dpmodule::opaque", mutates_args=(), schema="(str name, str attributes, Tensor[] tensors) -> Tensor[]"
)
def _opaque(name: str, attributes: str, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    op, a = get(name), _record(name, attributes)
    env = Env(tensors[0].device, None, False)
    bound = op.bind(a) if op.bind is not None else None
    found = op.run(a, env, *tensors) if bound is None else bound(*tensors)
    found = found if isinstance(found, (tuple, list)) else (found,)
    return [each.clone() for each in found[: len(op.output_names(a))]]


@_opaque.register_fake
def _shapes_alone(name: str, attributes: str, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    op, a = get(name), _record(name, attributes)
    none: list[Any] = [None] * len(op.output_names(a))
    shapes = infer_shape(op, a, [tuple(each.shape) for each in tensors], none)[1]
    types = infer_type(op, a, [name_of(each.dtype) for each in tensors], none)[1]
    return [
        tensors[0].new_empty(shape or (), dtype=torch_dtype(kind or name_of(tensors[0].dtype)))
        for shape, kind in zip(shapes, types)
    ]
