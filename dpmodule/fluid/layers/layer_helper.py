"""Helpers of layers: checking and adding variables, parameters and activations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, cast

from ... import initializer as init
from ... import symbol as sym
from ...base import ArgumentError, ShapeError, did_you_mean
from ...initializer import Initializer
from ...symbol import Symbol
from ..initializer import Xavier
from ..program import Program, default_main_program, default_startup_program
from ..variable import LayerState, ParamAttr, Parameter, Shape, Variable


def scaled_tanh(
    data: Symbol, scale_a: float = 0.67, scale_b: float = 1.7159, name: str | None = None
) -> Symbol:
    """Return ``scale_b * tanh(scale_a * data)``."""
    inner = sym.tanh(sym._internal._mul_scalar(data, scalar=float(scale_a)))
    result: Symbol = sym._internal._mul_scalar(inner, scalar=float(scale_b), name=name)
    return result


ACTIVATIONS: dict[str, Callable[..., Symbol]] = {
    "exp": sym.exp,
    "relu": sym.relu,
    "sigmoid": sym.sigmoid,
    "softmax": sym.softmax,
    "softsign": sym.softsign,
    "sqrt": sym.sqrt,
    "square": sym.square,
    "tanh": sym.tanh,
    "log": sym.log,
    "abs": sym.abs,
    "ceil": sym.ceil,
    "cos": sym.cos,
    "floor": sym.floor,
    "reciprocal": sym.reciprocal,
    "round": sym.round,
    "rsqrt": sym.rsqrt,
    "sin": sym.sin,
    "softplus": partial(sym.Activation, act_type="softrelu"),
    "stanh": scaled_tanh,
    "relu6": partial(sym.clip, a_min=0.0, a_max=6.0),
    "leaky_relu": partial(sym.LeakyReLU, act_type="leaky", slope=0.02),
    "gelu": partial(sym.LeakyReLU, act_type="gelu"),
}
"""Activations by the name for ``act``."""


def as_variable(layer: str, given: Any, argument: str = "input") -> Variable:
    """Return a layer's input after checking that it is a variable."""
    if not isinstance(given, Variable):
        raise ArgumentError(f"{layer}: {argument} is {given!r}, expected a variable of fluid")
    return given


def as_sequences(layer: str, given: Any, argument: str = "input") -> Variable:
    """Return a layer's input after checking that it holds sequences."""
    variable = as_variable(layer, given, argument)
    if not variable.lod_level:
        raise ArgumentError(
            f"{layer}: {argument} {variable.name!r} does not hold sequences; declare its data with lod_level=1"
        )
    return variable


def as_variables(layer: str, given: Any) -> list[Variable]:
    """Return one or several inputs as a list."""
    several = list(given) if isinstance(given, (list, tuple)) else [given]
    if not several:
        raise ArgumentError(f"{layer}: got an empty list of inputs, expected one or more")
    variables = [as_variable(layer, variable) for variable in several]
    program_of(layer, *variables)
    return variables


def program_of(layer: str, *variables: Variable) -> Program:
    """Return the common program of variables."""
    for other in variables[1:]:
        if other.program is not variables[0].program:
            raise ArgumentError(
                f"{layer}: {variables[0].name!r} and {other.name!r} belong to different programs"
            )
    program: Program = variables[0].program
    return program


def parameter(
    program: Program,
    name: str,
    shape: Shape,
    attr: ParamAttr,
    dtype: str = "float32",
    initializer: Initializer | None = None,
) -> Symbol:
    """Return the symbol of a parameter, which blocks the gradient if it is not trained.

    Args:
        name: its name, if `attr` has none.
        shape: its shape.
        initializer: its initializer, if `attr` has none; None: Xavier's.
    """
    return parameter_variable(program, name, shape, attr, dtype, initializer).symbol


def parameter_variable(
    program: Program,
    name: str,
    shape: Shape,
    attr: ParamAttr,
    dtype: str = "float32",
    initializer: Initializer | None = None,
) -> Parameter:
    """Return a parameter, whose symbol blocks the gradient if it is not trained; see `parameter`."""
    default = Xavier() if initializer is None else initializer
    made = program.create_parameter(default_startup_program(), name, shape, dtype, attr, default)
    if made.trainable:
        return made
    fixed = sym.BlockGrad(made.symbol, name=f"{made.name}_fixed")
    return Parameter(program, fixed, made.name, made.shape, dtype, made.attr)


def state(
    program: Program, name: str, shape: Shape, dtype: str = "float32", start: float = 0.0
) -> LayerState:
    """Return a variable that a layer updates.

    Args:
        name: its name.
        start: its first value.
    """
    attr, first = ParamAttr(), init.Constant(start)
    made = program.create_parameter(default_startup_program(), name, shape, dtype, attr, first, LayerState)
    return cast("LayerState", made)


