"""Operators that MXNet calls internally: copies, sums of gradients, writes by position, and type conversion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..._core.mode import has_float_integers
from ...base import OpError, Shape, ShapeError, dtype_from_code
from ..attrs import boolean, dtype, integer, optional, shape, string
from ..dtypes import name_of, torch_dtype
from ..registry import bound, declare, op, pure
from ..shapes import output_shape, same, unify
from ..spec import NEVER, ROWS, Attr, Env, Onnx, Shapes, Types, Variadic, arg


def _identity(x: torch.Tensor) -> torch.Tensor:
    return x


for _name, _sentence in (
    ("_copyto", "Return a copy of the data, or write it to the array given as `out`"),
    ("_CrossDeviceCopy", "Return the data unchanged; marks a copy between devices"),
):
    declare(
        _name,
        _identity,
        [arg("data", ROWS)],
        doc=f"{_sentence}.\n\nShape:\n    data: any.\n    returns: the same.\n\nSource: MXNet 1.9.1 `{_name}`.\n",
        infer=same,
        view=True,
        onnx=Onnx("Identity"),
    )

declare(
    "_grad_add",
    torch.add,
    [arg("lhs", ROWS), arg("rhs", ROWS)],
    doc="""Add two arrays; used in MXNet's gradient graphs.

Shape:
    lhs, rhs: one shape.
    returns: the same.

Source: MXNet 1.9.1 `_grad_add`.
""",
    infer=same,
    onnx=Onnx("Add"),
)


def _type_of(a: Any) -> str | None:
    return None if a.dtype == -1 else dtype_from_code(a.dtype)


@op(
    "_zeros_without_dtype",
    (),
    {
        "shape": Attr(optional(shape), "shape of the result; None: inferred", None),
        "ctx": Attr(string, "device of the result; only for calls on arrays", ""),
        "dtype": Attr(integer(low=-1), "number of the type; -1 means float32", -1),
    },
    infer=lambda a, ins, outs: ([], [unify(outs[0], a.shape, "given and required shape")]),
    infer_type=lambda a, ins, outs: ([], [_type_of(a) or outs[0] or "float32"]),
    needs_shapes=True,
    onnx=Onnx(builder="filled"),
)
def zeros_without_dtype(a: Any, env: Env) -> torch.Tensor:
    """Return an array of zeros whose type is given as a number.

    Shape:
        returns: `shape`.

    Source: MXNet 1.9.1 `_zeros_without_dtype`.
    """
    dims = (env.out_shapes[0] if env.out_shapes else None) or a.shape
    if dims is None:
        raise OpError("_zeros_without_dtype: shape is None, expected the shape of the result")
    return torch.zeros(dims, dtype=torch_dtype(_type_of(a) or "float32"), device=env.device)


def _column_index(name: str, index: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return one position per row as a column of integers."""
    if like.dim() != 2 or tuple(index.shape) != (like.shape[0],):
        raise ShapeError(
            f"{name}: positions have shape {tuple(index.shape)} and the matrix {tuple(like.shape)}, "
            "expected (N,) and (N, K)"
        )
    return index.detach().long().unsqueeze(1)


