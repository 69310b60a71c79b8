"""``dpmodule convert``: a model of one kind becomes one of another, and both have to compute the same."""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from .._devices.generators import host
from ..base import ArgumentError
from ..graph.node import printable
from ..symbol import Symbol
from .models import Model, ModelPlace, Shapes, exported, find, read, wanted, write
from .shapes import find_shapes, given_shapes, random_batch

_TOLERANCE = 1e-4


def run(args: argparse.Namespace) -> int:
    """Convert a model, and compare what both compute."""
    place = find(args.input, args.epoch)
    asked = {name: shape for name, shape in args.shape if name is not None}
    model = read(place, args.symbol, args.params, asked)
    target = wanted(args.output, args.to, 0 if place.epoch is None else place.epoch)
    if target == place or (
        not target.is_prefix and os.path.realpath(target.path) == os.path.realpath(place.path)
    ):
        raise ArgumentError(
            f"{args.output} is {args.input} itself; expected another place, or --to another kind"
        )
    if args.opset is not None and target.kind != "onnx":
        raise ArgumentError(f"--opset {args.opset} goes with ONNX; the output is to be {target.kind}")
    shapes = _shapes(model, args)
    print(
        f"read: {args.input} ({place.kind}), {len(model.net.graph.nodes)} nodes, {_count(model):,} parameters"
    )
    for name in model.inputs:
        print(f"input: {printable(name)} {shapes[name]}")
    files = write(model, target, shapes, args.opset)
    print(f"written: {', '.join(files)} ({target.kind})")
    return _compare_models(model, target, shapes, args.tolerance)


def _shapes(model: Model, args: argparse.Namespace) -> Shapes:
    """Return the shape of every argument: as told by the user, else by the model's files, else a usual one."""
    given = {**model.shapes, **given_shapes(model.net, args.shape, model.values, 1)}
    return find_shapes(model.net, given, model.values)


def _count(model: Model) -> int:
    return sum(array.size for array in model.values.values())


def _compare_models(model: Model, target: ModelPlace, shapes: Shapes, tolerance: float) -> int:
    """Read what was written, run both on the same data, and print how far they are apart."""
    known = {name: shapes[name] for name in model.inputs}
    again = replace(model, place=target) if runs_by_itself(target) else read(target, shapes=known)
    known |= {name: shapes[name] for name in model.label_names if name in again.net.list_arguments()}
    feed = draw(model.net, shapes, model.inputs)
    first, expected = run_model(model, shapes, feed)
    second, outputs = run_model(again, find_shapes(again.net, known, again.values), feed)
    if target.kind in ("onnx", "pt2"):  # they cannot have outputs that are computed from labels
        kept = model.predictions.list_outputs()
        expected = [array for name, array in zip(model.net.list_outputs(), expected) if name in kept]
    found = compare(expected, outputs)
    is_close = found.fits(tolerance)
    print(
        f"largest difference: {found.largest:.3g} among {found.numbers:,} numbers up to {found.scale:.3g} "
        f"({first} against {second}), {'within' if is_close else 'beyond'} the tolerance {tolerance:g}"
    )
    return 0 if is_close else 1


Arrays = dict[str, np.ndarray[Any, Any]]
Outputs = list[np.ndarray[Any, Any]]

_INDEXED = {"Embedding": (0, 1), "take": (1, 0), "one_hot": (0, None)}
"""Operators that look something up: which input has the numbers, and which one has as many rows as they may count."""

_ONNX_TYPES = {"tensor(float)": "float32", "tensor(double)": "float64"}


class Difference(NamedTuple):
    """How far outputs are apart."""

    largest: float
    """The largest difference of two numbers; infinity where one is not finite and the other differs."""
    scale: float
    """The largest number among the outputs, at least 1."""
    numbers: int

    def fits(self, tolerance: float) -> bool:
        """Say whether the outputs agree to a tolerance, relative to the largest number where that is above 1."""
        return self.largest <= tolerance * self.scale


