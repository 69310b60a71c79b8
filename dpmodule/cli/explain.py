"""``dpmodule explain``: what a network's program does, what it costs, and how long it takes."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from .. import checkpoint, context, symbol
from ..base import ArgumentError
from ..executor import passes
from ..symbol import Symbol
from . import networks, options
from .shapes import find_shapes, input_names, random_batch

__all__ = ["add_commands"]

_SAMPLE = (1, 8, 8)
"""Shape of a sample for one of the networks that come along, as in ``dpmodule summary``."""

_QUIET = "6"
"""Level of torch's profiler at which it does not tell that it starts and stops."""


def add_commands(commands: Any) -> None:
    """Add ``explain`` to the subcommands of the command line."""
    parser = commands.add_parser(
        "explain",
        help="print the plan by which a network runs: source, passes, steps, FLOPs, memory, times",
        description="Print the generated source of a network, which passes fired, and a table of its steps with "
        "shapes, parameters, floating point operations and memory; with --times also how long each step takes.",
    )
    parser.set_defaults(run=_explain)
    parser.add_argument(
        "net",
        metavar="NET",
        help=f"a -symbol.json, the prefix of a saved network, or one of {', '.join(sorted(networks.NETWORKS))}",
    )
    parser.add_argument(
        "--shape",
        type=options.named_shape,
        action="append",
        default=[],
        metavar="NAME=N,C,H,W",
        help="shape of an input, once for each (default: as the graph says, or a usual size that fits)",
    )
    parser.add_argument("--train", action="store_true", help="explain training instead of prediction")
    parser.add_argument("--times", action="store_true", help="measure the time of every step")
    parser.add_argument(
        "--measure-memory", action="store_true", help="measure the memory of a run instead of estimating it"
    )
    parser.add_argument(
        "--source", action=argparse.BooleanOptionalAction, default=True, help="print the source (default)"
    )
    parser.add_argument(
        "--disable",
        default="",
        metavar="PASS,...",
        help=f"switch passes off: {', '.join(each.name for each in passes.PASSES)}",
    )
    parser.add_argument(
        "--context", type=options.contexts, default=[context.cpu()], help="where it runs (default: cpu(0))"
    )


def _explain(args: argparse.Namespace) -> int:
    net, given = _network(args.net, dict(args.shape))
    asked = {name for name, _ in args.shape}
    unknown = sorted(set(given) - set(net.list_arguments()))
    if unknown:
        raise ArgumentError(
            f"--shape names {', '.join(unknown)}, expected some of {', '.join(net.list_arguments())}"
        )
    if len(args.context) != 1:
        raise ArgumentError(f"--context is {args.context}, expected one device")
    shapes = find_shapes(net, given, {})
    inputs = input_names(net, {}) | set(given)
    parameters = [name for name in net.list_arguments() if name not in inputs]
    for name in net.list_arguments():
        if name in inputs:
            print(f"input: {name} {shapes[name]}{'' if name in asked else ' (assumed)'}")
    wanted = {name: "write" if args.train and name in parameters else "null" for name in net.list_arguments()}
    if args.measure_memory:
        os.environ.setdefault("KINETO_LOG_LEVEL", _QUIET)
    with passes.disabled(*args.disable.split(",")):
        bound = random_batch(net, shapes, {}, wanted, args.context[0])
        if args.times:
            bound.forward(is_train=args.train)
        found = bound.explain(args.train, args.times, args.measure_memory, parameters)
        print(found if args.source else found.summary)
    return 0


def _network(name: str, given: dict[str, tuple[int, ...]]) -> tuple[Symbol, dict[str, tuple[int, ...]]]:
    """Return a network by the name of its file, by its prefix, or one of those that come along; and known shapes.

    Raises:
        OSError: there is no such file.
    """
    if name in networks.NETWORKS:
        shapes = {"data": (1, *_SAMPLE), **given}
        return networks.build(name, shapes["data"][1:], 10), shapes
    return symbol.load(name if Path(name).is_file() else checkpoint.symbol_file(name)), given
