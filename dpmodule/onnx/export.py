"""`export_model`: writes a symbol and its parameters as an ONNX file."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .._files import write_set
from ..base import ArgumentError
from ..ndarray import NDArray
from ..ndarray import load as load_arrays
from ..symbol import Symbol
from ..symbol import load as load_symbol
from .prediction import ModelInputs, describe_inputs, prediction_graph

if TYPE_CHECKING:
    import onnx

OPSETS = range(13, 22)
"""Supported versions of ONNX's operators."""

EXTERNAL_BYTES = 2**31 - 2**20
"""Parameters of at least this size are stored in a separate file, since protobuf is limited to 2 GiB."""


def export_model(
    sym: Symbol | str | os.PathLike[str],
    params: Mapping[str, NDArray] | Sequence[Mapping[str, NDArray]] | str | os.PathLike[str],
    in_shapes: Sequence[Sequence[int | str | None]] | Mapping[str, Sequence[int | str | None]] | None = None,
    in_types: Any = np.float32,
    onnx_file_path: str | os.PathLike[str] = "model.onnx",
    verbose: bool = False,
    dynamic: bool | Mapping[str, Mapping[int, str]] = False,
    dynamic_input_shapes: Sequence[Sequence[int | str | None]] | None = None,
    run_shape_inference: bool = False,
    input_type: Any = None,
    input_shape: Any = None,
    large_model: bool = False,
    *,
    opset: int = 17,
    fold_batchnorm: bool = False,
) -> str:
    """Write a network as an ONNX file, for prediction, and return the file's path.

    Losses become their predictions. Labels, outputs computed from labels, and dropout are removed; BatchNorm uses its
    moving statistics. Variables and outputs keep their names. The file is written atomically.

    Args:
        sym: the network, or the name of its ``-symbol.json`` file.
        params: parameters and auxiliary states by name, with or without the prefixes "arg:" and "aux:"; or a list
            ``[arg_params, aux_params]``; or the name of a file of them.
        in_shapes: a shape for each input, in the order of `Symbol.list_arguments`, or shapes by name. Inputs are the
            arguments that are neither in `params` nor labels. A name, or None, in place of a length makes it dynamic. A
            ragged variable x becomes two inputs: x, with the elements of all rows, and x_lengths, with the length of
            each row.
        in_types: dtype of all inputs, or one for each.
        onnx_file_path: path of the new file.
        verbose: log a summary of the file.
        dynamic: dynamic lengths, as ``{"data": {0: "batch"}}``; True means those in `dynamic_input_shapes`, or else
            the batch axis of every input, named "batch": axis 0, or 1 for data and states of an RNN operator.
        dynamic_input_shapes: shapes like `in_shapes`, with names or None for dynamic lengths.
        run_shape_inference: check the model, and store the shapes of all values in it.
        input_type: old name of `in_types`.
        input_shape: old name of `in_shapes`.
        large_model: store parameters of any size in a separate file, ``<onnx_file_path>.data``.
        opset: version of ONNX's operators, 13 to 21.
        fold_batchnorm: fold BatchNorm into a preceding convolution or dense layer.

    Raises:
        ArgumentError: something is not supported by ONNX, or does not fit; lists every problem. Nothing is written.
        FileError: a file cannot be read or written.

    Example:
        >>> x = mx.sym.Variable("data")
        >>> net = mx.sym.softmax(mx.sym.FullyConnected(x, num_hidden=2, name="fc"))
        >>> params = {"fc_weight": mx.nd.ones((2, 3)), "fc_bias": mx.nd.zeros((2,))}
        >>> mx.onnx.export_model(net, params, [("batch", 3)], onnx_file_path="net.onnx")
        'net.onnx'

    Source: MXNet 1.9.1 `mx.onnx.export_model`. MXNet's ``dynamic=True`` alone makes every length dynamic.
    """
    path = os.fspath(onnx_file_path)
    if os.path.isdir(path) or not os.path.basename(path):
        raise ArgumentError(f"onnx_file_path is {path!r}, expected the name of a file")
    symbol = _symbol(sym)
    arrays = _named(params)
    inputs = describe_inputs(
        symbol,
        arrays,
        input_shape if in_shapes is None else in_shapes,
        in_types if input_type is None else input_type,
        dynamic,
        dynamic_input_shapes,
    )
    model = make_model(symbol, arrays, inputs, opset, fold_batchnorm)
    if run_shape_inference:
        model = _checked(model)
    write_models({path: model}, large_model)
    if verbose:
        logging.info(
            "%s: %d operators, %d parameters", path, len(model.graph.node), len(model.graph.initializer)
        )
    return path


