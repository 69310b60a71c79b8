"""`SymbolBuilder`: creates the nodes of a symbol for the nodes of torch's graph."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...context import cpu
from ...ndarray import NDArray
from ..symbol import Symbol, Variable, call
from ..torch_node import torch_module
from .value import (
    Dims,
    NoCounterpart,
    Size,
    TorchValue,
    dims_of,
    is_number,
    places,
    reshape_codes,
    same,
    spans,
    type_name,
)

if TYPE_CHECKING:
    import sympy

_EXACT = 2**24  # integers up to this are exact in float32


class SymbolBuilder:
    """Builder of symbols, which are named after their torch modules, and of the values of variables.

    Attributes:
        params: values of variables by name: parameters, buffers and constants.
        result: torch's shape and type of the current value.
    """

    def __init__(self, training: bool) -> None:
        self.training = training
        self.params: dict[str, NDArray] = {}
        self.result: Any = None
        self._seen: list[TorchValue] = []
        self._taken: set[str] = set()
        self._made: list[Any] = []
        self._owner, self._source = "", ""
        self._constants: dict[Any, Symbol] = {}

    # names

    def begin(self, name: str, source: str, result: Any) -> None:
        """Begin the translation of one of torch's nodes."""
        self._owner, self._source, self.result = name, source, result
        self._made = []

    def finish(self, symbols: Iterable[Symbol | None]) -> None:
        """Name the node of the result as requested, and the others after it."""
        last = next((s.entries[0][0] for s in symbols if s is not None), None)
        for node in self._made:
            kind = "" if node is last else f"_{node.op.name.strip('_').lower()}"
            node.name = self.unique(self._owner + kind)
            node.source = self._source or node.source
        self._made = []

    def unique(self, name: str) -> str:
        """Return an unused name, and reserve it."""
        candidate, count = name, 0
        while candidate in self._taken:
            count += 1
            candidate = f"{name}_{count}"
        self._taken.add(candidate)
        return candidate

    def see(self, value: TorchValue) -> TorchValue:
        """Record a value, from which others can read sizes."""
        if value.symbol is not None and any(not is_number(d) for d in value.dims):
            self._seen.append(value)
        return value

    # nodes

    def op(self, alias: str, *inputs: Any, **attrs: Any) -> Symbol:
        """Apply an operator to values or symbols."""
        symbols = [self.sym(i) if isinstance(i, TorchValue) else i for i in inputs]
        symbol = call(alias, *symbols, name=f"_{len(self._made)}", **attrs)
        self._made.append(symbol.entries[0][0])
        return symbol

    def module(self, module: torch.nn.Module, values: Sequence[TorchValue], num_outputs: int) -> Symbol:
        """Apply a torch module to values, as one operator."""
        node = torch_module(
            module,
            *map(self.sym, values),
            name=f"_{len(self._made)}",
            num_outputs=num_outputs,
            dtypes=[value.type for value in values],
        )
        self._made.append(node.entries[0][0])
        return node

    def value(self, symbol: Symbol, dims: Dims, dtype: torch.dtype) -> TorchValue:
        """Return a symbol as a value, for translations in several steps."""
        return self.see(TorchValue(dims, dtype, symbol))

    def variable(self, name: str, tensor: torch.Tensor, trained: bool) -> TorchValue:
        """Create the variable of a parameter, buffer or constant, with its value.

        Integers and bools are stored as float32, for optimizers and files, and cast where they are read.
        """
        dtype = tensor.dtype
        if not dtype.is_floating_point:
            if dtype is not torch.bool and tensor.numel() and int(tensor.abs().max()) > _EXACT:
                raise NoCounterpart(f"{name} holds integers beyond {_EXACT}, which float32 cannot represent")
            tensor = tensor.to(torch.float32)
        shape = tuple(tensor.shape) or (1,)
        multiplier = 1.0 if trained else 0.0
        kept = type_name(tensor.dtype)
        variable = Variable(
            name,
            shape=shape,
            lr_mult=None if trained else 0.0,
            wd_mult=multiplier,
            dtype=None if kept == "float32" else kept,
        )
        self.params[name] = NDArray(tensor.detach().cpu().clone().reshape(shape).contiguous(), cpu())
        self._taken.add(name)
        whole = dtype is not torch.bool and not dtype.is_floating_point
        symbol = self.op("Cast", variable, dtype=type_name(dtype)) if whole else variable
        return TorchValue(dims_of(tensor), dtype, symbol)

    def input(self, name: str, example: torch.Tensor) -> TorchValue:
        """Create the variable of an input; integers may be fed in another type, and are cast."""
        kind = type_name(example.dtype)
        symbol = Variable(name, dtype=None if kind == "float32" else kind)
        self._taken.add(name)
        if not example.dtype.is_floating_point and example.dtype is not torch.bool:
            symbol = self.op("Cast", symbol, dtype=kind)
        return self.value(symbol, dims_of(example), example.dtype)

    def sym(self, value: TorchValue) -> Symbol:
        """Return the symbol of a value; known elements become an operator or a variable."""
        if value.symbol is None:
            if value.tensor is None:
                raise NoCounterpart("reads what could not be translated")
            value.symbol = self._constant(value.tensor, value.name)
        return value.symbol

    def _constant(self, tensor: torch.Tensor, name: str) -> Symbol:
        """Return the symbol of known elements."""
        number = TorchValue((), tensor.dtype, None, tensor).number
        shape = tuple(tensor.shape) or (1,)
        if not tensor.numel():
            raise NoCounterpart("creates an array without elements, which MXNet does not support")
        if number is not None:
            return self.op("_full", shape=shape, value=float(number), dtype=type_name(tensor.dtype))
        key = (
            tensor.dtype,
            shape,
            tensor.numpy(force=True).tobytes() if tensor.numel() < 4096 else id(tensor),
        )
        if key not in self._constants:
            name = self.unique(name or f"{self._owner}_constant")
            self._constants[key] = self.sym(self.variable(name, tensor, trained=False))
        return self._constants[key]

    # types

    def cast(self, value: TorchValue, dtype: torch.dtype) -> TorchValue:
        """Return a value in another type; the value itself if it has that type."""
        if value.dtype is dtype:
            return value
        if value.tensor is not None and value.symbol is None:
            return TorchValue(value.dims, dtype, None, value.tensor.to(dtype))
        symbol = self.sym(value)
        if dtype is torch.bool:
            symbol = self.as_truth(self.op("_not_equal_scalar", symbol, scalar=0.0), value)
        elif value.type != type_name(dtype):
            symbol = self.op("Cast", symbol, dtype=type_name(dtype))
        return self.value(symbol, value.dims, dtype)

    def as_truth(self, answers: Symbol, operand: TorchValue) -> Symbol:
        """Return the result of a comparison, which has the type of its operands, as bools."""
        return answers if operand.type == "float32" else self.op("Cast", answers, dtype="float32")

    def full(self, dims: Dims, number: float, dtype: torch.dtype) -> TorchValue:
        """Return a value that holds one number everywhere."""
        if all(is_number(d) for d in dims):
            return TorchValue(dims, dtype, None, torch.full(dims, number, dtype=dtype))
        small = tuple(d if is_number(d) else 1 for d in dims)
        return self.expand(TorchValue(small, dtype, None, torch.full(small, number, dtype=dtype)), dims)

    # shapes

    def reshape(self, value: TorchValue, dims: Dims) -> TorchValue:
        """Return a value under another shape."""
        if len(dims) == value.rank and all(map(same, value.dims, dims)):
            return TorchValue(dims, value.dtype, self.sym(value))
        if {value.dims, dims} <= {(), (1,)}:
            return TorchValue(dims, value.dtype, self.sym(value))
        codes = reshape_codes(value.dims or (1,), dims or (1,))
        if codes is not None:
            return self.value(self.op("Reshape", value, shape=codes), dims, value.dtype)
        if any(same(d, 1) for d in (*value.dims, *dims)):
            return self._reshape_without_ones(value, dims)
        return self._reshape_by_runs(value, dims)

    def _reshape_without_ones(self, value: TorchValue, dims: Dims) -> TorchValue:
        """Remove axes of size 1, reshape the others, and insert those of the new shape."""
        ones = [i for i, d in enumerate(value.dims) if same(d, 1)]
        core = tuple(d for d in value.dims if not same(d, 1))
        if ones:
            value = self.value(self.op("squeeze", value, axis=tuple(ones)), core, value.dtype)
        value = self.reshape(value, tuple(d for d in dims if not same(d, 1)))
        symbol = self.sym(value)
        for axis in (i for i, d in enumerate(dims) if same(d, 1)):
            symbol = self.op("expand_dims", symbol, axis=axis)
        return self.value(symbol, dims, value.dtype)

    def _reshape_by_runs(self, value: TorchValue, dims: Dims) -> TorchValue:
        """Reshape run by run, with sizes from other values if codes cannot express them."""
        i = j = 0
        for p, q in spans(value.dims, dims):
            wanted = dims[j : j + q]
            whole = (*value.dims[:i], *wanted, *value.dims[i + p :])
            if (p, q) != (1, 1):
                codes = reshape_codes(value.dims, whole)
                reshaped = (
                    self._reshape_like(value, i, p, wanted)
                    if codes is None
                    else self.op("Reshape", value, shape=codes)
                )
                value = self.value(reshaped, whole, value.dtype)
            i, j = i + q, j + q
        return value

    def _reshape_like(self, value: TorchValue, at: int, count: int, wanted: Dims) -> Symbol:
        """Reshape axes to adjacent sizes of another value."""
        for other in self._seen:
            for start in places(other.dims, wanted):
                return self.op(
                    "reshape_like",
                    value,
                    other,
                    lhs_begin=at,
                    lhs_end=at + count,
                    rhs_begin=start,
                    rhs_end=start + len(wanted),
                )
        raise NoCounterpart(f"reshapes to {wanted}: no array has these adjacent sizes")

    def expand(self, value: TorchValue, dims: Dims) -> TorchValue:
        """Return a value broadcast to a shape."""
        if value.rank < len(dims):
            value = self.reshape(value, (*[1] * (len(dims) - value.rank), *value.dims))
        known = [i for i, (a, b) in enumerate(zip(value.dims, dims)) if not same(a, b) and is_number(b)]
        unknown = [i for i, (a, b) in enumerate(zip(value.dims, dims)) if not same(a, b) and not is_number(b)]
        symbol = self.sym(value)
        if known:
            symbol = self.op("broadcast_axis", symbol, axis=tuple(known), size=tuple(dims[i] for i in known))
        for axis in unknown:
            symbol = self._expand_axis(symbol, axis, dims[axis], axis + 1 < len(dims))
        return self.value(symbol, dims, value.dtype)

    def _expand_axis(self, symbol: Symbol, axis: int, size: Size, goes_on: bool) -> Symbol:
        """Repeat one axis by a symbolic size."""
        if is_number(size):
            return self.op("broadcast_axis", symbol, axis=(axis,), size=(size,))
        position = self.find(size)
        if position is not None:
            other, other_axis = position
            return self.op("broadcast_like", symbol, other, lhs_axes=(axis,), rhs_axes=(other_axis,))
        number, rest = size.as_coeff_Add()
        if number:
            whole = self._expand_axis(symbol, axis, rest, goes_on)
            if number < 0:
                return self.op("slice_axis", whole, axis=axis, begin=0, end=int(number))
            more = self._expand_axis(symbol, axis, int(number), goes_on)
            return self.op("Concat", whole, more, dim=axis)
        factor, rest = size.as_coeff_Mul()
        if not factor.is_Integer or factor < 2:
            raise NoCounterpart(f"repeats an axis {size} times: no array has that size")
        after = (-2,) * goes_on
        symbol = self.op("Reshape", symbol, shape=(*[0] * axis, 1, 1, *after))
        symbol = self.op("broadcast_axis", symbol, axis=(axis + 1,), size=(int(factor),))
        symbol = self._expand_axis(symbol, axis, rest, True)
        return self.op("Reshape", symbol, shape=(*[0] * axis, -3, *after))

    def find(self, size: Size) -> tuple[TorchValue, int] | None:
        """Return a value and an axis of it that has a size, None if there is none."""
        for other in self._seen:
            for axis, have in enumerate(other.dims):
                if same(have, size):
                    return other, axis
        return None

    def size(self, size: Size, dtype: torch.dtype) -> TorchValue:
        """Return a size as an array of one element."""
        if is_number(size):
            return TorchValue((), dtype, None, torch.tensor(size, dtype=dtype))
        return self.value(self.op("Cast", self._size(size), dtype=type_name(dtype)), (), dtype)

    def _size(self, size: sympy.Expr) -> Symbol:
        """Return the symbol of a symbolic size."""
        position = self.find(size)
        if position is not None:
            other, axis = position
            shape = self.op("shape_array", other)
            return self.op("slice_axis", shape, axis=0, begin=axis, end=axis + 1)
        terms = size.args if size.is_Add or size.is_Mul else ()
        known = [t for t in terms if t.is_Integer]
        others = [t for t in terms if not t.is_Integer]
        if not others or len(known) > 1:
            raise NoCounterpart(f"computes with the size {size}, which no array has")
        pair, scalar = ("elemwise_add", "_plus_scalar") if size.is_Add else ("elemwise_mul", "_mul_scalar")
        found_symbol = self._size(others[0])
        for term in others[1:]:
            found_symbol = self.op(pair, found_symbol, self._size(term))
        return self.op(scalar, found_symbol, scalar=float(known[0])) if known else found_symbol

    def indices(self, value: TorchValue, axis: int, dtype: torch.dtype = torch.float32) -> TorchValue:
        """Return the numbers 0, 1, ... along an axis of a value, shape (size of the axis,)."""
        made = self.op("_contrib_arange_like", self.cast(value, torch.float32), axis=axis)
        return self.cast(self.value(made, (value.dims[axis],), torch.float32), dtype)

    def squeeze(self, symbol: Symbol, axes: Sequence[int], rank: int) -> Symbol:
        """Remove axes of size 1 from a symbol of a rank, keeping at least one axis."""
        left = sorted(axes)
        if len(left) == rank:
            left = left[1:]
        return self.op("squeeze", symbol, axis=tuple(left)) if left else symbol

    def transpose(self, value: TorchValue, order: Sequence[int]) -> TorchValue:
        """Return a value with its axes in another order."""
        if list(order) == list(range(value.rank)):
            return value
        dims = tuple(value.dims[i] for i in order)
        return self.value(self.op("transpose", value, axes=tuple(order)), dims, value.dtype)

    # arithmetic

    def pair(self, name: str, left: TorchValue, right: TorchValue, dims: Dims | None = None) -> Symbol:
        """Apply an operator of two operands, element by element or with broadcasting.

        Args:
            name: name of the operator without its prefix, such as "add".
            dims: shape of the result, if it differs from that of torch's node.
        """
        equal = left.rank == right.rank and all(map(same, left.dims, right.dims))
        plain = {"add": "elemwise_add", "sub": "elemwise_sub", "mul": "elemwise_mul", "div": "elemwise_div"}
        if equal and name in plain:
            return self.op(plain[name], left, right)
        return self.op(f"broadcast_{name}", left, right)

    def with_number(self, name: str, value: TorchValue, number: float) -> Symbol:
        """Apply an operator to a value and a number, such as "plus"."""
        if math.isnan(number):
            raise NoCounterpart("computes with NaN")
        return self.op(f"_{name}_scalar", value, scalar=float(number))
