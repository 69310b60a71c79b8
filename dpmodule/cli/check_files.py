"""``dpmodule check FOLDER``: the models of a folder, of its subfolders and of archives, one line each."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from .. import checkpoint, ndarray, symbol
from .._files import regular_file
from ..base import ArgumentError, FileError, FileFormatError, MXNetError
from ..graph.node import printable
from ..ndarray import NDArray, safetensors
from ..ndarray.binary_reader import LIST_MAGIC
from . import origins
from .archives import is_zip_of_arrays, looks_like_archive, unpack
from .convert import try_conversion
from .models import Model, Shapes, check_complete, find, is_pretrained, read
from .saved_files import temporary_folder
from .shapes import find_shapes, given_shapes, inferred, input_names, random_batch

_EXPORTED = (".onnx", ".pt2")
_STATE_DICTS = (".pt", ".pth")
_GRAPH = re.compile(rb'\s*\{\s*"nodes"\s*:\s*\[')  # every MXNet writes the nodes first
_SYMBOL = "-symbol.json"
_EPOCH = re.compile(r"(?P<prefix>.+)-\d{4,}\.params", re.DOTALL)
_MAX_ERROR = 300
_MAX_DEPTH = 3
"""Number of archives inside each other that are unpacked."""
_MAX_LISTED = 8
"""Number of arrays, or of files of an archive, that a line names."""
_TOLERANCE = 1e-4
_TARGETS = {"onnx": "ONNX", "pt2": "torch"}
_FOREIGN_CODE = FileFormatError(
    "a .pt2 file in an archive is not read, since torch turns it into code; unpack it if you trust it"
)

RequestedShapes = Sequence[tuple[str | None, tuple[int, ...]]]


class _Candidate(NamedTuple):
    """A file or folder to check."""

    path: str
    shown: str
    """Its path in messages: that of its archive, and that inside."""
    params: str | None = None
    """File of a graph's arrays, if its name does not follow from that of the graph."""
    is_arrays: bool = False
    """True for arrays without a graph."""
    problem: Exception | None = None
    """Reason why an archive cannot be read."""


def has_models(path: str) -> bool:
    """Return True for a folder of models, an archive, or arrays without a graph."""
    if os.path.isdir(path):
        return not is_pretrained(path)
    if not os.path.isfile(path):
        return False
    return looks_like_archive(path) or (_is_arrays(path) and not _graphs_of(path))


def check_files(path: str, requested_shapes: RequestedShapes) -> int:
    """Try every model of a folder, its subfolders and archives, or of one archive, and print a line for each.

    A model is opened, runs a random batch, and is converted to ONNX and torch, whose outputs are compared.

    Args:
        path: the folder or file.
        requested_shapes: shapes of inputs from the user, for the models that have these inputs.

    Returns:
        The exit code: 1 if a step of a model fails.
    """
    failed = total = 0
    with closing(_find_files(path)) as files:
        for file in files:
            total += 1
            is_fine, text = _describe_arrays(file) if file.is_arrays else _try_model(file, requested_shapes)
            failed += not is_fine
            print(printable(f"{'ok   ' if is_fine else 'error'} {file.shown}: {text}"), flush=True)
    if not total:
        raise ArgumentError(f"{path}: no model in this folder or its subfolders")
    print(f"{total - failed} of {total} models can be used")
    return 1 if failed else 0


def _find_files(path: str) -> Generator[_Candidate, None, None]:
    """Yield the files to check of a folder or file."""
    if os.path.isdir(path):
        yield from _walk(path, path, 0)
    elif looks_like_archive(path):
        yield from _of_archive(path, path, 0)
    else:
        yield _Candidate(path, path, is_arrays=True)


def _walk(folder: str, shown: str, depth: int) -> Iterator[_Candidate]:
    """Yield the files to check of a folder and its subfolders, in sorted order."""
    for path, folders, files in os.walk(folder):
        folders.sort()
        place = shown + path[len(folder) :]
        if is_pretrained(path):
            folders.clear()
            yield _Candidate(path, place)
            continue
        yield from _of_folder(path, place, sorted(files), depth)


