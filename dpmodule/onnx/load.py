"""Importing ONNX files as symbols and parameters."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from .._devices.single_thread import single_thread
from .._files import path_text
from ..base import FileFormatError, ShapeError, dtype_from_code
from ..context import cpu
from ..io import DataDesc
from ..ndarray import NDArray
from ..symbol import Symbol
from .from_onnx.build import GraphBuilder
from .from_onnx.check import Checker, Problems, TooLarge, Unsupported, upgrade_model
from .from_onnx.control import graph_of
from .from_onnx.read import DTYPES, UNSIGNED, read_model
from .from_onnx.translate import TRANSLATORS, GraphNames, GraphTranslator
from .from_onnx.types import of_type
from .from_onnx.value import ATTEMPTS, sizes_of
from .hints import read_hints

_DEFAULT_SIZES = (1, 8, 32, 224)

Params = dict[str, NDArray]
Path = str | os.PathLike[str]


def _dims(value: Any) -> tuple[int | str, ...] | None:
    """Return a declared shape, with a name for each open dimension; None if the rank is open."""
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        return None
    return tuple(
        d.dim_value
        if d.dim_value > 0
        else (isinstance(d.dim_param, str) and d.dim_param) or f"{value.name}.{i}"
        for i, d in enumerate(kind.shape.dim)
    )


def _inputs(graph: Any) -> list[Any]:
    """Return the inputs of a graph that are not parameters."""
    held = {initializer.name for initializer in graph.initializer} | {
        initializer.values.name for initializer in graph.sparse_initializer
    }
    return [graph_input for graph_input in graph.input if graph_input.name not in held]


def _given_shapes(
    graph: Any, given: Mapping[str, Sequence[int]], problems: Problems
) -> dict[str, tuple[int | str, ...]]:
    """Return the shape of each input, from the caller or the file."""
    shapes: dict[str, tuple[int | str, ...]] = {}
    names = [graph_input.name for graph_input in _inputs(graph)]
    for name in given:
        if name not in names:
            problems.add(
                f"shapes[{name!r}]", f"there is no such input; the file has {', '.join(names) or 'none'}"
            )
    for graph_input in _inputs(graph):
        shape = tuple(given[graph_input.name]) if graph_input.name in given else _dims(graph_input)
        where = f"input {graph_input.name!r}"
        if not graph_input.type.HasField("tensor_type"):
            problems.add(where, "it is not an array")
        elif (
            graph_input.type.tensor_type.elem_type not in DTYPES
            or graph_input.type.tensor_type.elem_type == 8
        ):
            problems.add(where, f"its elements are of type {graph_input.type.tensor_type.elem_type}")
        elif shape is None:
            problems.add(
                where, f"the file does not declare its shape; give shapes={{{graph_input.name!r}: (...)}}"
            )
        elif len(shape) > 16 or any(isinstance(d, int) and d >= 2**31 for d in shape):
            problems.add(where, f"its shape is {shape[:16]}")
        else:
            shapes[graph_input.name] = tuple(
                f"{graph_input.name}.{i}" if isinstance(d, int) and d <= 0 else d for i, d in enumerate(shape)
            )
    return shapes


def import_model(
    model_file: Path, shapes: Mapping[str, Sequence[int]] | None = None
) -> tuple[Symbol, Params, Params]:
    """Read an ONNX file as a symbol and its parameters.

    Variables keep the names of the file; operators get the names of their results. Open sizes in the file, such as the
    batch, stay open. Constant expressions are computed once; integer and scalar constants are not trained.

    Args:
        model_file: the file; its external data must be in the same folder.
        shapes: shapes of inputs, to override the file's or if the file does not declare them.

    Returns:
        The symbol, the parameters by name, and the auxiliary states by name.

    Raises:
        FileError: the file cannot be opened.
        FileFormatError: it is not an ONNX file, or it cannot be translated; the message lists every problem.
        MissingPackageError: the package onnx is not installed.

    Example:
        >>> import onnx
        >>> from onnx import TensorProto, helper
        >>> x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 2]) for n in "xy")
        >>> graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
        >>> onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), "relu.onnx")
        >>> sym, arg_params, aux_params = mx.onnx.import_model("relu.onnx")
        >>> sym.list_arguments(), sym.list_outputs()
        (['x'], ['y_output'])

    Source: MXNet 1.9.1 `contrib.onnx.import_model`.
    """
    path = path_text(model_file, "model_file")
    model = upgrade_model(read_model(path), path)
    problems = Problems(path)
    functions = {(f.domain, f.name): f for f in model.functions}
    checker = Checker(problems, functions, lambda domain, name: (domain, name) in TRANSLATORS)
    versions = checker.versions(model.opset_import)
    checker.graph(model.graph, versions)
    for function in model.functions:
        checker.function(function)
    wanted = _given_shapes(model.graph, shapes or {}, problems)
    problems.check()
    try:
        checker.expansion(model.graph)
        return _try_sizes(model, versions, wanted, path, (checker, functions))
    except TooLarge as error:
        raise FileFormatError(f"{path}: {error}") from None


def _try_sizes(
    model: Any,
    versions: Mapping[str, int],
    wanted: Mapping[str, tuple[int | str, ...]],
    path: str,
    checked: tuple[Checker, Mapping[tuple[str, str], Any]],
) -> tuple[Symbol, Params, Params]:
    """Translate a model, trying sets of sizes for its open dimensions until one fits."""
    first: Problems | None = None
    is_open = any(isinstance(d, str) for shape in wanted.values() for d in shape[1:])
    for attempt in range(len(ATTEMPTS) if is_open else 1):
        problems = Problems(path)
        context = (*checked, os.path.dirname(os.path.abspath(path)))
        with single_thread():
            result = _translate(model, versions, wanted, attempt, problems, context)
        if result is not None:
            return result
        first = first or problems
    if first is not None:
        first.check()
    raise FileFormatError(f"{path}: the file could not be translated")


def _translate(
    model: Any,
    versions: Mapping[str, int],
    wanted: Mapping[str, tuple[int | str, ...]],
    attempt: int,
    problems: Problems,
    context: tuple[Checker, Mapping[tuple[str, str], Any], str],
) -> tuple[Symbol, Params, Params] | None:
    """Translate a model with given sizes of open dimensions; None if there are problems."""
    checker, functions, folder = context
    graph = model.graph
    trials, held = sizes_of(wanted, attempt)
    texts = {prop.key: prop.value for prop in model.metadata_props}
    builder, names = GraphBuilder(trials, read_hints(texts)), GraphNames()
    for value_info in (*graph.initializer, *_inputs(graph)):
        builder.reserve(value_info.name)
    for graph_input in _inputs(graph):
        code = graph_input.type.tensor_type.elem_type
        value = builder.variable(
            graph_input.name, held[graph_input.name], UNSIGNED.get(code, DTYPES[code]), is_open=True
        )
        builder.label = graph_input.name
        names.put(graph_input.name, of_type(value.cast(DTYPES[code]), code))
    translator = GraphTranslator(builder, checker, problems, TRANSLATORS, functions, folder)
    translator.initializers(graph, names, True)
    translator.nodes(graph, names, versions)
    values = translator.outputs(graph, names)
    if problems.found or values is None:
        return None
    try:
        symbol = Symbol(graph_of(builder, values, [output.name for output in graph.output], True).heads)
    except Unsupported as error:
        problems.add("outputs", str(error))
        return None
    args, states = set(symbol.list_arguments()), set(symbol.list_auxiliary_states())
    params = {
        name: NDArray(tensor, cpu()) for name, tensor in builder.params.items() if name in args | states
    }
    return (
        symbol,
        {name: array for name, array in params.items() if name in args},
        {name: array for name, array in params.items() if name in states},
    )


def input_descriptions(
    model_file: Path, symbol: Symbol, shapes: Mapping[str, Sequence[int]]
) -> list[DataDesc]:
    """Return descriptions of a symbol's inputs for binding it.

    Args:
        shapes: shapes of inputs that override the file's.
    """
    declared = dict(get_model_metadata(model_file)["input_tensor_data"])
    names = [name for name in declared if name in symbol.list_arguments()]
    wanted = {name: tuple(shapes.get(name, declared[name])) for name in names}
    for size in _DEFAULT_SIZES:
        bound_shapes = {
            name: tuple(d if d > 0 else 1 if axis == 0 else size for axis, d in enumerate(shape))
            for name, shape in wanted.items()
        }
        try:
            symbol.infer_shape(**bound_shapes)
        except ShapeError:
            if size == _DEFAULT_SIZES[-1]:
                raise
        else:
            break
    attributes = symbol.attr_dict()
    types = {name: attributes.get(name, {}).get("__dtype__", "0") for name in names}
    return [DataDesc(name, shape, dtype_from_code(int(types[name]))) for name, shape in bound_shapes.items()]


def get_model_metadata(model_file: Path) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    """Return names and shapes of the inputs and outputs of an ONNX file.

    Args:
        model_file: path of the ONNX file.

    Returns:
        "input_tensor_data", the inputs that are not parameters, and "output_tensor_data", the outputs, each a list of
        (name, shape); 0 in a shape is an open size, and () an undeclared shape.

    Raises:
        FileError: the file cannot be opened.
        FileFormatError: it is not an ONNX file.

    Source: MXNet 1.9.1 `contrib.onnx.get_model_metadata`.
    """
    graph = read_model(model_file).graph

    def rows(values: Sequence[Any]) -> list[tuple[str, tuple[int, ...]]]:
        return [
            (value.name, tuple(0 if isinstance(d, str) else d for d in _dims(value) or ()))
            for value in values
        ]

    return {"input_tensor_data": rows(_inputs(graph)), "output_tensor_data": rows(graph.output)}
