"""Models of all kinds: identifying files by their content, reading models, and writing them as another kind."""

from __future__ import annotations

import importlib
import logging
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from .. import checkpoint, interop, ndarray, symbol
from .._files import Writer, finish_commit, likely_kind, regular_file, write_atomically, write_set
from ..base import ArgumentError, FileFormatError, MXNetError, dtype_name
from ..interop.folder import CONFIG_FILE, SYMBOL_FILE
from ..ndarray import NDArray, safetensors
from ..ndarray.binary_reader import LIST_MAGIC
from ..ndarray.safetensors import looks_like
from ..onnx.prediction import input_names as onnx_inputs
from ..onnx.prediction import without_labels
from ..ops import fx as fx  # registers the operator that programs of this package call
from ..symbol import Symbol
from . import networks
from .archives import is_zip_of_arrays
from .shapes import LENGTHS, find_shapes, inferred, label_inputs, parameter_inputs, ragged_inputs

KINDS = {
    "mxnet": "PREFIX-symbol.json and PREFIX-NNNN.params",
    "safetensors": "one file of graph and parameters",
    "folder": "what Module.save_pretrained writes",
    "onnx": "an ONNX file",
    "pt2": "what torch.export.save writes",
    "pt": "a state dictionary of torch, with its graph in NAME-symbol.json",
}
"""Kinds of models and their descriptions."""

_EPOCH = re.compile(r"(?P<prefix>.+)-(?P<epoch>\d{4,}|last)\.(params|safetensors)", re.DOTALL)
_SYMBOL = "-symbol.json"
_ENDINGS = {
    ".params": "mxnet",
    ".safetensors": "safetensors",
    ".onnx": "onnx",
    ".pt2": "pt2",
    ".pt": "pt",
    ".pth": "pt",
}


class ModelLocation(NamedTuple):
    """Location and kind of a model."""

    kind: str
    path: str
    """A file, a folder, or a prefix."""
    epoch: int | str | None = None
    """Epoch of a prefix."""
    is_prefix: bool = False
    is_graph: bool = False
    """True for the file of a graph without parameters."""


def is_pretrained(folder: str) -> bool:
    """Return True for a folder that `Module.save_pretrained` wrote."""
    return {CONFIG_FILE, SYMBOL_FILE} <= set(os.listdir(folder))


def find(path: str, epoch: int | str | None = None) -> ModelLocation:
    """Return the location and kind of the model at a path.

    Args:
        epoch: epoch of a prefix; None: the last one.
    """
    if os.path.isdir(path):
        if is_pretrained(path):
            return ModelLocation("folder", path.rstrip(os.sep) or os.sep)
        raise FileFormatError(
            f"{path}: a folder without {CONFIG_FILE} and {SYMBOL_FILE}, expected one that save_pretrained wrote"
        )
    finish_commit(path)
    if os.path.exists(path):
        return _identify_file(path)
    saved = checkpoint.epochs(path)
    if epoch is None and saved:
        epoch = saved[-1]
    if not checkpoint.files(path):
        raise ArgumentError(f"{path}: no such file, folder or saved prefix")
    if epoch is None or not (files := checkpoint.params_files(path, epoch)):
        shown = ", ".join(map(str, saved)) or "none"
        raise ArgumentError(f"{path}: epoch {epoch} has no parameters; the saved epochs are: {shown}")
    return ModelLocation(
        "mxnet" if files[0].endswith(".params") else "safetensors", path, epoch, is_prefix=True
    )


def _identify_file(path: str) -> ModelLocation:
    with open(path, "rb", opener=regular_file) as file:
        head = file.read(64)
    match = _EPOCH.fullmatch(path)
    is_zip = head[:2] == b"PK" and path.endswith(".params") and is_zip_of_arrays(path)
    if is_zip or (int.from_bytes(head[:8], "little") == LIST_MAGIC and len(head) > 8):
        if match is None:
            return ModelLocation("mxnet", path)
        return ModelLocation("mxnet", match["prefix"], _epoch(match["epoch"]), is_prefix=True)
    if looks_like(head):
        return ModelLocation("safetensors", path)
    if head.lstrip()[:1] == b"{":
        return _identify_symbol(path)
    if head[:2] == b"PK":
        return ModelLocation(_identify_archive(path), path)
    if head[:1] == b"\x80":
        return ModelLocation("pt", path)
    if head[:1] == b"\x08" or path.lower().endswith(
        ".onnx"
    ):  # an ONNX file begins with the number of its version
        return ModelLocation("onnx", path)
    raise FileFormatError(f"{path}: not a model; {likely_kind(head) or 'its content is of an unknown kind'}")