def _of_folder(folder: str, shown: str, names: list[str], depth: int) -> Iterator[_Candidate]:
    """Yield the files to check of one folder."""
    graphs = [name for name in names if _is_graph(folder, name)]
    arrays = [name for name in names if _is_arrays(os.path.join(folder, name))]
    pairs = _pair(folder, graphs, arrays)
    stems = {name.removesuffix(_SYMBOL) for name in graphs}
    for name in names:
        path, place = os.path.join(folder, name), os.path.join(shown, name)
        if name in graphs:
            params = pairs.get(name)
            yield _Candidate(path, place, None if params is None else os.path.join(folder, params))
        elif name in arrays:
            match = _EPOCH.fullmatch(name)
            if name not in pairs.values() and (match is None or match["prefix"] not in stems):
                yield _Candidate(path, place, is_arrays=True)
        elif _is_other_model(path, name, stems):
            yield _Candidate(path, place, problem=_FOREIGN_CODE if depth and name.endswith(".pt2") else None)
        elif _is_archive(path):
            yield from _of_archive(path, place, depth)


def _of_archive(path: str, shown: str, depth: int) -> Iterator[_Candidate]:
    """Yield the files to check of an archive, which exist until the next one is requested."""
    with temporary_folder() as folder:
        try:
            if depth == _MAX_DEPTH:
                raise FileFormatError(f"{path}: an archive in {_MAX_DEPTH} archives, which is not unpacked")
            unpack(path, folder)
            if not (files := sorted(name for _, _, names in os.walk(folder) for name in names)):
                raise FileFormatError(f"{path}: an empty archive")
        except (MXNetError, OSError) as error:
            yield _Candidate(path, shown, problem=error)
            return
        is_empty = True
        for found in _walk(folder, shown, depth + 1):
            is_empty = False
            yield found
        if is_empty:
            content = f"no model of MXNet in this archive of {_listed(files)}"
            yield _Candidate(path, shown, problem=FileFormatError(content))


def _is_archive(path: str) -> bool:
    try:
        return looks_like_archive(path)
    except OSError:
        return False


def _is_arrays(path: str) -> bool:
    """Return True for a file of arrays that has no other meaning, such as a data set."""
    name = os.path.basename(path)
    if os.path.splitext(name)[1] not in ("", ".params"):
        return False
    try:
        with open(path, "rb", opener=regular_file) as file:
            head = file.read(8)
    except OSError:
        return False
    return int.from_bytes(head, "little") == LIST_MAGIC or (head[:2] == b"PK" and is_zip_of_arrays(path))


def _is_graph(folder: str, name: str) -> bool:
    """Return True for a JSON file with a graph, and for pipes and devices, so that they are reported."""
    if not name.endswith(".json"):
        return False
    if name.endswith(_SYMBOL):
        return True
    try:
        with open(os.path.join(folder, name), "rb", opener=regular_file) as file:
            return _GRAPH.match(file.read(99)) is not None
    except FileError:
        return True


def _is_other_model(path: str, name: str, graphs: set[str]) -> bool:
    """Return True for a file with a graph, or a torch file with a graph next to it."""
    stem, ending = os.path.splitext(name)
    if ending == ".safetensors":
        try:
            return checkpoint.SYMBOL in safetensors.read_metadata(path)
        except MXNetError:
            return True  # a damaged one is reported
    return ending in _EXPORTED or (ending in _STATE_DICTS and stem in graphs)


def _graphs_of(path: str) -> list[str]:
    """Return the graph of the arrays of a prefix, as a list."""
    match = _EPOCH.fullmatch(path)
    graph = f"{match['prefix']}{_SYMBOL}" if match else ""
    return [graph] if os.path.exists(graph) else []


