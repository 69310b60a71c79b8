"""``dpmodule convert`` and ``im2rec``: a model becomes one of another kind, a folder of pictures a record file."""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import IO, Any, NamedTuple

import numpy as np
import torch

from .._devices.generators import host
from .._files import write_atomically, write_set
from ..base import ArgumentError
from ..graph.node import printable
from ..recordio.folder import ImageEncoding, Picture, find_pictures, split_pictures, write_pictures
from ..symbol import Symbol
from .models import Model, ModelLocation, Shapes, check_complete, exported, find, read, wanted, write
from .saved_files import temporary_folder
from .shapes import LENGTHS, find_shapes, given_shapes, ragged_inputs, ragged_values, random_batch

_TOLERANCE = 1e-4


def convert(args: argparse.Namespace) -> int:
    """Convert a model, and compare the outputs of both models."""
    location = find(args.input, args.epoch)
    asked = {name: shape for name, shape in args.shape if name is not None}
    model = read(location, args.symbol, args.params, asked)
    target = wanted(args.output, args.to, 0 if location.epoch is None else location.epoch)
    if target == location or (
        not target.is_prefix and os.path.realpath(target.path) == os.path.realpath(location.path)
    ):
        raise ArgumentError(
            f"{args.output} is the input {args.input}; choose another output, or another kind with --to"
        )
    if args.opset is not None and target.kind != "onnx":
        raise ArgumentError(f"--opset {args.opset} is for ONNX outputs, but the output is {target.kind}")
    check_complete(model)
    shapes = _shapes(model, args)
    print(
        f"read: {args.input} ({location.kind}), {len(model.net.graph.nodes)} nodes, "
        f"{sum(array.size for array in model.values.values()):,} parameters"
    )
    for name in model.inputs:
        print(f"input: {printable(name)} {shapes[name]}")
    if not args.check:
        _print_written(write(model, target, shapes, args.opset), target)
        return 0
    with temporary_folder() as folder:
        result, staged = _write_and_compare(model, target, shapes, args.opset, folder)
        _print_written(_publish(model, target, shapes, staged), target)
    is_within = result.difference.is_within(args.tolerance)
    print(f"{result}, {'within' if is_within else 'beyond'} the tolerance {args.tolerance:g}")
    return 0 if is_within else 1


def _print_written(files: list[str], target: ModelLocation) -> None:
    print(f"written: {', '.join(files)} ({target.kind})")


class Comparison(NamedTuple):
    """Difference between the outputs of a model and of its conversion, and the libraries that computed them."""

    difference: Difference
    libraries: tuple[str, str]

    def __str__(self) -> str:
        largest, scale, numbers = self.difference
        return (
            f"largest difference: {largest:.3g} among {numbers:,} numbers up to {scale:.3g} "
            f"({self.libraries[0]} against {self.libraries[1]})"
        )


def try_conversion(model: Model, kind: str, shapes: Shapes) -> Comparison:
    """Convert a model to a file of a kind in a temporary folder, and compare the outputs of both.

    Args:
        shapes: shape of every argument.
    """
    with temporary_folder() as folder:
        return _write_and_compare(model, ModelLocation(kind, f"model.{kind}"), shapes, None, folder)[0]


def _write_and_compare(
    model: Model, target: ModelLocation, shapes: Shapes, opset: int | None, folder: str
) -> tuple[Comparison, list[str]]:
    """Write a model into a folder, and compare the outputs of both; return the files."""
    name = os.path.basename(os.path.abspath(target.path)) or "model"
    staged = target._replace(path=os.path.join(folder, name))
    files = write(model, staged, shapes, opset)
    return _compare_outputs(model, staged, shapes), files


def _publish(model: Model, target: ModelLocation, shapes: Shapes, staged: list[str]) -> list[str]:
    """Write a model whose conversion has been compared; return the files."""
    if not has_own_format(target):
        return write(model, target, shapes, None)
    folder = os.path.dirname(target.path)
    os.makedirs(folder or ".", exist_ok=True)
    moves = {os.path.join(folder, os.path.basename(path)): path for path in staged}
    if os.path.exists(target.path) and not os.path.isfile(target.path):  # a pipe or a device
        write_atomically(target.path, partial(_copy, moves[target.path]))
    else:
        write_set(
            {path: partial(_copy, source) for path, source in moves.items()}, os.path.basename(target.path)
        )
    return list(moves)


def _copy(path: str, file: IO[bytes]) -> None:
    with open(path, "rb") as source:
        shutil.copyfileobj(source, file, 1 << 20)


def _shapes(model: Model, args: argparse.Namespace) -> Shapes:
    """Return the shape of every argument: from the user, else from the model's files, else a common one."""
    given = {**model.shapes, **given_shapes(model.net, args.shape, model.values, 1)}
    return find_shapes(model.net, given, model.values)