def _identify_symbol(path: str) -> ModelLocation:
    prefix = path.removesuffix(_SYMBOL)
    saved = checkpoint.epochs(prefix) if prefix != path else []
    return (
        ModelLocation("mxnet", prefix, saved[-1], is_prefix=True)
        if saved
        else ModelLocation("mxnet", path, is_graph=True)
    )


def _identify_archive(path: str) -> str:
    """Return the kind of a torch archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise FileFormatError(f"{path}: a damaged zip archive ({error})") from None
    if any(name.endswith(("models/model.json", "serialized_exported_program.json")) for name in names):
        return "pt2"
    if any(name.endswith("/data.pkl") for name in names):
        return "pt"
    raise FileFormatError(f"{path}: a zip archive that torch did not write")


def wanted(path: str, kind: str | None, epoch: int | str) -> ModelLocation:
    """Return the location and kind of an output.

    Args:
        path: path of the output; its extension gives the kind. An existing folder or a name that ends in a slash is a
            folder; a name without a known extension is a prefix.
        kind: one of `KINDS`; None: from the path.
    """
    match = _EPOCH.fullmatch(path)
    ending = os.path.splitext(path)[1].lower()
    is_folder = path.endswith(os.sep) or os.path.isdir(path)
    kind = kind or ("folder" if is_folder else _ENDINGS.get(ending, "mxnet"))
    if is_folder != (kind == "folder") and (is_folder or os.path.exists(path)):
        actual = "a folder" if is_folder else "a file"
        raise ArgumentError(f"{path} is {actual}, but the output kind is {kind}: {KINDS[kind]}")
    if kind in ("mxnet", "safetensors") and match is not None:
        return ModelLocation(kind, match["prefix"], _epoch(match["epoch"]), is_prefix=True)
    if kind == "mxnet" or (kind == "safetensors" and not ending):
        return ModelLocation(kind, path.removesuffix(_SYMBOL).removesuffix(".params"), epoch, is_prefix=True)
    return ModelLocation(kind, path.rstrip(os.sep) if kind == "folder" else path)


def _epoch(text: str) -> int | str:
    return int(text) if text.isdigit() else text


# reading and writing

_USUAL_SIZES = (8, 1, 16, 32, 64, 224)
"""Sizes to try for open axes of an ONNX file other than the first."""

Params = Mapping[str, NDArray]
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Model:
    """A graph with its parameters."""

    location: ModelLocation
    net: Symbol
    arg_params: Params
    aux_params: Params
    shapes: Shapes = field(default_factory=dict)
    """Shapes of inputs, as far as the files have them."""

    @property
    def values(self) -> dict[str, NDArray]:
        """Parameters and auxiliary states by name."""
        return {**self.arg_params, **self.aux_params}

    @property
    def data_names(self) -> list[str]:
        """Inputs other than labels, in the order of the graph's arguments."""
        others = {*self.label_names, *self.values}
        return [name for name in self.net.list_arguments() if name not in others]

    @property
    def inputs(self) -> list[str]:
        """Inputs of predictions: data, and labels that are read by more than losses."""
        net = self.predictions
        labels = label_inputs(net) | {*self.label_names} - {*net.list_arguments()}
        return [name for name in self.net.list_arguments() if name not in {*labels, *self.values}]

    @property
    def predictions(self) -> Symbol:
        """The graph without outputs that are computed from labels, unless all are."""
        kept = without_labels(self.net.graph)
        return self.net if len(kept.heads) == len(self.net.graph.heads) else Symbol(kept.heads)

    @property
    def label_names(self) -> list[str]:
        """Inputs that are labels, by their use or their name."""
        labels = {*networks.label_names(self.net), *label_inputs(self.net)} - set(self.arg_params)
        return [name for name in self.net.list_arguments() if name in labels]