def _pair(folder: str, graphs: list[str], arrays: list[str]) -> dict[str, str]:
    """Return the files of arrays of graphs that are not saved as PREFIX-symbol.json and PREFIX-NNNN.params.

    A file belongs to a graph if it has the name of the graph, as Wolfram Language writes it, or if all its arrays have
    the names of the graph's variables.
    """
    pairs: dict[str, str] = {}
    for name in graphs:
        stem = name.removesuffix(_SYMBOL)
        if stem != name and checkpoint.epochs(os.path.join(folder, stem)):
            continue
        stem = stem.removesuffix(".json")
        free = [other for other in arrays if other not in pairs.values()]
        own = [
            other
            for other in free
            if other == f"{stem}.params" or re.fullmatch(rf"{re.escape(stem)}-\d{{4,}}\.params", other)
        ]
        others = own[-1:] or [other for other in free if not _graphs_of(os.path.join(folder, other))]
        variables = _variables(os.path.join(folder, name)) if others and not own else set()
        for other in others:
            if own or (names := set(_array_names(os.path.join(folder, other)))) and names <= variables:
                pairs[name] = other
                break
    return pairs


def _variables(path: str) -> set[str]:
    """Return the names of a graph's variables, none if it cannot be read."""
    try:
        net = symbol.load(path)
    except (MXNetError, OSError):
        return set()
    return {*net.list_arguments(), *net.list_auxiliary_states()}


def _array_names(path: str) -> list[str]:
    """Return the names of the arrays in a file, none if it cannot be read."""
    try:
        arrays = ndarray.load(path)
    except (MXNetError, OSError):
        return []
    return (
        [key.removeprefix("arg:").removeprefix("aux:") for key in arrays] if isinstance(arrays, dict) else []
    )


def _listed(items: Sequence[str]) -> str:
    return ", ".join(items[:_MAX_LISTED]) + (
        f" and {len(items) - _MAX_LISTED} more" if items[_MAX_LISTED:] else ""
    )


# steps of one file


def _describe_arrays(file: _Candidate) -> tuple[bool, str]:
    """Return False, and the description of arrays without a graph."""
    try:
        arrays = ndarray.load(file.path)
    except (MXNetError, OSError, MemoryError) as error:
        return False, f"does not open: {_message(error, file)}"
    rows = arrays if isinstance(arrays, dict) else {str(i): array for i, array in enumerate(arrays)}
    names = list(rows) if isinstance(arrays, dict) else []
    shapes = _listed([f"{name} {array.shape}" for name, array in rows.items()])
    producer = origins.describe_arrays(file.path, names)
    count = sum(array.size for array in rows.values())
    return False, (
        f"{f'from {producer}; ' if producer else ''}opens: {shapes}, {count:,} numbers; does not predict: its graph "
        "is missing; write the network with mx.sym, or export it where it was made, and load these arrays with "
        "mx.nd.load"
    )


def _try_model(file: _Candidate, requested_shapes: RequestedShapes) -> tuple[bool, str]:
    """Return True if a model opens, predicts and converts, and the description of these steps."""
    if file.problem is not None:
        return False, _message(file.problem, file)
    origin = origins.describe_graph(file.path) if file.path.endswith(".json") else ""
    parts = [f"from {origin}"] if origin else []
    step = "open"
    try:
        model = _open(file)
        step = "predict"
        shapes, outputs = _predict(model, requested_shapes)
    except (MXNetError, OSError, RuntimeError, MemoryError) as error:
        opened = ["opens"] if step == "predict" else []
        return False, "; ".join([*parts, *opened, f"does not {step}: {_message(error, file)}"])
    parts.insert(0, _describe(model, shapes, outputs))
    failures = [failure for kind in _TARGETS if (failure := _failure(model, kind, shapes, file))]
    kept = [title for title in _TARGETS.values() if not any(title in failure for failure in failures)]
    done = ["opens", "predicts", *([f"converts to {' and '.join(kept)}"] if kept else [])]
    return not failures, "; ".join([*parts, ", ".join(done), *failures])