def _compare_outputs(model: Model, target: ModelLocation, shapes: Shapes) -> Comparison:
    """Read a written model, and run both models on the same data."""
    known = {name: shapes[name] for name in model.inputs}
    converted = replace(model, location=target) if has_own_runtime(target) else read(target, shapes=known)
    known |= {name: shapes[name] for name in model.label_names if name in converted.net.list_arguments()}
    feed = random_inputs(model.net, shapes, model.inputs)
    first, expected = run_model(model, shapes, feed)
    second, outputs = run_model(converted, find_shapes(converted.net, known, converted.values), feed)
    if has_own_format(target):  # these kinds have no outputs that are computed from labels
        kept = model.predictions.list_outputs()
        expected = [array for name, array in zip(model.net.list_outputs(), expected) if name in kept]
    return Comparison(compare(expected, outputs), (first, second))


Arrays = dict[str, np.ndarray[Any, Any]]
Outputs = list[np.ndarray[Any, Any]]

_LOOKUPS = {"Embedding": (0, 1), "take": (1, 0), "one_hot": (0, None)}
"""Operators that look up rows: position of the index input, and of the table."""

_ONNX_TYPES = {"tensor(float)": "float32", "tensor(double)": "float64"}


class Difference(NamedTuple):
    """Difference between the outputs of two models."""

    largest: float
    """Largest absolute difference; infinity if one number is not finite and the other differs."""
    scale: float
    """Largest absolute output, at least 1."""
    numbers: int

    def is_within(self, tolerance: float) -> bool:
        """Return True if the difference is within a tolerance, relative to `scale`."""
        return self.largest <= tolerance * self.scale


def random_inputs(net: Symbol, shapes: Mapping[str, tuple[int, ...]], names: list[str]) -> Arrays:
    """Return random values of inputs: from -1 to 1, or valid indices for inputs of look-ups.

    Args:
        shapes: shape of every argument.

    Returns:
        Arrays by name; of a ragged input, the elements of all rows, and the lengths under its name and `LENGTHS`.
    """
    random = host()
    rows: dict[str, int] = {}
    for node in net.graph.nodes:
        numbers, table = _LOOKUPS.get("" if node.op is None else node.op.name, (None, None))
        if numbers is not None and node.inputs[numbers][0].name in names:
            count = 2 if table is None else shapes[node.inputs[table][0].name][0]
            name = node.inputs[numbers][0].name
            rows[name] = min(count, rows.get(name, count))
    feed: Arrays = {}
    ragged = ragged_inputs(net)
    for name in names:
        shape = shapes[name]
        if name in ragged:
            lengths = feed[f"{name}{LENGTHS}"] = random.randint(1, 6, shape[:1])
            shape = (int(lengths.sum()), *shape[1:])
        drawn = random.randint(0, rows[name], shape) if name in rows else random.uniform(-1, 1, shape)
        feed[name] = drawn.astype("float32")
    return feed


def has_own_format(location: ModelLocation) -> bool:
    """Return True if a file has another graph than the network's."""
    return location.kind in ("onnx", "pt2")


def has_own_runtime(location: ModelLocation) -> bool:
    """Return True if another library runs the file, and needs only the file."""
    return location.kind == "pt2" or (location.kind == "onnx" and _onnx_runtime() is not None)


def _onnx_runtime() -> Any:
    try:
        return importlib.import_module("onnxruntime")
    except ImportError:
        return None


def run_model(model: Model, shapes: Mapping[str, tuple[int, ...]], feed: Arrays) -> tuple[str, Outputs]:
    """Run a model on inputs with the library of its kind; return the name of the library, and the outputs.

    Args:
        shapes: shape of every argument.
    """
    if model.location.kind == "pt2":
        return "torch", _run_exported(model, feed)
    if has_own_runtime(model.location):
        return "ONNX Runtime", _run_onnx(model.location.path, feed)
    missing = ", as onnxruntime is not installed" if model.location.kind == "onnx" else ""
    return f"dpmodule{missing}", _run_here(model, shapes, feed)


def _run_here(model: Model, shapes: Mapping[str, tuple[int, ...]], feed: Arrays) -> Outputs:
    bound = random_batch(model.net, shapes, model.values)
    ragged = ragged_inputs(model.net)
    for name in bound.arg_dict.keys() & feed.keys():
        lengths = feed[f"{name}{LENGTHS}"] if name in ragged else None
        bound.arg_dict[name][:] = feed[name] if lengths is None else ragged_values(feed[name], lengths)
    return [each.asnumpy() for each in bound.forward(is_train=False)]