def read(
    location: ModelLocation, graph: str | None = None, params: str | None = None, shapes: Shapes | None = None
) -> Model:
    """Read a model.

    Args:
        graph: file of its graph, if it is another one.
        params: file of its parameters, if it is another one.
        shapes: shapes of inputs from the user.
    """
    if location.kind == "folder":
        saved = interop.load_pretrained(location.path)
        return Model(location, saved.symbol, saved.arg_params, saved.aux_params, dict(saved.data_shapes))
    if location.kind == "onnx":
        return _read_onnx(location, shapes or {})
    if location.kind == "pt2":
        return _read_exported(location)
    if location.is_prefix and params is None and graph is None:
        return Model(location, *checkpoint.load_checkpoint(location.path, location.epoch or 0))
    return _read_pair(location, graph, params)


_MAX_LISTED = 8


def check_complete(model: Model) -> None:
    """Raise FileFormatError if a model with values lacks some that its graph has as parameters or states."""
    names = sorted({*parameter_inputs(model.net), *model.net.list_auxiliary_states()})
    missing = [name for name in names if model.values and name not in model.values]
    if missing:
        shapes = inferred(model.net, model.values, model.shapes)[0]
        listed = ", ".join(f"{name} {shapes.get(name, '')}".rstrip() for name in missing[:_MAX_LISTED])
        more = f" and {len(missing) - _MAX_LISTED} more" if missing[_MAX_LISTED:] else ""
        raise FileFormatError(f"the arrays lack parameters of the graph: {listed}{more}")


def _read_pair(location: ModelLocation, graph: str | None, params: str | None) -> Model:
    """Return the model of a graph file and a parameter file."""
    net = _graph(location, graph)
    if params is None and location.is_prefix:
        arg_params, aux_params = checkpoint.load_params(location.path, location.epoch or 0)
        values = {**arg_params, **aux_params}
    elif params is None and location.is_graph:
        raise ArgumentError(
            f"{location.path} is a graph without parameters; give their file with --params FILE"
        )
    else:
        values = read_values(location.path if params is None else params)
    arg_params, aux_params, extra = split_values(net, values)
    if extra:
        raise FileFormatError(
            f"{params or location.path}: has {', '.join(sorted(extra))}, which the graph does not have"
        )
    return Model(location, net, arg_params, aux_params)


def split_values(
    net: Symbol, values: Params
) -> tuple[checkpoint.network.Params, checkpoint.network.Params, list[str]]:
    """Return the parameters and the auxiliary states of a network by name, and unknown names."""
    return checkpoint.network.split_params(
        values, lambda: (net.list_arguments(), net.list_auxiliary_states())
    )


def _graph(location: ModelLocation, graph: str | None) -> Symbol:
    if graph is not None:
        return symbol.load(graph)
    if location.is_graph:
        return symbol.load(location.path)
    if location.is_prefix:
        return checkpoint.saved_symbol(location.path, location.epoch or 0)
    if location.kind == "safetensors":
        text = safetensors.read_metadata(location.path).get(checkpoint.SYMBOL)
        if text is not None:
            try:
                return symbol.load_json(text)
            except FileFormatError as error:
                raise FileFormatError(f"{location.path}: the text {checkpoint.SYMBOL!r}: {error}") from error
    symbol_file = f"{os.path.splitext(location.path)[0]}-symbol.json"
    if not os.path.exists(symbol_file):
        raise ArgumentError(
            f"{location.path} has only parameters, and {symbol_file} does not exist; give the graph with --symbol FILE"
        )
    return symbol.load(symbol_file)


def read_values(path: str) -> dict[str, NDArray]:
    """Return the arrays of a file by name, without ``arg:`` and ``aux:``."""
    if find(path).kind == "pt":
        return interop.load_torch_state(path)
    arrays = ndarray.load(path)
    if not isinstance(arrays, dict):
        raise FileFormatError(f"{path}: has arrays without names, expected those of a checkpoint")
    return {key.removeprefix("arg:").removeprefix("aux:"): array for key, array in arrays.items()}


