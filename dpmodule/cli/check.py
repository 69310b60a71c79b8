"""``dpmodule check``: can this network be used here?"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..base import ArgumentError, dtype_name
from ..graph.node import printable
from ..ndarray import NDArray
from . import options, saved
from .check_folder import check_folder
from .check_program import check_program
from .kinds import is_pretrained
from .shapes import find_shapes, given_shapes, input_lines, input_names, random_batch


def add_commands(commands: Any) -> None:
    """Add ``check`` to the subcommands of the command line."""
    parser = commands.add_parser(
        "check",
        help="load a saved network, or all in a folder, and run a random batch",
        description="Load a network, list its operators, infer shapes, run a random batch and print what comes out. "
        "If NET is a folder of models, try each of them and print a line for each; the exit status is 1 if one cannot "
        "be used, and of --program if a line needs work.",
    )
    parser.add_argument(
        "--program",
        type=options.input_file,
        metavar="FILE",
        help="in place of NET, a Python program for MXNet, DyNet, Paddle's fluid or ParlAI: prints the lines that need "
        "work and what to do, and runs nothing (default: none)",
    )
    parser.set_defaults(run=_check)
    saved.add_arguments(parser, "none, NET must be given")
    options.add_input_shapes(parser)


def _check(args: argparse.Namespace) -> int:
    if args.program is not None:
        return _check_program(args)
    if args.net is not None and os.path.isdir(args.net) and not is_pretrained(args.net):
        return check_folder(args.net, args.shape)
    found = saved.find(args)
    net, values = found.net, found.values
    counts = Counter(node.op.name for node in net.graph.nodes if node.op is not None)
    print(f"{found.title}: {len(net.graph.nodes)} nodes")
    print(
        "operators:", ", ".join(f"{name} {count}" for name, count in sorted(counts.items())), "(none missing)"
    )
    given = given_shapes(net, args.shape, values, 1)
    shapes = find_shapes(net, given, values)
    names = net.list_arguments() + net.list_auxiliary_states()
    inputs = [name for name in net.list_arguments() if name in input_names(net, values)]
    print("\n".join(input_lines(net, inputs, shapes, given, values, found.comes_along)))
    if found.params_file is not None:
        _compare_names(names, inputs, values)
    bound = random_batch(net, shapes, values)
    for name, output in zip(net.list_outputs(), bound.forward(is_train=False)):
        print(f"output: {printable(name)} {_statistics(output)}")
    return 0


def _check_program(args: argparse.Namespace) -> int:
    others = [args.net, args.params, args.prefix, args.symbol, args.params_option, args.epoch, *args.shape]
    if any(each is not None for each in others):
        raise ArgumentError(f"--program {args.program} and a network are given, expected one of them")
    return check_program(args.program)


def _compare_names(names: list[str], inputs: list[str], values: Mapping[str, NDArray]) -> None:
    total = sum(values[name].size for name in names if name in values)
    print(f"parameters: {total:,} numbers in {sum(name in values for name in names)} arrays")
    for what, which in (
        ("missing", [n for n in names if n not in values and n not in inputs]),
        ("not used", [n for n in values if n not in names]),
    ):
        if which:
            print(f"parameters {what}: {printable(', '.join(which))}")


def _statistics(output: NDArray) -> str:
    values = output.asnumpy().astype("f8")
    bad = int(np.sum(~np.isfinite(values)))
    text = f"{output.shape} {dtype_name(output.dtype)}"
    if values.size:
        text += (
            f" min {values.min():.6g} mean {values.mean():.6g} max {values.max():.6g} std {values.std():.6g}"
        )
    return text + (f" ({bad} not finite)" if bad else "")
