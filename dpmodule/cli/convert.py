"""``dpmodule convert``: a model of one kind becomes one of another, and both have to compute the same."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from typing import Any

from ..base import ArgumentError
from ..graph.node import printable
from . import options
from .compare import compare, draw, run, runs_by_itself
from .kinds import KINDS, ModelPlace, find, wanted
from .models import Model, Shapes, read, write
from .shapes import find_shapes, given_shapes

_TOLERANCE = 1e-4


def add_commands(commands: Any) -> None:
    """Add ``convert`` to the subcommands of the command line."""
    kinds = "; ".join(f"{name}: {what}" for name, what in KINDS.items())
    parser = commands.add_parser(
        "convert",
        help="turn a model into another kind: MXNet, ONNX, safetensors, folder, torch",
        description="Turn a model into one of another kind, run both on random data, and print the largest difference. "
        f"Kinds are {kinds}. What IN is, its content tells.",
    )
    parser.set_defaults(run=_convert)
    parser.add_argument(
        "input",
        metavar="IN",
        type=options.filled,
        help="file, folder, or prefix of a checkpoint (default: none, it must be given)",
    )
    parser.add_argument(
        "output",
        metavar="OUT",
        type=options.filled,
        help="what to write: .onnx, .safetensors, .pt2 and .pt are those kinds, a folder that is there, or a name that "
        "ends in a slash, is a folder, others are prefixes, see --to (default: none, it must be given)",
    )
    parser.add_argument("--to", choices=sorted(KINDS), help="kind of OUT (default: as its name tells)")
    for option, what in (("--symbol", "graph"), ("--params", "parameters")):
        parser.add_argument(
            option,
            type=options.input_file,
            metavar="FILE",
            help=f"{what} of IN (default: IN itself, or what lies beside it)",
        )
    parser.add_argument(
        "--epoch", type=options.epoch, help="epoch of IN, if it is a prefix (default: the last one)"
    )
    options.add_input_shapes(parser)
    parser.add_argument(
        "--opset", type=options.whole(1, 99), help="version of ONNX's operators (default: 17)"
    )
    parser.add_argument(
        "--tolerance",
        type=options.finite("a number from 0", lambda number: number >= 0),
        default=_TOLERANCE,
        help="largest difference, relative to the largest output if that is above 1 "
        f"(default: {_TOLERANCE:g}; beyond, the exit status is 1)",
    )


def _convert(args: argparse.Namespace) -> int:
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
    return _compare(model, target, shapes, args.tolerance)


def _shapes(model: Model, args: argparse.Namespace) -> Shapes:
    """Return the shape of every argument: as told by the user, else by the model's files, else a usual one."""
    given = {**model.shapes, **given_shapes(model.net, args.shape, model.values, 1)}
    return find_shapes(model.net, given, model.values)


def _count(model: Model) -> int:
    return sum(array.size for array in model.values.values())


def _compare(model: Model, target: ModelPlace, shapes: Shapes, tolerance: float) -> int:
    """Read what was written, run both on the same data, and print how far they are apart."""
    known = {name: shapes[name] for name in model.inputs}
    again = replace(model, place=target) if runs_by_itself(target) else read(target, shapes=known)
    known |= {name: shapes[name] for name in model.label_names if name in again.net.list_arguments()}
    feed = draw(model.net, shapes, model.inputs)
    first, expected = run(model, shapes, feed)
    second, outputs = run(again, find_shapes(again.net, known, again.values), feed)
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