def _onnx() -> Any:
    return importlib.import_module("..onnx", __package__)


def _read_onnx(location: ModelLocation, shapes: Shapes) -> Model:
    net, arg_params, aux_params = _onnx().import_model(location.path)
    declared = dict(_onnx().get_model_metadata(location.path)["input_tensor_data"])
    values = {**arg_params, **aux_params}
    return Model(
        location, net, arg_params, aux_params, {**_fill_open_sizes(net, values, declared, shapes), **shapes}
    )


def _fill_open_sizes(
    net: Symbol, values: Params, declared: Mapping[str, Sequence[int]], shapes: Shapes
) -> Shapes:
    """Return shapes of inputs with open sizes (0) replaced by the first common size that fits."""
    for size in _USUAL_SIZES:
        filled = {
            name: tuple(each or (size if axis else 1) for axis, each in enumerate(shape))
            for name, shape in declared.items()
            if shape
        }
        try:
            find_shapes(net, {**filled, **shapes}, values, guess=False)
        except MXNetError:
            continue
        return filled
    return {name: tuple(shape) for name, shape in declared.items() if shape and all(shape)}


def _read_exported(location: ModelLocation) -> Model:
    """Return the model of a file of `torch.export.save`."""
    program = exported(location.path)
    if program.example_inputs is None:
        raise FileFormatError(
            f"{location.path}: has no example inputs; save it with the inputs it was exported with"
        )
    examples, named = program.example_inputs
    module: Any = program.module()
    translate: Any = symbol.from_torch
    net, arg_params, aux_params = translate(module, *examples, dynamic=_dynamic_axes(program), **named)
    inputs = [name for name in net.list_arguments() if name not in arg_params]
    shapes = {name: tuple(each.shape) for name, each in zip(inputs, (*examples, *named.values()))}
    return Model(location, net, arg_params, aux_params, shapes)


def _dynamic_axes(program: Any) -> dict[str, dict[int, str]]:
    """Return the dynamic axes of a program's inputs, with the names of their sizes."""
    inputs = [node for node in program.graph.nodes if node.name in program.graph_signature.user_inputs]
    sizes = {
        node.name: {
            axis: str(size) for axis, size in enumerate(node.meta["val"].shape) if not isinstance(size, int)
        }
        for node in inputs
    }
    return {name: axes for name, axes in sizes.items() if axes}


def exported(path: str) -> Any:
    """Return the program in a file of `torch.export.save`."""
    try:
        return torch.export.load(path)
    except Exception as error:  # torch raises many exception types
        lines = str(error).splitlines() or [type(error).__name__]
        raise FileFormatError(f"{path}: not a file of torch.export.save: {lines[0]}") from error


def write(model: Model, location: ModelLocation, shapes: Shapes, opset: int | None) -> list[str]:
    """Write a model as another kind; return the files.

    Args:
        shapes: shape of every input.
        opset: version of ONNX's operators; None: that of the exporter.
    """
    os.makedirs(os.path.dirname(location.path) or ".", exist_ok=True)
    if location.kind == "folder":
        data = [(name, shapes[name]) for name in model.data_names]
        interop.save_pretrained(
            location.path, model.net, model.arg_params, model.aux_params, data, model.label_names
        )
        return sorted(os.path.join(location.path, name) for name in os.listdir(location.path))
    if location.kind == "onnx":
        return [_write_onnx(model, location.path, shapes, opset)]
    if location.kind == "pt2":
        return [_write_exported(model, location.path, shapes)]
    if location.kind == "pt":
        return _write_state(model, location.path)
    return _write_checkpoint(model, location)


def _write_checkpoint(model: Model, location: ModelLocation) -> list[str]:
    if location.is_prefix:
        epoch, kind = location.epoch or 0, "params" if location.kind == "mxnet" else location.kind
        checkpoint.save_checkpoint(
            location.path, epoch, model.net, model.arg_params, model.aux_params, format=kind
        )
        written = [checkpoint.params_file(location.path, epoch, kind)]
        return [checkpoint.symbol_file(location.path), *written] if kind == "params" else written
    arrays = {f"arg:{name}": array for name, array in model.arg_params.items()}
    arrays.update({f"aux:{name}": array for name, array in model.aux_params.items()})
    texts = {checkpoint.SYMBOL: model.net.tojson()}
    write_atomically(location.path, lambda file: safetensors.write(file, arrays, texts))
    return [location.path]