def _symbol(sym: Any) -> Symbol:
    if isinstance(sym, Symbol):
        return sym
    if isinstance(sym, (str, os.PathLike)):
        return load_symbol(os.fspath(sym))
    raise ArgumentError(
        f"sym is {type(sym).__name__}, expected a Symbol or the name of its -symbol.json file"
    )


def make_model(
    symbol: Symbol,
    arrays: Mapping[str, NDArray],
    inputs: ModelInputs,
    opset: int = 17,
    fold_batchnorm: bool = False,
) -> onnx.ModelProto:
    """Return a network as an ONNX model in memory; see `export_model`."""
    if opset not in OPSETS:
        raise ArgumentError(f"opset is {opset!r}, expected one from {OPSETS[0]} to {OPSETS[-1]}")
    from .to_onnx.model import to_model

    graph = prediction_graph(symbol.graph)
    dropped = [name for name in symbol.list_outputs() if name not in graph.output_names]
    if dropped:
        logging.warning("outputs computed from labels are not exported: %s", ", ".join(dropped))
    return to_model(graph, arrays, inputs, opset, fold_batchnorm)


def _named(params: Any) -> dict[str, NDArray]:
    """Return parameters by name, without the prefixes "arg:" and "aux:"."""
    if isinstance(params, (str, os.PathLike)):
        params = load_arrays(params)
    parts = params if isinstance(params, (list, tuple)) else [params]
    if not all(isinstance(part, Mapping) for part in parts):
        raise ArgumentError(
            f"params is {type(params).__name__}, expected arrays by name, or the name of a file written by "
            "Module.save_params"
        )
    arrays = {name.removeprefix("arg:").removeprefix("aux:"): x for part in parts for name, x in part.items()}
    wrong = [
        f"params has {name!r} of {type(x).__name__}"
        for name, x in arrays.items()
        if not isinstance(x, NDArray)
    ]
    if wrong:
        raise ArgumentError("\n".join([*wrong, "expected NDArrays; convert other arrays with mx.nd.array"]))
    return arrays


def _checked(model: onnx.ModelProto) -> onnx.ModelProto:
    import onnx

    onnx.checker.check_model(model)
    return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


def write_models(models: Mapping[str, onnx.ModelProto], external: bool = False) -> None:
    """Write models in one step, all or none.

    Args:
        external: store the parameters of each model in a separate file; done in any case if they exceed the limit of
            one file.
    """
    files: dict[str, Any] = {}
    for path, model in models.items():
        if (
            external
            or sum(len(initializer.raw_data) for initializer in model.graph.initializer) >= EXTERNAL_BYTES
        ):
            contents = _externalize(model, os.path.basename(path) + ".data")
            files[path + ".data"] = partial(_write_lines, contents)
        files[path] = model.SerializeToString()
    write_set(files, os.path.basename(next(iter(models))))


def _write_lines(contents: Sequence[bytes], file: Any) -> None:
    file.writelines(contents)


def _externalize(model: onnx.ModelProto, location: str) -> list[bytes]:
    """Move the parameters' bytes out of a model, leaving references to an external file."""
    import onnx

    contents: list[bytes] = []
    offset = 0
    for initializer in model.graph.initializer:
        if len(initializer.raw_data) < 1024:
            continue
        contents.append(initializer.raw_data)
        reference = {"location": location, "offset": str(offset), "length": str(len(initializer.raw_data))}
        offset += len(initializer.raw_data)
        initializer.ClearField("raw_data")
        initializer.data_location = onnx.TensorProto.EXTERNAL
        initializer.external_data.extend(
            onnx.StringStringEntryProto(key=k, value=v) for k, v in reference.items()
        )
    return contents
