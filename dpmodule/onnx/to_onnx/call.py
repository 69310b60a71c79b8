"""`OperatorCall` and `Value`: the operator that a builder translates, its values, and methods to write ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

import numpy as np

from ...base import ArgumentError
from .writer import Writer, code_of, dtype_of, value_info

if TYPE_CHECKING:
    import onnx

    from ...graph import Graph, Node

Dim = int | str
"""A length: a number, or the name of a dynamic length. Equal names are equal lengths."""

Dims = tuple[Dim, ...]


class Untranslatable(ArgumentError):
    """Raised for an operator, attribute or shape that ONNX does not support."""


_TRUTHS = frozenset(
    ["And", "Equal", "Greater", "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor"]
)
_POSITIONS = frozenset(["ArgMax", "ArgMin", "NonMaxSuppression", "Shape", "Size"])
_OF_INPUT = {"DequantizeLinear": 1, "OneHot": 2, "QuantizeLinear": 2, "Where": 1}
"""Index of the input that determines the result's type, if it is not the first."""


class Value:
    """A value of the ONNX graph, by its name and dtype name. Numbers in expressions become constants of its type."""

    __array_ufunc__ = None  # NumPy arrays in expressions become constants, too
    __slots__ = ("c", "dtype", "name")

    def __init__(self, c: OperatorCall, name: str, dtype: str) -> None:
        self.c = c
        self.name = name
        self.dtype = dtype

    def then(self, operator: str, *others: Any, **attributes: Any) -> Value:
        """Apply an ONNX operator to this and to further values or numbers."""
        result: Value = self.c.emit(operator, self, *map(self._as_value, others), **attributes)
        return result

    def _as_value(self, other: Any) -> Value:
        return other if isinstance(other, Value) else self.c.const(other, self.dtype)

    def __add__(self, other: Any) -> Value:
        return self.then("Add", other)

    def __radd__(self, other: Any) -> Value:
        return self.then("Add", other)

    def __sub__(self, other: Any) -> Value:
        return self.then("Sub", other)

    def __rsub__(self, other: Any) -> Value:
        return self._as_value(other).then("Sub", self)

    def __mul__(self, other: Any) -> Value:
        return self.then("Mul", other)

    def __rmul__(self, other: Any) -> Value:
        return self.then("Mul", other)

    def __truediv__(self, other: Any) -> Value:
        return self.then("Div", other)

    def __rtruediv__(self, other: Any) -> Value:
        return self._as_value(other).then("Div", self)

    def __pow__(self, other: Any) -> Value:
        return self.then("Pow", other)

    def __neg__(self) -> Value:
        return self.then("Neg")

    def __abs__(self) -> Value:
        return self.then("Abs")

    def __and__(self, other: Value) -> Value:
        return self.then("And", other)

    def __or__(self, other: Value) -> Value:
        return self.then("Or", other)

    def __invert__(self) -> Value:
        return self.then("Not")

    def __lt__(self, other: Any) -> Value:
        return self.then("Less", other)

    def __le__(self, other: Any) -> Value:
        return self.then("LessOrEqual", other)

    def __gt__(self, other: Any) -> Value:
        return self.then("Greater", other)

    def __ge__(self, other: Any) -> Value:
        return self.then("GreaterOrEqual", other)

    def equals(self, other: Any) -> Value:
        """Return elementwise equality as booleans."""
        return self.then("Equal", other)

    def choose(self, yes: Any, no: Any) -> Value:
        """Select between two values by these booleans; one value may be a number."""
        one = yes if isinstance(yes, Value) else no
        return self.c.emit("Where", self, one._as_value(yes), one._as_value(no))

    def cast(self, dtype: str) -> Value:
        """Cast to another type."""
        return self if dtype == self.dtype else self.c.cast(self, dtype)

    def converted(self, wanted: str) -> Value:
        """Convert like MXNet's operators: fractions are truncated, and integers out of range wrap."""
        narrow = "float" in self.dtype and wanted in ("bool", "int8", "uint8", "int16", "uint16", "int32")
        return (self.cast("int64") if narrow else self).cast(wanted)

    def reduce(self, operator: str, *axes: int, keepdims: bool = False) -> Value:
        """Reduce axes; negative ones count from the end. Before opset 18 axes are an attribute."""
        if operator == "ReduceSum" or self.c.opset >= 18:
            return self.c.emit(operator, self, self.c.ints(*axes), keepdims=int(keepdims))
        return self.c.emit(operator, self, axes=list(axes), keepdims=int(keepdims))

    def reshape(self, *dims: int) -> Value:
        """Reshape; 0 keeps a length, and -1 is inferred."""
        return self.c.emit("Reshape", self, self.c.ints(*dims))

    def unsqueeze(self, *axes: int) -> Value:
        """Insert axes of length 1."""
        return self.c.emit("Unsqueeze", self, self.c.ints(*axes)) if axes else self

    def squeeze(self, *axes: int) -> Value:
        """Remove axes of length 1."""
        return self.c.emit("Squeeze", self, self.c.ints(*axes))

    def transpose(self, *order: int) -> Value:
        """Permute the axes."""
        return self if list(order) == sorted(order) else self.then("Transpose", perm=list(order))

    def gather(self, index: Any, axis: int) -> Value:
        """Select positions along an axis; a single number removes the axis."""
        return self.c.emit("Gather", self, self.c.const(index, "int64"), axis=axis)

    def slice(self, axis: int, begin: int, end: int) -> Value:
        """Slice an axis."""
        return self.c.emit("Slice", self, self.c.ints(begin), self.c.ints(end), self.c.ints(axis))

    def concat(self, others: Sequence[Value], axis: int) -> Value:
        """Concatenate this value and others."""
        return self.then("Concat", *others, axis=axis) if others else self