def _write_state(model: Model, path: str) -> list[str]:
    tensors = {name: array.tensor.detach().clone() for name, array in model.values.items()}
    symbol_file = f"{os.path.splitext(path)[0]}-symbol.json"
    contents: dict[str, bytes | Writer] = {
        path: lambda file: torch.save(tensors, file),
        symbol_file: model.net.tojson().encode(),
    }
    write_set(contents, os.path.basename(path))
    return [path, symbol_file]


def _write_onnx(model: Model, path: str, shapes: Shapes, opset: int | None) -> str:
    more: dict[str, Any] = {} if opset is None else {"opset": opset}
    lengths = {f"{name}{LENGTHS}": name for name in ragged_inputs(model.net)}
    names = onnx_inputs(model.net, model.values)
    types = [_input_type(model, lengths.get(name, name)) for name in names]
    sizes = [shapes[lengths[name]][:1] if name in lengths else shapes[name] for name in names]
    open_batch = {
        name: {0: f"{name}_elements" if name in lengths.values() else "batch"}
        for name, size in zip(names, sizes)
        if size
    }
    write: Any = _onnx().export_model
    try:
        written: str = write(model.net, model.values, sizes, types, path, dynamic=open_batch, **more)
    except ArgumentError as error:
        try:  # the network may have a fixed batch size
            written = write(model.net, model.values, sizes, types, path, dynamic=False, **more)
        except ArgumentError:
            raise error from None
    return written


def _input_type(model: Model, name: str) -> str:
    """Return the element type of an input: as declared, else that of the parameters."""
    known = {key: value.dtype for key, value in model.arg_params.items()}
    try:
        types = dict(zip(model.net.list_arguments(), model.net.infer_type_partial(**known)[0] or ()))
    except MXNetError:
        types = {}
    return dtype_name(types.get(name))


def _write_exported(model: Model, path: str, shapes: Shapes) -> str:
    gone = set(model.net.list_outputs()) - set(model.predictions.list_outputs())
    if gone:
        logging.warning("outputs that are computed from labels are dropped: %s", ", ".join(sorted(gone)))
    program = _program(model, shapes)
    write_atomically(path, lambda file: torch.export.save(program, file))
    return path


def _program(model: Model, shapes: Shapes) -> torch.export.ExportedProgram:
    """Return a model as a torch program, for any batch size if the network allows it."""
    net: Any = model.predictions
    attempts = [True, False]
    try:
        module = net.to_torch(model.arg_params, model.aux_params).eval()
    except ArgumentError:  # the network may create arrays that have the batch size
        module, attempts = net.to_torch(model.arg_params, model.aux_params, shapes=shapes).eval(), [False]
    types = {name: getattr(torch, _input_type(model, name)) for name in model.inputs}
    batch = max(shapes[name][0] for name in model.inputs)
    grown = {name: (2 if batch == 1 else shapes[name][0], *shapes[name][1:]) for name in model.inputs}
    failures = []
    for is_open in attempts:
        sizes = grown if is_open else shapes  # torch.export specializes a size of 1
        examples = tuple(torch.zeros(sizes[name], dtype=types[name]) for name in model.inputs)
        try:
            return torch.export.export(
                module, examples, dynamic_shapes=_dynamic_shapes(examples) if is_open else None
            )
        except MXNetError:
            raise
        except Exception as error:  # torch raises many exception types
            failures.append(error)
    why = (str(failures[-1]).splitlines() or [type(failures[-1]).__name__])[0]
    raise ArgumentError(f"torch.export cannot record this network: {why}") from failures[-1]


def _dynamic_shapes(examples: Sequence[torch.Tensor]) -> Any:
    return tuple({0: torch.export.Dim.AUTO} if each.dim() else None for each in examples)
