"""`Variable`: a symbol with a name, a shape, an element type and a sequence level; `Parameter` and `ParamAttr`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from ..base import ArgumentError, ShapeError, dtype_name
from ..initializer import Initializer
from ..ops.attrs import shape as shape_type
from ..symbol import Symbol
from ..symbol.symbol import call


class Decay:
    """Weight decay, from a coefficient.

    Raises:
        ArgumentError: the coefficient is not a number from 0.
    """

    def __init__(self, regularization_coeff: Any = 0.0) -> None:
        is_number = isinstance(regularization_coeff, Real) and not isinstance(regularization_coeff, bool)
        if not is_number or not regularization_coeff >= 0:
            raise ArgumentError(
                f"{type(self).__name__}: the coefficient is {regularization_coeff!r}, expected a number from 0"
            )
        self.coefficient = float(regularization_coeff)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.coefficient!r})"


class L2Decay(Decay):
    """Weight decay: adds a multiple of the parameter to its gradient.

    Raises:
        ArgumentError: the coefficient is not a number from 0.
    """


class L1Decay(Decay):
    """Weight decay: adds a multiple of the signs of the parameter to its gradient.

    The gradient of a table is then dense. Programs with it train in Python, not in the native engine.

    Raises:
        ArgumentError: the coefficient is not a number from 0.
    """


L1DecayRegularizer, L2DecayRegularizer = L1Decay, L2Decay


@dataclass(frozen=True)
class ParamAttr:
    """Attributes of a parameter of a layer.

    Args:
        name: its name, which layers can share; None: a new name.
        initializer: its initializer; None: the default of the layer.
        learning_rate: factor of the optimizer's rate.
        regularizer: its weight decay, in place of the optimizer's.
        trainable: whether it is trained.
        gradient_clip: must be None, or a bool, which is ignored as `do_model_average` of Paddle 1.8; `grad_clip` of an
            optimizer limits the gradients of all parameters.
        do_model_average: ignored.

    Raises:
        ArgumentError: an argument is of another type, or is not supported.
    """

    name: str | None = None
    initializer: Any = None
    learning_rate: float = 1.0
    regularizer: Decay | None = None
    trainable: bool = True
    gradient_clip: Any = None
    do_model_average: bool = False

    def __post_init__(self) -> None:
        if self.name is not None and (not isinstance(self.name, str) or not self.name):
            raise ArgumentError(f"ParamAttr: name is {self.name!r}, expected a string or None")
        if self.initializer is not None and not isinstance(self.initializer, Initializer):
            raise ArgumentError(
                f"ParamAttr: initializer is {self.initializer!r}, expected one of fluid.initializer or mx.init"
            )
        if self.regularizer is not None and not isinstance(self.regularizer, Decay):
            raise ArgumentError(
                f"ParamAttr: regularizer is {self.regularizer!r}, expected L2Decay(coefficient) or L1Decay"
            )
        if self.gradient_clip is not None and not isinstance(self.gradient_clip, bool):
            raise ArgumentError(
                f"ParamAttr: gradient_clip is {self.gradient_clip!r}, expected None; pass it to an optimizer as "
                "grad_clip"
            )

    @classmethod
    def of(cls, given: Any) -> ParamAttr:
        """Return the attributes of a layer's argument.

        Args:
            given: a name, an initializer, a regularizer, or a `ParamAttr`; None and True mean the defaults.

        Raises:
            ArgumentError: the argument is not valid.
        """
        if given is None or given is True:
            return cls()
        if isinstance(given, str):
            return cls(given)
        if isinstance(given, Initializer):
            return cls(initializer=given)
        if isinstance(given, Decay):
            return cls(regularizer=given)
        if isinstance(given, cls):
            return given
        raise ArgumentError(f"param_attr is {given!r}, expected a ParamAttr, a name, an initializer or None")


Shape = tuple[int, ...]


def _arithmetic(
    operation: str, with_number: str, turned: bool = False
) -> Callable[[Variable, Any], Variable]:
    """Return an arithmetic method for two variables, or a variable and a number."""
    operator = "broadcast_power" if operation == "pow" else f"broadcast_{operation}"

    def method(self: Variable, other: Any) -> Any:
        if isinstance(other, Variable):
            level = max(self.lod_level, other.lod_level)
            left, right = (other, self) if turned else (self, other)

            def joined(name: str) -> Symbol:
                return call(operator, left.symbol, right.symbol, name=name)

            return self.program.derive(f"elementwise_{operation}", joined, lod_level=level)
        if isinstance(other, bool) or not isinstance(other, Real):
            raise ArgumentError(f"{self.name}: {other!r} is neither a variable of fluid nor a number")

        def scaled(name: str) -> Symbol:
            return call(with_number, self.symbol, scalar=float(other), name=name)

        return self.program.derive("scale", scaled, self._shape, self._dtype, self.lod_level)

    return method


class Variable:
    """A value of a program: a symbol with a name, a shape and a type.

    Args:
        symbol: the symbol, with one output.
        name: its name, also for fetching.
        shape: its shape, with -1 for the batch axis; None: inferred.
        dtype: its element type; None: inferred.
        lod_level: 1 for sequences of different lengths, else 0.
    """

    def __init__(
        self,
        program: Any,
        symbol: Symbol,
        name: str,
        shape: Shape | None = None,
        dtype: str | None = None,
        lod_level: int = 0,
    ) -> None:
        self.program: Any = program
        self.symbol = symbol
        self.name = name
        self.lod_level = lod_level
        self._shape = shape
        self._dtype = dtype
        self._flowing: Symbol | None = None

    @property
    def stop_gradient(self) -> bool:
        """True if layers that are added from now on pass no gradient to it; data has none in any case."""
        return self._flowing is not None or self.is_data

    @stop_gradient.setter
    def stop_gradient(self, stops: bool) -> None:
        if self.is_data or bool(stops) == self.stop_gradient:
            return
        if stops:
            self._flowing = self.symbol
            self.symbol = call("BlockGrad", self.symbol, name=f"{self.name}_stopped")
        elif self._flowing is not None:
            self.symbol, self._flowing = self._flowing, None

    def become(self, other: Variable) -> None:
        """Take the value of another variable, for layers that are added from now on and for fetches.

        Args:
            other: a variable of the same program.

        Raises:
            ArgumentError: no layer computes this variable.
        """
        if not self.is_computed:
            raise ArgumentError(f"{self.name!r} is not a result of create_tensor, which can take a value")
        self.symbol, self.lod_level = other.symbol, other.lod_level
        self._shape, self._dtype, self._flowing = other._shape, other._dtype, other._flowing

    @property
    def shape(self) -> Shape:
        """The shape, with -1 for the batch axis and for unknown sizes."""
        if self._shape is None:
            self._shape = inferred_shape(self.symbol)
        return self._shape

    @property
    def dtype(self) -> str:
        """Name of the element type."""
        if self._dtype is None:
            inferred = self.symbol.infer_type_partial()[1][0]
            self._dtype = "float32" if inferred is None else dtype_name(inferred)
        return self._dtype

    @property
    def is_data(self) -> bool:
        """True if it is fed."""
        return isinstance(self, Data)

    @property
    def is_computed(self) -> bool:
        """True if a layer computes it."""
        return not isinstance(self, (Data, Parameter))

    def __repr__(self) -> str:
        lod = f", lod_level={self.lod_level}" if self.lod_level else ""
        return f"<{type(self).__name__} {self.name}: shape={self.shape}, dtype={self.dtype}{lod}>"

    __add__, __radd__ = _arithmetic("add", "_PlusScalar"), _arithmetic("add", "_PlusScalar", True)
    __sub__, __rsub__ = _arithmetic("sub", "_MinusScalar"), _arithmetic("sub", "_RMinusScalar", True)
    __mul__, __rmul__ = _arithmetic("mul", "_MulScalar"), _arithmetic("mul", "_MulScalar", True)
    __truediv__, __rtruediv__ = _arithmetic("div", "_DivScalar"), _arithmetic("div", "_RDivScalar", True)
    __pow__, __rpow__ = _arithmetic("pow", "_PowerScalar"), _arithmetic("pow", "_RPowerScalar", True)

    def __neg__(self) -> Variable:
        return self * -1.0

    __iter__: None = None  # it can be indexed, but has no known number of items

    def __getitem__(self, index: Any) -> Variable:
        """Return a part, by integers, slices and ``...``, as in NumPy; one element has the shape (1,).

        Raises:
            ArgumentError: an index is of another type, there are too many, or sequences are cut along their first axis.
        """
        items = list(index) if isinstance(index, tuple) else [index]
        rank = len(self.shape)
        places = [i for i, item in enumerate(items) if item is Ellipsis]
        if len(places) == 1:
            items[places[0] : places[0] + 1] = [slice(None)] * (rank - len(items) + 1)
        if len(items) > rank or not all(_is_index(item) for item in items):
            raise ArgumentError(
                f"{self.name}[{index!r}]: expected up to {rank} integers or slices of integers, for the shape "
                f"{self.shape}"
            )
        if self.lod_level and items and items[0] != slice(None):
            raise ArgumentError(f"{self.name}[{index!r}]: {self.name!r} holds sequences; pool them first")
        dropped = tuple(axis for axis, item in enumerate(items) if not isinstance(item, slice))

        def made(name: str) -> Symbol:
            data = self.symbol
            for axis, item in enumerate(items):
                data = _part(data, axis, item)
            if len(dropped) == rank:
                return call("Reshape", data, shape=(1,), name=name)
            return (
                call("squeeze", data, axis=dropped, name=name)
                if dropped
                else call("identity", data, name=name)
            )

        found: Variable = self.program.derive("slice", made, None, self._dtype, self.lod_level)
        return found


def _is_index(item: Any) -> bool:
    if isinstance(item, slice):
        return all(each is None or _is_index(each) for each in (item.start, item.stop, item.step))
    return not isinstance(item, bool) and isinstance(item, Integral)


def _part(data: Symbol, axis: int, item: Any) -> Symbol:
    """Return a part of a symbol along an axis, which stays."""
    if not isinstance(item, slice):
        return call("slice_axis", data, axis=axis, begin=int(item), end=int(item) + 1 or None)
    if item == slice(None):
        return data
    if item.step in (None, 1):
        return call("slice_axis", data, axis=axis, begin=item.start or 0, end=item.stop)
    before = (None,) * axis
    return call(
        "slice", data, begin=(*before, item.start), end=(*before, item.stop), step=(*before, item.step)
    )


class Data(Variable):
    """A variable that is fed.

    Sequences of shape (-1, 1) are fed without their last axis, which embeddings do not need; all other layers see it.

    Args:
        shape: its shape, with -1 for the batch axis.
        lod_level: 1 for sequences of different lengths, else 0.
    """

    def __init__(
        self, program: Any, fed: Symbol, name: str, shape: Shape, dtype: str, lod_level: int
    ) -> None:
        is_single = bool(lod_level) and shape[1:] == (1,)
        symbol = call("expand_dims", fed, axis=1, name=f"{name}_column") if is_single else fed
        super().__init__(program, symbol, name, shape, dtype, lod_level)
        self.fed = fed
        self.fed_shape = shape[:-1] if is_single else shape


class Parameter(Variable):
    """A variable that is trained.

    Attributes:
        is_state: whether a layer updates it, in place of an optimizer.

    Args:
        name: its name in scope and program.
        shape: length of each axis.
        attr: its attributes from the layer.
    """

    is_state = False

    def __init__(
        self, program: Any, symbol: Symbol, name: str, shape: Shape, dtype: str, attr: ParamAttr
    ) -> None:
        super().__init__(program, symbol, name, shape, dtype)
        self.attr = attr

    @property
    def trainable(self) -> bool:
        """True if it is trained."""
        return self.attr.trainable


class LayerState(Parameter):
    """A variable that a layer updates in every batch, and that is not trained."""

    is_state = True


class RunningValue(Variable):
    """A computed variable that is about all batches so far, in place of one.

    Attributes:
        latest: function that returns its present value, from states.
    """

    latest: Callable[[], float]


def declared_shape(attributes: Mapping[str, str]) -> Shape:
    """Return the declared shape of a variable, () if there is none."""
    shape: Shape = shape_type.parse(attributes.get("__shape__", "()"))
    return shape


def inferred_shape(symbol: Symbol) -> Shape:
    """Return the shape of a symbol, with -1 for axes that differ between two batches.

    Networks that cut their batch at fixed places, or reshape it to fixed sizes, are tried with batches of these sizes.
    """
    try:
        shapes = [_shape_of_batch(symbol, size, length) for size, length in ((2, 5), (3, 7))]
    except ShapeError as error:
        shapes = []
        for size in _sizes_in(symbol):
            shapes += _possible_shape(symbol, size, 5)
            if shapes:
                shapes += _possible_shape(symbol, size + 1, 7)
                break
        if not shapes:
            raise error
    return tuple(a if a == b and a else -1 for a, b in zip(shapes[0], shapes[-1]))


def _shape_of_batch(symbol: Symbol, size: int, length: int) -> Shape:
    """Return the shape of a symbol for a batch.

    Args:
        size: number of lines.
        length: length of other axes that are open.
    """
    given = {}
    for name, attributes in symbol.attr_dict().items():
        shape = declared_shape(attributes)
        if shape and not all(shape):
            given[name] = (shape[0] or size, *(n or length for n in shape[1:]))
    names = set(symbol.list_arguments())
    known = {name: shape for name, shape in given.items() if name in names and all(shape)}
    found: Shape = symbol.infer_shape_partial(**known)[1][0]
    return found


def _possible_shape(symbol: Symbol, size: int, length: int) -> list[Shape]:
    """Return a list with the shape of a symbol for a batch, empty if the batch does not fit."""
    try:
        return [_shape_of_batch(symbol, size, length)]
    except ShapeError:
        return []


def _sizes_in(symbol: Symbol) -> list[int]:
    """Return the numbers at which a network cuts axes, or to which it reshapes them."""
    numbers: set[int] = set()
    for node in symbol.graph.nodes:
        if node.op is not None and node.op.name in ("slice_axis", "Reshape"):
            given = node.a.shape if node.op.name == "Reshape" else (node.a.end,)
            numbers.update(n for n in given if isinstance(n, int) and n > 1)
    return sorted(numbers)