def _open(file: _Candidate) -> Model:
    location = find(file.path)
    if location.is_graph and file.params is None:
        model = Model(location, symbol.load(location.path), {}, {})
    elif file.params is not None:
        model = read(location, file.path, file.params)
    else:
        model = read(location)
    return replace(model, shapes={**_known_shapes(file, model), **model.shapes})


def _known_shapes(file: _Candidate, model: Model) -> Shapes:
    """Return the shapes of inputs from files next to a graph, none if they do not fit it."""
    found = origins.saved_shapes(file.path)
    shapes = {name: shape for name, shape in found.items() if name in model.data_names}
    try:
        inferred(model.net, model.values, shapes)
    except MXNetError:
        return {}
    return shapes


def _predict(model: Model, requested_shapes: RequestedShapes) -> tuple[Shapes, list[NDArray]]:
    """Run a random batch; return the shape of every argument, and the outputs."""
    check_complete(model)
    names = model.net.list_arguments()
    fitting = [each for each in requested_shapes if each[0] is None or each[0] in names]
    shapes = _find_shapes(model, fitting)
    return shapes, random_batch(model.net, shapes, model.values).forward(is_train=False)


def _find_shapes(model: Model, requested_shapes: RequestedShapes) -> Shapes:
    """Return the shape of every argument; requested ones that only other models of a folder have are left out."""
    try:
        given: Shapes = {**model.shapes, **given_shapes(model.net, requested_shapes, model.values, 1)}
        return find_shapes(model.net, given, model.values)
    except MXNetError:
        if not requested_shapes:
            raise
        with suppress(MXNetError):
            return find_shapes(model.net, model.shapes, model.values)
        raise


def _describe(model: Model, shapes: Mapping[str, tuple[int, ...]], outputs: Sequence[NDArray]) -> str:
    """Return kind, size, inputs and outputs of a model."""
    bad = sum(int(np.sum(~np.isfinite(each.asnumpy().astype("f8")))) for each in outputs)
    names = [name for name in model.data_names if name in input_names(model.net, model.values)]
    inputs = ", ".join(f"{name} {shapes[name]}" for name in names)
    results = ", ".join(f"{name} {each.shape}" for name, each in zip(model.net.list_outputs(), outputs))
    count = sum(array.size for array in model.values.values())
    epoch = f" epoch {model.location.epoch}" if model.location.is_prefix else ""
    parameters = f"{count:,} parameters" if model.values else "no parameters, random ones"
    finite = f" ({bad} numbers not finite)" if bad else ""
    kind = f"{model.location.kind}{epoch}, {len(model.net.graph.nodes)} nodes"
    return f"{kind}, {parameters}; {inputs} -> {results}{finite}"


def _failure(model: Model, kind: str, shapes: Shapes, file: _Candidate) -> str:
    """Return the reason why a model does not convert, "" if it does."""
    try:
        found = try_conversion(_with_values(model, shapes), kind, shapes)
    except (MXNetError, OSError, RuntimeError, MemoryError) as error:
        return f"does not convert to {_TARGETS[kind]}: {_message(error, file)}"
    return "" if found.difference.is_within(_TOLERANCE) else f"differs in {_TARGETS[kind]}: {found}"


def _with_values(model: Model, shapes: Shapes) -> Model:
    """Return a model with random parameters if it has none."""
    if model.values:
        return model
    bound = random_batch(model.net, shapes, {})
    inputs = input_names(model.net, {})
    arg_params = {name: array for name, array in bound.arg_dict.items() if name not in inputs}
    return replace(model, arg_params=arg_params, aux_params=dict(bound.aux_dict))


def _message(error: Exception, file: _Candidate) -> str:
    """Return the text of an error, without line breaks and the paths of temporary folders."""
    text = str(error).removeprefix(f"{file.path}: ").replace(file.path, file.shown)
    folder, shown = (os.path.join(os.path.dirname(path), "") for path in (file.path, file.shown))
    text = text.replace(folder, shown)
    text = " ".join(text.split()) or type(error).__name__
    return text if len(text) <= _MAX_ERROR else f"{text[:_MAX_ERROR]} ..."