def _infer_onehot(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    matrix = unify(ins[1], outs[0], "rhs and the result of _onehot_encode")
    rows = unify(ins[0], None if matrix is None else matrix[:1], "rows of _onehot_encode")
    return [rows, matrix], [matrix]


def _rhs_type(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    dtype = ins[1] or outs[0]
    return [ins[0] or dtype, dtype], [dtype]


@pure(
    "_onehot_encode",
    [arg("lhs", ROWS), arg("rhs", ROWS)],
    infer=_infer_onehot,
    infer_type=_rhs_type,
    onnx=Onnx(builder="onehot_like"),
)
def onehot_encode(a: Any, index: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return a one-hot row for each position; no gradient.

    Shape:
        lhs: (N,): integer positions from 0 to K - 1.
        rhs: (N, K): only its shape and type matter.
        returns: (N, K).

    Source: MXNet 1.9.1 `_onehot_encode`.
    """
    columns = _column_index("_onehot_encode", index, like)
    return torch.zeros_like(like).scatter(1, columns, 1)


def _infer_fill(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    matrix = unify(ins[0], outs[0], "lhs and the result of fill_element_0index")
    rows = None if matrix is None else matrix[:1]
    both = unify(
        unify(ins[1], ins[2], "mhs and rhs of fill_element_0index"), rows, "rows of fill_element_0index"
    )
    return [matrix, both, both], [matrix]


@pure(
    "fill_element_0index",
    [arg("lhs", ROWS), arg("mhs", ROWS), arg("rhs", ROWS)],
    infer=_infer_fill,
    infer_type=lambda a, ins, outs: (
        [ins[0] or outs[0], ins[1] or ins[0], ins[2] or "float32"],
        [ins[0] or outs[0]],
    ),
    onnx=Onnx(builder="scatter_elements"),
)
def fill_element_0index(
    a: Any, matrix: torch.Tensor, values: torch.Tensor, index: torch.Tensor
) -> torch.Tensor:
    """Return a matrix with one element of each row replaced.

    Shape:
        lhs: (N, K).
        mhs: (N,): the new elements.
        rhs: (N,): their columns, integers from 0 to K - 1; no gradient.
        returns: (N, K).

    Source: MXNet 1.9.1 `fill_element_0index`.
    """
    columns = _column_index("fill_element_0index", index, matrix)
    return matrix.scatter(1, columns, values.to(matrix.dtype).unsqueeze(1))


def _infer_set_nd(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    whole = unify(ins[0], a.shape, "lhs and shape of _scatter_set_nd")
    return [whole, *ins[1:]], [output_shape(outs[0], whole)]


@pure(
    "_scatter_set_nd",
    [arg("lhs"), arg("rhs"), arg("indices")],
    {"shape": Attr(shape, "shape of `lhs`")},
    infer=_infer_set_nd,
    infer_type=lambda a, ins, outs: (
        [ins[0] or outs[0], ins[1] or ins[0] or outs[0], ins[2] or "int64"],
        [ins[0] or outs[0]],
    ),
    batch=NEVER,
    onnx=Onnx(builder="scatter_nd"),
)
def scatter_set_nd(a: Any, whole: torch.Tensor, values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return a copy with elements or slices replaced, indexed by positions along the leading axes.

    Shape:
        lhs: `shape`.
        rhs: (Y..., the dimensions of `shape` after the first M).
        indices: (M, Y...): positions along the first M axes; no gradient. Of equal positions one wins.
        returns: `shape`.

    Source: MXNet 1.9.1 `_scatter_set_nd`, which requires `lhs` as `out`, too.
    """
    return whole.index_put(tuple(index.detach().long()), values)


def _infer_add_nd(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    whole = unify(ins[0], outs[0], "lhs and output of _scatter_add_nd")
    return [whole, *ins[1:]], [whole]


@pure(
    "_scatter_add_nd",
    [arg("lhs"), arg("rhs"), arg("indices")],
    infer=_infer_add_nd,
    infer_type=lambda a, ins, outs: (
        [ins[0] or outs[0], ins[1] or ins[0] or outs[0], ins[2] or "int64"],
        [ins[0] or outs[0]],
    ),
    batch=NEVER,
    onnx=Onnx("ScatterND", builder="scatter_add_nd"),
)
def scatter_add_nd(a: Any, whole: torch.Tensor, values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return a copy with elements or slices added, indexed by positions along the leading axes.

    Shape:
        lhs: any.
        rhs: (Y..., the dimensions of `lhs` after the first M).
        indices: (M, Y...): positions along the first M axes; no gradient. Equal positions add up.
        returns: as lhs.

    Source: torch's `index_add` and `scatter_add`; MXNet has only `_backward_gather_nd`, which adds into zeros of a
    fixed shape.
    """
    return whole.index_put(tuple(index.detach().long()), values, accumulate=True)


_FLOATS = ("float16", "bfloat16", "float32")
AMP_TYPES = frozenset(map(torch_dtype, _FLOATS))


def _multicast_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    narrow = [t for t in ins if t in _FLOATS and t != "float32"]
    common = narrow[-1] if a.cast_narrow and narrow else "float32"
    return ins, [common if t in _FLOATS else t for t in ins]


@pure(
    "amp_multicast",
    attrs={
        "num_outputs": Attr(integer(low=1), "number of inputs and outputs"),
        "cast_narrow": Attr(
            boolean, "convert to half precision instead of float32 if an input has it", False
        ),
    },
    variadic=Variadic("data_", "num_outputs"),
    outputs=lambda a: tuple(f"output{i}" for i in range(a.num_outputs)),
    infer=lambda a, ins, outs: _same_pairwise(ins, outs),
    infer_type=_multicast_types,
)
def amp_multicast(a: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Convert float32 and half-precision arrays to one common type; leave other types unchanged.

    Shape:
        data_0, data_1, ...: any.
        output0, output1, ...: the same.

    Source: MXNet 1.9.1 `amp_multicast`.
    """
    _, dtypes = _multicast_types(a, [name_of(t.dtype) for t in tensors], [])
    return tuple(
        t.clone() if name_of(t.dtype) == w else t.to(torch_dtype(w or "float32"))
        for t, w in zip(tensors, dtypes)
    )


def _same_pairwise(ins: list[Shape], outs: list[Shape]) -> Shapes:
    both = [unify(i, o, "input and output") for i, o in zip(ins, outs)]
    return both, list(both)


Unary = Callable[[torch.Tensor], torch.Tensor]


@bound(
    "Cast",
    [arg("data", ROWS)],
    {"dtype": Attr(dtype, "target dtype")},
    aliases=("cast",),
    infer=same,
    infer_type=lambda a, ins, outs: (ins, [a.dtype]),
    view=True,
    onnx=Onnx("Cast", builder="converted"),
)
def cast(a: Any) -> Unary:
    """Convert the element type; integers lose the fraction, and the gradient has the input's type.

    Shape:
        data: any shape.
        returns: the same shape.

    Source: MXNet 1.9.1 `Cast`.
    """
    target = torch_dtype(a.dtype)
    floating = target.is_floating_point

    def cast(x: torch.Tensor) -> torch.Tensor:
        if not floating and has_float_integers():
            real = x.double()
            return real + (real.detach().to(target).double() - real.detach())
        return x.to(target)

    return cast


@bound(
    "amp_cast",
    [arg("data", ROWS)],
    {"dtype": Attr(dtype, "target dtype")},
    infer=same,
    infer_type=lambda a, ins, outs: (ins, [a.dtype if ins[0] in _FLOATS else ins[0] or outs[0]]),
    view=True,
    onnx=Onnx("Cast", builder="converted"),
)
def amp_cast(a: Any) -> Unary:
    """Convert between float32 and the half-precision types; leave other types unchanged.

    Shape:
        data: any shape.
        returns: the same shape.

    Source: MXNet 1.9.1 `amp_cast`.
    """
    target = torch_dtype(a.dtype)

    def amp_cast(x: torch.Tensor) -> torch.Tensor:
        return x.to(target) if x.dtype in AMP_TYPES else x

    return amp_cast
