"""Shapes, axes, types and copies; creation of arrays, and random arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..symbol import Symbol
from .builder import SymbolBuilder
from .table import translates, translates_as
from .value import NoCounterpart, Size, TorchValue, dims_of, is_number, same

if TYPE_CHECKING:
    from ...types import Ints


@translates(
    "view",
    "reshape",
    "_unsafe_view",
    "_reshape_alias",
    "_reshape_copy",
    "view_copy",
    "view_as",
    "reshape_as",
    "flatten",
    "unflatten",
    "squeeze",
    "squeeze_copy",
    "ravel",
)
def _view(b: SymbolBuilder, value: TorchValue, *rest: Any, **named: Any) -> TorchValue:
    return b.reshape(value, dims_of(b.result))


@translates("unsqueeze", "unsqueeze_copy")
def _unsqueeze(b: SymbolBuilder, value: TorchValue, dim: int) -> Any:
    if not value.rank:
        return b.reshape(value, dims_of(b.result))
    return b.op("expand_dims", value, axis=dim % (value.rank + 1))


@translates("expand", "expand_as", "expand_copy", "broadcast_to")
def _expand(b: SymbolBuilder, value: TorchValue, *rest: Any, **named: Any) -> TorchValue:
    return b.expand(value, dims_of(b.result))


@translates(
    "clone", "contiguous", "alias", "lift_fresh_copy", "lift", "view.dtype", "positive", "resolve_conj"
)
def _same(b: SymbolBuilder, value: TorchValue, *rest: Any, **named: Any) -> TorchValue:
    return TorchValue(value.dims, value.dtype, b.sym(value))


translates_as("detach", "BlockGrad")
translates_as("detach_copy", "BlockGrad")


@translates("_to_copy", "to", "type_as", "float", "double", "half", "int", "long", "bool")
def _to(b: SymbolBuilder, value: TorchValue, *rest: Any, **named: Any) -> TorchValue:
    return b.cast(value, b.result.dtype)


@translates("permute", "permute_copy")
def _permute(b: SymbolBuilder, value: TorchValue, dims: Sequence[int]) -> TorchValue:
    return b.transpose(value, [value.axis(d) for d in dims])


@translates("transpose", "transpose_copy", "swapaxes", "swapdims")
def _transpose(b: SymbolBuilder, value: TorchValue, first: int, second: int) -> TorchValue:
    if not value.rank:
        return value
    order = list(range(value.rank))
    first, second = value.axis(first), value.axis(second)
    order[first], order[second] = second, first
    return b.transpose(value, order)


@translates("t", "t_copy", "numpy_T", "mT", "adjoint")
def _matrix_transpose(b: SymbolBuilder, value: TorchValue) -> TorchValue:
    return value if value.rank < 2 else _transpose(b, value, -2, -1)


@translates("movedim", "moveaxis")
def _movedim(b: SymbolBuilder, value: TorchValue, source: Ints, destination: Ints) -> TorchValue:
    sources = [value.axis(a) for a in ([source] if isinstance(source, int) else source)]
    targets = [value.axis(a) for a in ([destination] if isinstance(destination, int) else destination)]
    order: list[Any] = [None] * value.rank
    for a, target in zip(sources, targets):
        order[target] = a
    others = iter(i for i in range(value.rank) if i not in sources)
    return b.transpose(value, [next(others) if a is None else a for a in order])


@translates("repeat")
def _repeat(b: SymbolBuilder, value: TorchValue, repeats: Sequence[Any]) -> Any:
    if all(is_number(n) for n in repeats):
        return b.op("tile", value, reps=tuple(repeats))
    value = b.reshape(value, (*[1] * (len(repeats) - value.rank), *value.dims))
    known = tuple(n if is_number(n) else 1 for n in repeats)
    if any(n != 1 for n in known):
        dims = tuple(d * n for d, n in zip(value.dims, known))
        value = b.value(b.op("tile", value, reps=known), dims, value.dtype)
    for axis, n in enumerate(repeats):
        if not is_number(n):
            value = _repeat_axis(b, value, axis, n)
    return value


def _repeat_axis(b: SymbolBuilder, value: TorchValue, axis: int, times: Size) -> TorchValue:
    """Repeat an axis by a symbolic size."""
    before, size, after = value.dims[:axis], value.dims[axis], value.dims[axis + 1 :]
    if same(size, 1):
        return b.expand(value, (*before, times, *after))
    value = b.expand(b.reshape(value, (*before, 1, size, *after)), (*before, times, size, *after))
    return b.reshape(value, (*before, times * size, *after))


@translates("tile")
def _tile(b: SymbolBuilder, value: TorchValue, repeats: Sequence[Any]) -> Any:
    return _repeat(b, value, (*[1] * (value.rank - len(repeats)), *repeats))


@translates("repeat_interleave.self_int")
def _repeat_interleave(
    b: SymbolBuilder, value: TorchValue, repeats: Size, dim: int | None = None, **named: Any
) -> Any:
    if not is_number(repeats):
        raise NoCounterpart("repeats elements by a size that is not fixed")
    axis = {} if dim is None else {"axis": value.axis(dim)}
    return b.op("repeat", value, repeats=repeats, **axis)


@translates("cat", "concat", "concatenate")
def _cat(b: SymbolBuilder, values: Sequence[TorchValue], dim: int = 0) -> Any:
    rank = len(b.result.shape)
    filled = [v for v in values if not same(v.dims[dim if v.rank == rank else 0], 0)]
    inputs = [b.cast(v, b.result.dtype) for v in filled or values[:1]]
    return inputs[0] if len(inputs) == 1 else b.op("Concat", *inputs, dim=dim % rank)


@translates("stack")
def _stack(b: SymbolBuilder, values: Sequence[TorchValue], dim: int = 0) -> Any:
    inputs = [b.cast(v, b.result.dtype) for v in values]
    if not inputs[0].rank:
        return b.op("Concat", *inputs, dim=0)
    return b.op("stack", *inputs, axis=dim % (inputs[0].rank + 1))


# several parts


def _cut(b: SymbolBuilder, value: TorchValue, axis: int, sizes: Sequence[Any]) -> list[Symbol]:
    """Split an axis into parts of the given sizes."""
    if not all(is_number(n) for n in sizes):
        raise NoCounterpart("splits an axis into parts whose sizes are not fixed")
    if len(sizes) > 1 and len(set(sizes)) == 1:
        return list(b.op("SliceChannel", value, num_outputs=len(sizes), axis=axis))
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [b.op("slice_axis", value, axis=axis, begin=e - n, end=e) for n, e in zip(sizes, ends)]


@translates(
    "split",
    "split_with_sizes",
    "chunk",
    "tensor_split",
    "split_copy",
    "split_with_sizes_copy",
    "unsafe_split",
)
def _split(b: SymbolBuilder, value: TorchValue, parts: Ints, dim: int = 0, **named: Any) -> list[Symbol]:
    axis = value.axis(dim)
    return _cut(b, value, axis, [dims_of(part)[axis] for part in b.result])


@translates("unbind", "unbind_copy")
def _unbind(b: SymbolBuilder, value: TorchValue, dim: int = 0) -> list[Symbol]:
    count = len(b.result)
    if count == 1:
        return [b.squeeze(b.sym(value), [value.axis(dim)], value.rank)]
    options = {"num_outputs": count, "axis": value.axis(dim), "squeeze_axis": value.rank > 1}
    return list(b.op("SliceChannel", value, **options))


def _filled(b: SymbolBuilder, number: float) -> TorchValue:
    return b.full(dims_of(b.result), number, b.result.dtype)


@translates("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty")
def _zeros(b: SymbolBuilder, *rest: Any, **named: Any) -> TorchValue:
    return _filled(b, 0)


translates("ones", "ones_like", "new_ones")(lambda b, *rest, **named: _filled(b, 1))


@translates("full", "full_like", "new_full")
def _full(b: SymbolBuilder, shape: object, number: Any, *rest: Any, **named: Any) -> TorchValue:
    # the size is the second argument of new_full
    number = rest[0] if rest and not isinstance(number, (bool, int, float, TorchValue)) else number
    if isinstance(number, TorchValue):
        return b.expand(b.cast(number, b.result.dtype), dims_of(b.result))
    return _filled(b, number)


@translates("scalar_tensor")
def _scalar_tensor(b: SymbolBuilder, number: Size | float, **named: Any) -> TorchValue:
    return b.size(number, b.result.dtype) if not isinstance(number, float) else _filled(b, number)


@translates("arange")
def _arange(
    b: SymbolBuilder,
    start: Size | float,
    end: Size | float | None = None,
    step: Size | float = 1,
    **named: Any,
) -> TorchValue:
    start = 0 if end is None else start
    if not is_number(start) or not is_number(step):
        raise NoCounterpart("counts with a start or step that is not fixed")
    (size,) = dims_of(b.result)
    position = b.find(size)
    if position is not None:
        row = b.indices(*position)
    else:
        ones = b.full((size,), 1, torch.float32)
        row = b.value(b.op("_minus_scalar", b.op("cumsum", ones, axis=0), scalar=1.0), (size,), torch.float32)
    symbol = b.sym(row)
    if step != 1:
        symbol = b.op("_mul_scalar", symbol, scalar=float(step))
    if start:
        symbol = b.op("_plus_scalar", symbol, scalar=float(start))
    return b.cast(b.value(symbol, (size,), torch.float32), b.result.dtype)


@translates("one_hot")
def _one_hot(b: SymbolBuilder, value: TorchValue, depth: int = -1) -> Symbol:
    if depth < 0:
        raise NoCounterpart("infers the classes of one_hot; pass num_classes")
    return b.op("one_hot", value, depth=depth, dtype="int64")


def _random(name: str) -> Any:
    def translate(b: SymbolBuilder, *rest: Any, **named: Any) -> Symbol:
        return b.op(name, _filled(b, 0))

    return translate


translates("randn", "randn_like")(_random("_random_normal_like"))
translates("rand", "rand_like")(_random("_random_uniform_like"))


def _drawn(b: SymbolBuilder, like: TorchValue, dtype: torch.dtype) -> TorchValue:
    """Return uniform random numbers in [0, 1) in the shape of a value."""
    return b.value(b.op("_random_uniform_like", b.cast(like, dtype)), like.dims, dtype)


@translates("bernoulli")
def _bernoulli(
    b: SymbolBuilder, value: TorchValue, p: float | TorchValue | None = None, **named: Any
) -> Symbol:
    kind = b.result.dtype
    if isinstance(p, float):
        return b.op("_lesser_scalar", _drawn(b, value, kind), scalar=p)
    chance = b.cast(value if p is None else p, kind)
    return b.pair("lesser", _drawn(b, value, kind), chance)


@translates("exponential")
def _exponential(b: SymbolBuilder, value: TorchValue, rate: float = 1.0, **named: Any) -> Symbol:
    rest = b.op("_rminus_scalar", _drawn(b, value, b.result.dtype), scalar=1.0)
    return b.op("_div_scalar", b.op("negative", b.op("log", rest)), scalar=float(rate))
