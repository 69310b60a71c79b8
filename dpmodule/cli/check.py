"""``dpmodule check``: can this network be used here?"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import ndarray, symbol
from ..base import ArgumentError, dtype_name
from ..ndarray import NDArray
from . import options
from .shapes import find_shapes, input_names, random_batch

__all__ = ["add_commands"]


def add_commands(commands: Any) -> None:
    """Add ``check`` to the subcommands of the command line."""
    parser = commands.add_parser(
        "check",
        help="load a saved network and run a random batch",
        description="Load a network, list its operators, infer shapes, run a random batch and print what comes out.",
    )
    parser.set_defaults(run=_check)
    parser.add_argument("symbol", metavar="NET-symbol.json", help="the graph")
    parser.add_argument(
        "params", metavar="NET.params", nargs="?", help="its parameters (default: random ones)"
    )
    parser.add_argument(
        "--shape",
        type=options.named_shape,
        action="append",
        default=[],
        metavar="NAME=N,C,H,W",
        help="shape of an input, once for each (default: as the graph says, or a usual size that fits)",
    )


def _check(args: argparse.Namespace) -> int:
    net = symbol.load(args.symbol)
    counts = Counter(node.op.name for node in net.graph.nodes if node.op is not None)
    print(f"{args.symbol}: {len(net.graph.nodes)} nodes")
    print(
        "operators:", ", ".join(f"{name} {count}" for name, count in sorted(counts.items())), "(none missing)"
    )
    values = _parameters(args.params)
    shapes = find_shapes(net, dict(args.shape), values)
    names = net.list_arguments() + net.list_auxiliary_states()
    inputs = [name for name in net.list_arguments() if name in input_names(net, values)]
    for name in inputs:
        print(f"input: {name} {shapes[name]}{'' if name in dict(args.shape) else ' (assumed)'}")
    if args.params is not None:
        _compare_names(names, inputs, values)
    bound = random_batch(net, shapes, values)
    for name, output in zip(net.list_outputs(), bound.forward(is_train=False)):
        print(f"output: {name} {_statistics(output)}")
    return 0


def _parameters(path: str | None) -> dict[str, NDArray]:
    """Return what a file holds by bare name; nothing without a file."""
    if path is None:
        return {}
    found = ndarray.load(path)
    if not isinstance(found, dict):
        raise ArgumentError(f"{path} holds a list of arrays without names, expected those of a checkpoint")
    return {key.split(":", 1)[-1]: value for key, value in found.items()}


def _compare_names(names: list[str], inputs: list[str], values: Mapping[str, NDArray]) -> None:
    total = sum(values[name].size for name in names if name in values)
    print(f"parameters: {total:,} numbers in {sum(name in values for name in names)} arrays")
    for what, which in (
        ("missing", [n for n in names if n not in values and n not in inputs]),
        ("not used", [n for n in values if n not in names]),
    ):
        if which:
            print(f"parameters {what}: {', '.join(which)}")


def _statistics(output: NDArray) -> str:
    values = output.asnumpy().astype("f8")
    bad = int(np.sum(~np.isfinite(values)))
    text = f"{output.shape} {dtype_name(output.dtype)}"
    if values.size:
        text += (
            f" min {values.min():.6g} mean {values.mean():.6g} max {values.max():.6g} std {values.std():.6g}"
        )
    return text + (f" ({bad} not finite)" if bad else "")