def draw(net: Symbol, shapes: Mapping[str, tuple[int, ...]], names: list[str]) -> Arrays:
    """Return random values of inputs: from -1 to 1, and small whole numbers for those that look something up.

    Args:
        shapes: shape of every argument.
    """
    random = host()
    rows: dict[str, int] = {}
    for node in net.graph.nodes:
        numbers, table = _INDEXED.get("" if node.op is None else node.op.name, (None, None))
        if numbers is not None and node.inputs[numbers][0].name in names:
            count = 2 if table is None else shapes[node.inputs[table][0].name][0]
            name = node.inputs[numbers][0].name
            rows[name] = min(count, rows.get(name, count))
    return {
        name: random.randint(0, rows[name], shapes[name]).astype("float32")
        if name in rows
        else random.uniform(-1, 1, shapes[name]).astype("float32")
        for name in names
    }


def runs_by_itself(place: ModelPlace) -> bool:
    """Say whether what runs a file here is another library, which needs nothing but the file."""
    return place.kind == "pt2" or (place.kind == "onnx" and _onnx_runtime() is not None)


def _onnx_runtime() -> Any:
    try:
        return importlib.import_module("onnxruntime")
    except ImportError:
        return None


def run_model(model: Model, shapes: Mapping[str, tuple[int, ...]], feed: Arrays) -> tuple[str, Outputs]:
    """Run a model on inputs by what its kind is made for; return what that was, and the outputs.

    Args:
        shapes: shape of every argument.
    """
    if model.place.kind == "pt2":
        return "torch", _run_exported(model, feed)
    if runs_by_itself(model.place):
        return "ONNX Runtime", _run_onnx(model.place.path, feed)
    missing = ", as onnxruntime is not installed" if model.place.kind == "onnx" else ""
    return f"dpmodule{missing}", _run_here(model, shapes, feed)


def _run_here(model: Model, shapes: Mapping[str, tuple[int, ...]], feed: Arrays) -> Outputs:
    bound = random_batch(model.net, shapes, model.values)
    for name, values in feed.items():
        bound.arg_dict[name][:] = values
    return [each.asnumpy() for each in bound.forward(is_train=False)]


def _run_exported(model: Model, feed: Arrays) -> Outputs:
    program = exported(model.place.path)
    inputs = [node for node in program.graph.nodes if node.name in program.graph_signature.user_inputs]
    names = [node.name for node in inputs]
    if set(names) != set(feed):
        names = model.inputs
    values = [torch.from_numpy(feed[name]).to(node.meta["val"].dtype) for name, node in zip(names, inputs)]
    with torch.no_grad():
        found = program.module()(*values)
    return [each.numpy() for each in (found if isinstance(found, (tuple, list)) else [found])]


def _run_onnx(path: str, feed: Arrays) -> Outputs:
    session = _onnx_runtime().InferenceSession(path, providers=["CPUExecutionProvider"])
    wanted = {each.name: _ONNX_TYPES.get(each.type, each.type[7:-1]) for each in session.get_inputs()}
    missing = [name for name in wanted if name not in feed]
    if missing:
        raise ArgumentError(f"{path} has inputs {', '.join(missing)} that the other side has not")
    outputs: Outputs = session.run(None, {name: feed[name].astype(kind) for name, kind in wanted.items()})
    return outputs


def compare(one: Outputs, other: Outputs) -> Difference:
    """Return how far the outputs of two models are apart."""
    shapes = [[each.shape for each in side] for side in (one, other)]
    if shapes[0] != shapes[1]:
        raise ArgumentError(
            f"the outputs have the shapes {shapes[0]} on one side and {shapes[1]} on the other"
        )
    largest, scale = 0.0, 1.0
    for a, b in zip(one, other):
        left, right = a.astype("float64"), b.astype("float64")
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        with np.errstate(invalid="ignore"):
            apart = np.where(same, 0.0, np.abs(left - right))
        largest = max(largest, float(np.where(np.isnan(apart), np.inf, apart).max(initial=0)))
        scale = max(scale, float(np.abs(left[np.isfinite(left)]).max(initial=0)))
    return Difference(largest, scale, sum(each.size for each in one))