def _run_exported(model: Model, feed: Arrays) -> Outputs:
    program = exported(model.location.path)
    inputs = [node for node in program.graph.nodes if node.name in program.graph_signature.user_inputs]
    names = [node.name for node in inputs]
    if set(names) != set(feed):
        names = model.inputs
    values = [torch.from_numpy(feed[name]).to(node.meta["val"].dtype) for name, node in zip(names, inputs)]
    with torch.no_grad():
        outputs = program.module()(*values)
    return [each.numpy() for each in (outputs if isinstance(outputs, (tuple, list)) else [outputs])]


def _run_onnx(path: str, feed: Arrays) -> Outputs:
    session = _onnx_runtime().InferenceSession(path, providers=["CPUExecutionProvider"])
    wanted = {each.name: _ONNX_TYPES.get(each.type, each.type[7:-1]) for each in session.get_inputs()}
    missing = [name for name in wanted if name not in feed]
    if missing:
        raise ArgumentError(f"{path} has inputs {', '.join(missing)}, which the other model lacks")
    outputs: Outputs = session.run(None, {name: feed[name].astype(kind) for name, kind in wanted.items()})
    return outputs


def compare(one: Outputs, other: Outputs) -> Difference:
    """Return the difference between the outputs of two models."""
    shapes = [[each.shape for each in side] for side in (one, other)]
    if shapes[0] != shapes[1]:
        raise ArgumentError(
            f"the outputs of the two models have different shapes: {shapes[0]} and {shapes[1]}"
        )
    largest, scale = 0.0, 1.0
    for a, b in zip(one, other):
        left, right = a.astype("float64"), b.astype("float64")
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        with np.errstate(invalid="ignore"):
            distance = np.where(same, 0.0, np.abs(left - right))
        largest = max(largest, float(np.where(np.isnan(distance), np.inf, distance).max(initial=0)))
        scale = max(scale, float(np.abs(left[np.isfinite(left)]).max(initial=0)))
    return Difference(largest, scale, sum(each.size for each in one))


# im2rec

_MAX_PRINTED = 10
"""Largest number of classes, and of unusable pictures, that are printed."""


def im2rec(args: argparse.Namespace) -> int:
    """Pack a folder of pictures into a record file; return 1 if some cannot be read."""
    prefixes = _output_prefixes(args)
    if not args.overwrite:
        _check_absent(prefixes)
    classes, pictures = find_pictures(args.folder)
    _print_classes(classes, pictures)
    both = split_pictures(pictures, args.train_ratio, args.seed if args.shuffle else None)
    chosen = dict(zip(prefixes, both))
    for prefix, rows in chosen.items():
        if not rows:
            raise ArgumentError(
                f"--train-ratio {args.train_ratio:g} leaves no picture for {prefix}.rec; choose another ratio"
            )
    os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
    unusable = write_pictures(args.folder, chosen, ImageEncoding(args.resize, args.quality), args.threads)
    for prefix, rows in chosen.items():
        count = sum(row.path not in unusable for row in rows)
        print(
            f"written: {prefix}.rec ({os.path.getsize(f'{prefix}.rec'):,} bytes, {count} pictures), .idx and .lst"
        )
    _print_unusable(list(unusable.values()))
    return 1 if unusable else 0


def _output_prefixes(args: argparse.Namespace) -> list[str]:
    """Return the prefixes to write."""
    if not os.path.basename(args.out):
        raise ArgumentError(
            f"OUT is {args.out!r}, a folder; expected a path without extension, such as data/pictures"
        )
    return [args.out] if args.train_ratio == 1 else [f"{args.out}_train", f"{args.out}_val"]


def _check_absent(prefixes: Sequence[str]) -> None:
    existing = [
        path
        for prefix in prefixes
        for path in (f"{prefix}.rec", f"{prefix}.idx", f"{prefix}.lst")
        if os.path.exists(path)
    ]
    if existing:
        raise ArgumentError(f"{existing[0]} already exists; choose another OUT, or add --overwrite")


def _print_classes(classes: Sequence[str], pictures: Sequence[Picture]) -> None:
    counts = [0] * len(classes)
    for picture in pictures:
        counts[picture.label] += 1
    for label, kind in enumerate(classes[:_MAX_PRINTED]):
        print(f"class {label}: {kind}, {counts[label]} pictures")
    if len(classes) > _MAX_PRINTED:
        print(f"... {len(classes)} classes, {len(pictures)} pictures")


def _print_unusable(reasons: Sequence[str]) -> None:
    for reason in reasons[:_MAX_PRINTED]:
        print(f"skipped: {reason}", file=sys.stderr)
    if len(reasons) > _MAX_PRINTED:
        print(f"... {len(reasons)} pictures are skipped", file=sys.stderr)
