"""``dpmodule explain``: what a network's program does, what it costs, and how long it takes."""

from __future__ import annotations

import argparse
import os
from typing import Any

from .. import context
from ..executor import passes
from . import options, saved
from .shapes import find_shapes, given_shapes, input_lines, input_names, random_batch

_PASSES = [each.name for each in passes.PASSES]

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
    saved.add_arguments(parser, "none, NET must be given", by_name=True)
    options.add_input_shapes(parser)
    parser.add_argument("--train", action="store_true", help="explain training (default: prediction)")
    parser.add_argument("--times", action="store_true", help="measure the time of every step (default: no)")
    parser.add_argument(
        "--measure-memory", action="store_true", help="measure the memory of a run (default: estimate it)"
    )
    parser.add_argument(
        "--source", action=argparse.BooleanOptionalAction, default=True, help="print the source (default)"
    )
    parser.add_argument(
        "--disable",
        type=_passes,
        default=[],
        metavar="PASS,...",
        help=f"switch passes off: {', '.join(_PASSES)} (default: none)",
    )
    parser.add_argument(
        "--context", type=options.device, default=context.cpu(), help="where it runs (default: cpu(0))"
    )


def _passes(text: str) -> list[str]:
    """Read names of passes, separated by commas."""
    names = [name.strip() for name in text.split(",")]
    if not set(names) <= set(_PASSES):
        raise argparse.ArgumentTypeError(f"{text!r}, expected some of {', '.join(_PASSES)}")
    return names


def _explain(args: argparse.Namespace) -> int:
    found = saved.find(args)
    net, values = found.net, found.values
    given = given_shapes(net, args.shape, values, 1)
    shapes = find_shapes(net, given, values, guess=bool(values))
    inputs = input_names(net, values) | set(given)
    parameters = [name for name in net.list_arguments() if name not in inputs]
    shown = [name for name in net.list_arguments() if name in inputs]
    print("\n".join(input_lines(net, shown, shapes, given, values, found.comes_along)))
    wanted = {name: "write" if args.train and name in parameters else "null" for name in net.list_arguments()}
    if args.measure_memory:
        os.environ.setdefault("KINETO_LOG_LEVEL", _QUIET)
    with passes.disabled(*args.disable):
        bound = random_batch(net, shapes, values, wanted, args.context)
        if args.times:
            bound.forward(is_train=args.train)
        plan = bound.explain(args.train, args.times, args.measure_memory, parameters)
        print(plan if args.source else plan.summary)
    return 0
