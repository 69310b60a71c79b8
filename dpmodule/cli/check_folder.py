"""Every model in a folder: which can be used here, one line each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import numpy as np

from .. import checkpoint, symbol
from ..base import ArgumentError, FileError, MXNetError
from ..files.file_kind import regular_file
from ..graph.node import printable
from ..ndarray import safetensors
from .kinds import ModelPlace, find, is_pretrained
from .models import Model, Shapes, read
from .shapes import find_shapes, given_shapes, input_names, random_batch

_PROGRAMS = (".onnx", ".pt2")
_STATES = (".pt", ".pth")
_GRAPH = re.compile(rb'\s*\{\s*"nodes"\s*:\s*\[')  # every MXNet writes the nodes first
_LONGEST = 300


def check_folder(folder: str, asked: list[tuple[str | None, tuple[int, ...]]]) -> int:
    """Load every model in a folder and those below, run a random batch, and print a line for each.

    Args:
        asked: shapes of inputs that the user gave; they go to the models that have these inputs.

    Returns:
        The exit status: 1 if there is one that cannot be used.
    """
    failed = total = 0
    for path in _paths(folder):
        total += 1
        try:
            line = f"ok    {path}: {_tried(path, asked)}"
        except (MXNetError, OSError, RuntimeError, MemoryError) as error:
            failed += 1
            text = " ".join(str(error).removeprefix(f"{path}: ").split()) or type(error).__name__
            line = f"error {path}: {text if len(text) <= _LONGEST else text[:_LONGEST] + ' ...'}"
        print(printable(line), flush=True)
    if not total:
        raise ArgumentError(f"{folder}: there is no model in this folder, nor in those below")
    print(f"{total - failed} of {total} models can be used")
    return 1 if failed else 0


def _paths(folder: str) -> Iterator[str]:
    """Yield what looks like a model, in the order of names: files, folders of `save_pretrained`, prefixes."""
    for place, folders, files in os.walk(folder):
        folders.sort()
        if is_pretrained(place):
            folders.clear()
            yield place
            continue
        graphs = {name.removesuffix("-symbol.json") for name in files if name.endswith("-symbol.json")}
        yield from (os.path.join(place, name) for name in sorted(files) if _is_model(place, name, graphs))


def _is_model(folder: str, name: str, graphs: set[str]) -> bool:
    """Say whether a file is to be tried: one with a graph, or one of torch beside a graph."""
    path, (stem, ending) = os.path.join(folder, name), os.path.splitext(name)
    if ending == ".json":
        return name.endswith("-symbol.json") or _is_graph(path)
    if ending == ".safetensors":
        return _has_graph(path)
    return ending in _PROGRAMS or (ending in _STATES and stem in graphs)


def _is_graph(path: str) -> bool:
    """Say whether a JSON file holds a graph; a pipe or a device counts, so that it is told."""
    try:
        with open(path, "rb", opener=regular_file) as file:
            return _GRAPH.match(file.read(99)) is not None
    except FileError:
        return True


def _has_graph(path: str) -> bool:
    """Say whether a safetensors file holds a graph; one that is damaged counts, so that it is told."""
    try:
        return checkpoint.SYMBOL in safetensors.read_metadata(path)
    except MXNetError:
        return True


def _tried(path: str, asked: list[tuple[str | None, tuple[int, ...]]]) -> str:
    """Run a model; return what is to be said about it."""
    place = find(path)
    model = _without_params(place) if place.is_graph else read(place)
    fitting = [each for each in asked if each[0] is None or each[0] in model.net.list_arguments()]
    given: Shapes = {**model.shapes, **given_shapes(model.net, fitting, model.values, 1)}
    shapes = find_shapes(model.net, given, model.values)
    outputs = random_batch(model.net, shapes, model.values).forward(is_train=False)
    bad = sum(int(np.sum(~np.isfinite(each.asnumpy().astype("f8")))) for each in outputs)
    names = [name for name in model.data_names if name in input_names(model.net, model.values)]
    inputs = ", ".join(f"{name} {shapes[name]}" for name in names)
    results = ", ".join(f"{name} {each.shape}" for name, each in zip(model.net.list_outputs(), outputs))
    count = sum(array.size for array in model.values.values())
    epoch = f" epoch {place.epoch}" if place.is_prefix else ""
    told = f"{count:,} parameters" if model.values else "no parameters, random ones"
    finite = f" ({bad} numbers not finite)" if bad else ""
    return f"{place.kind}{epoch}, {len(model.net.graph.nodes)} nodes, {told}; {inputs} -> {results}{finite}"


def _without_params(place: ModelPlace) -> Model:
    return Model(place, symbol.load(place.path), {}, {})