def biases(program: Program, owner: str, size: int, attr: Any) -> list[Symbol]:
    """Return a list with the bias of a layer, empty if `attr` is False."""
    if attr is False:
        return []
    return [parameter(program, f"{owner}_bias", (size,), ParamAttr.of(attr), initializer=init.Constant(0.0))]


def width_of(layer: str, variable: Variable) -> int:
    """Return the size of a variable's last axis."""
    if len(variable.shape) < 2 or variable.shape[-1] < 1:
        raise ShapeError(
            f"{layer}: {variable.name!r} has the shape {variable.shape}; its last axis must have a known size"
        )
    return variable.shape[-1]


def check_act(layer: str, act: Any) -> None:
    """Raise ArgumentError for an unknown activation."""
    if act is not None and act not in ACTIVATIONS:
        raise ArgumentError(
            f"{layer}: act is {act!r}, expected None or one of {', '.join(ACTIVATIONS)}"
            f"{did_you_mean(str(act), ACTIVATIONS)}"
        )


def check_number(layer: str, argument: str, given: Any) -> None:
    """Raise ArgumentError for anything but a number."""
    if isinstance(given, bool) or not isinstance(given, Real):
        raise ArgumentError(f"{layer}: {argument} is {given!r}, expected a number")


def check_integer(layer: str, argument: str, given: Any, least: int) -> int:
    """Return an integer; raise ArgumentError for anything else, or a smaller number."""
    if isinstance(given, bool) or not isinstance(given, Integral) or given < least:
        raise ArgumentError(f"{layer}: {argument} is {given!r}, expected an integer from {least}")
    return int(given)


def place_of_axis(layer: str, argument: str, variable: Variable, axis: Any) -> int:
    """Return the number of an axis of a variable from 0; raise ArgumentError if it has no such axis."""
    count = len(variable.shape)
    if isinstance(axis, bool) or not isinstance(axis, Integral) or not -count <= int(axis) < count:
        raise ArgumentError(
            f"{layer}: {argument} is {axis!r} for {variable.name!r} of shape {variable.shape}, expected {-count} to "
            f"{count - 1}"
        )
    return int(axis) % count


def add_layer(
    layer: str,
    variables: Sequence[Variable],
    make: Callable[[str], Any],
    name: str | None = None,
    *,
    act: str | None = None,
    hint: str | None = None,
    **known: Any,
) -> Variable:
    """Add the result of a layer to the program of its inputs.

    Args:
        make: function from a name to the symbol of the result.
        act: name of an activation of the result.
        hint: prefix of the name; None: the name of the layer.
        known: shape, dtype and lod_level of the result; defaults are those of an element-wise layer: as the first
            variable, with sequences if any variable has them.
    """
    check_act(layer, act)
    first = variables[0]
    shape, dtype = known.get("shape", first.shape), known.get("dtype", first.dtype)
    level = known.get("lod_level", max(each.lod_level for each in variables))
    activated = make if act is None else lambda name: ACTIVATIONS[act](make(f"{name}_linear"), name=name)
    return program_of(layer, *variables).derive(hint or layer, activated, shape, dtype, level, name)


def apply(
    layer: str,
    operator: Callable[..., Symbol],
    variables: Sequence[Variable],
    name: str | None = None,
    **attributes: Any,
) -> Variable:
    """Add the result of an element-wise operator."""
    symbols = [each.symbol for each in variables]
    return add_layer(layer, variables, lambda name: operator(*symbols, name=name, **attributes), name)


def add_result(layer: str, variables: Sequence[Variable], result: Any, name: str, **known: Any) -> Variable:
    """Add a symbol as one of several results of a layer; see `add_layer`."""
    return add_layer(layer, variables, lambda own: sym.identity(result, name=own), name, **known)


def as_rows(variable: Variable, shape: Sequence[int], name: str | None = None) -> Variable:
    """Return sequences of one length as dense rows of a shape without the batch axis."""

    def made(name: str) -> Any:
        return sym._internal._sequence_rows(variable.symbol, shape=tuple(shape), name=name)

    return add_layer("sequence_rows", [variable], made, name, shape=(-1, *shape), lod_level=0)


def label_of(scores: Variable, label: Variable) -> Variable:
    """Return a label as dense rows if it holds sequences of one element, and its scores are dense, as in Paddle."""
    if label.lod_level and not scores.lod_level:
        return as_rows(label, label.shape[1:])
    return label


def main_program() -> Program:
    """Return the current program, joined with its startup program."""
    program = default_main_program()
    program.join(default_startup_program())
    return program