class OperatorCall:
    """An operator of a graph that is being exported.

    Args:
        dims: shapes of its inputs, then of its outputs.
        dtypes: dtype names of its inputs, then of its outputs.
        names: ONNX names of its inputs.
        value_of: returns the elements of an ONNX value that are known before the model runs.
        lengths: a value and an axis for each dynamic length.

    Attributes:
        dtypes: dtype names of its inputs.
        out_shapes: shapes of its visible outputs.
        out_dtypes: dtype names of its visible outputs.
    """

    def __init__(
        self,
        node: Node,
        names: Sequence[str],
        dims: Sequence[Dims],
        dtypes: Sequence[str],
        writer: Writer,
        value_of: Callable[[str], np.ndarray[Any, Any] | None],
        subgraph: Callable[..., list[tuple[str, str]]],
        lengths: Mapping[str, tuple[str, int]],
    ) -> None:
        self.node = node
        self.a = node.a
        self.name = node.name
        count = len(names)
        self.inputs = tuple(Value(self, *each) for each in zip(names, dtypes))
        self.shapes, self.out_shapes = tuple(dims[:count]), tuple(dims[count:])
        self.dtypes, self.out_dtypes = tuple(dtypes[:count]), tuple(dtypes[count:])
        self.opset = writer.opset
        self._dims = tuple(dims)
        self._writer = writer
        self._value_of = value_of
        self._subgraph = subgraph
        self._lengths = lengths

    @property
    def type(self) -> str:
        """The ONNX operator in the record of the operator."""
        record = self.node.op.onnx if self.node.op is not None else None
        return record.type if record is not None else ""

    def on(self, inputs: Sequence[Value], out_dtypes: Sequence[str]) -> OperatorCall:
        """Return the same call on other values of the same shapes, whose elements are known if the inputs' are.

        Args:
            out_dtypes: dtype names of the outputs.
        """
        names = [x.name for x in inputs]
        before = {name: x.name for name, x in zip(names, self.inputs)}
        return OperatorCall(
            self.node,
            names,
            self._dims,
            [*(x.dtype for x in inputs), *out_dtypes],
            self._writer,
            lambda name: self._value_of(before.get(name, name)),
            self._subgraph,
            self._lengths,
        )

    @overload
    def emit(
        self, operator: str, *inputs: Value | str, outputs: Literal[1] = ..., **attributes: Any
    ) -> Value: ...

    @overload
    def emit(self, operator: str, *inputs: Value | str, outputs: int, **attributes: Any) -> Any: ...

    def emit(
        self, operator: str, *inputs: Value | str, outputs: int = 1, domain: str = "", **attributes: Any
    ) -> Any:
        """Write an ONNX node and return its output, or a tuple if there are several.

        Args:
            inputs: "" omits one.
            domain: the operator's domain; "" is ONNX's own.
            attributes: by ONNX's names; None omits one.
        """
        label = self._writer.fresh(f"{self.name}/{operator}")
        names = [label] if outputs == 1 else [self._writer.fresh(f"{label}:{i}") for i in range(outputs)]
        given = [x if isinstance(x, str) else x.name for x in inputs]
        while given and not given[-1]:
            given.pop()
        self._writer.node(operator, given, names, label, attributes, domain)
        dtypes = self._dtypes_of(operator, inputs, attributes)
        values = [Value(self, name, dtypes[min(i, len(dtypes) - 1)]) for i, name in enumerate(names)]
        return values[0] if outputs == 1 else tuple(values)

    def _dtypes_of(
        self, operator: str, inputs: Sequence[Value | str], attributes: Mapping[str, Any]
    ) -> list[str]:
        """Return the dtype names of an operator's outputs; further outputs have the last type."""
        graph = attributes.get("body", attributes.get("then_branch"))
        if graph is not None:  # the first output of a loop's body is its condition
            codes = [each.type.tensor_type.elem_type for each in graph.output][operator == "Loop" :]
            return [dtype_of(code) for code in codes]
        if operator in _TRUTHS:
            return ["bool"]
        if operator in _POSITIONS:
            return ["int64"]
        if operator in ("ConvInteger", "MatMulInteger"):
            return ["int32"]
        code = attributes.get("to", attributes.get("dtype"))
        if code is not None:
            return [dtype_of(code)]
        source = inputs[_OF_INPUT.get(operator, 0)] if inputs else ""
        output = self.dtypes[0] if isinstance(source, str) else source.dtype
        return [output, "int64"] if operator == "TopK" else [output]

    def const(self, value: Any, dtype: str | None = None) -> Value:
        """Return a constant of any shape, by default in the type of the first input."""
        dtype = dtype or self.dtypes[0]
        if dtype == "bfloat16":
            bits = np.ascontiguousarray(value, np.float32).reshape(np.shape(value)).view(np.uint32)
            array = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        else:
            with np.errstate(over="ignore", invalid="ignore"):  # numbers out of range become infinite
                array = np.asarray(value).astype(dtype)
        return Value(self, self._writer.constant(array, dtype, f"{self.name}/constant"), dtype)

    def piece(self, value: np.ndarray[Any, Any], name: str) -> Value:
        """Return a constant that is a part of a parameter, and is not shared with equal constants."""
        return Value(self, self._writer.piece(value, self.dtypes[0], name), self.dtypes[0])

    def ints(self, *values: int) -> Value:
        """Return an int64 vector constant."""
        return self.const(np.array(values, np.int64), "int64")

    def cast(self, value: Value | str, dtype: str) -> Value:
        """Return a value in another type."""
        return self.emit("Cast", value, to=code_of(dtype))

    def value(self, i: int) -> np.ndarray[Any, Any] | None:
        """Return the elements of input `i` if it is a parameter, else None."""
        return self._value_of(self.inputs[i].name)

    def known_value(self, i: int) -> np.ndarray[Any, Any]:
        """Return the elements of input `i`, which must be a parameter."""
        value = self.value(i)
        if value is None:
            self.refuse(f"its input {self.inputs[i].name!r} is not a parameter, but ONNX requires its values")
        return value

    def length(self, axis: int, i: int = 0) -> int:
        """Return the length of an axis of input `i`, which must not be dynamic."""
        length = self.shapes[i][axis]
        if isinstance(length, str):
            self.refuse(
                f"axis {axis} of its input {self.inputs[i].name!r} is dynamic ({length}), expected a fixed length"
            )
        return length

    def numbers(self, shape: Dims) -> tuple[int, ...]:
        """Return a shape, which must not be dynamic."""
        for axis, dim in enumerate(shape):
            if isinstance(dim, str):
                self.refuse(f"axis {axis} of the shape {shape} is dynamic ({dim}), expected a fixed length")
        return tuple(dim for dim in shape if isinstance(dim, int))

    def length_value(self, dim: Dim) -> Value:
        """Return a length as an int64 value of one element; a dynamic length is read from a value."""
        if isinstance(dim, int):
            return self.ints(dim)
        if dim not in self._lengths:
            self.refuse(f"the length {dim!r} is dynamic, and no earlier value has it")
        value, axis = self._lengths[dim]
        return self.emit("Gather", self.emit("Shape", value), self.ints(axis))

    def run(
        self, graph: Graph, values: Sequence[Value], dims: Sequence[Dims], dtypes: Sequence[str]
    ) -> list[Value]:
        """Write the operators of a subgraph, and return its outputs.

        Args:
            values: values of its variables, in the order of ``graph.inputs``.
            dims: their shapes.
            dtypes: their dtype names.
        """
        names = [value.name for value in values]
        return [Value(self, *each) for each in self._subgraph(self._writer, graph, names, dims, dtypes)]

    def inside(self, name: str) -> OperatorCall:
        """Return a call that writes into the body of a loop or branch, which can read all values written so far."""
        call = copy(self)
        call._writer = self._writer.body(f"{self.name}/{name}")
        return call

    def argument(self, dtype: str, dims: Dims) -> Value:
        """Add an input to the body that this call writes."""
        return Value(self, self._writer.argument(dtype, dims), dtype)

    def graph(self, outputs: Sequence[Value], dtypes: Sequence[str], dims: Sequence[Dims]) -> onnx.GraphProto:
        """Return the body of a loop or branch that this call wrote.

        Args:
            outputs: the values that the body returns, which may be outer values.
            dtypes: their dtype names.
            dims: their shapes.
        """
        given = [self.emit("Identity", value).name for value in outputs]
        return self._writer.graph([value_info(*each) for each in zip(given, dtypes, dims)])

    def refuse(self, why: str) -> NoReturn:
        """Raise an error: ONNX does not support this call."""
        raise Untranslatable(f"{self.node.describe()}: {why}")
