"""``dpmodule check``: can this network be used here?"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .. import context, ndarray, symbol
from ..base import ArgumentError, MXNetError, Shape, dtype_name
from ..generators import host
from ..ndarray import NDArray
from ..ops.spec import LABEL
from ..symbol import Symbol
from . import options

__all__ = ["add_commands"]

_SIDES = (224, 112, 32, 28, 48, 24, 12, 64, 96, 128, 160, 256, 299, 300, 512)
"""Heights and widths of images that published networks take, in the order in which they are tried."""


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
    shapes = _find_shapes(net, dict(args.shape), values)
    names = net.list_arguments() + net.list_auxiliary_states()
    inputs = [name for name in net.list_arguments() if name in _inputs(net, values)]
    for name in inputs:
        print(f"input: {name} {shapes[name]}{'' if name in dict(args.shape) else ' (assumed)'}")
    if args.params is not None:
        _compare_names(names, inputs, values)
    bound = _random_batch(net, shapes, values)
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


def _labels(net: Symbol) -> set[str]:
    """Return the variables that operators take as labels."""
    return {
        child.name
        for node in net.graph.nodes
        if node.op is not None and node.op.variadic is None
        for (child, _), one in zip(node.inputs, node.op.wanted(node.a))
        if child.op is None and one.kind == LABEL
    }


def _inputs(net: Symbol, values: Mapping[str, NDArray]) -> set[str]:
    """Return the arguments that are data or labels: those without values, or by their place without a file."""
    if values:
        return {name for name in net.list_arguments() if name not in values}
    return {net.list_arguments()[0], *_labels(net)}


def _candidates(net: Symbol, values: Mapping[str, NDArray], name: str) -> Iterator[tuple[int, ...]]:
    """Yield shapes that an input may have: a size the network declares, images, rows of numbers."""
    first = next(
        (values[c.name].shape for node in net.graph.nodes if node.op is not None for c, _ in node.inputs
         if c.name in values and values[c.name].ndim > 1),
        None,
    )  # fmt: skip
    channels = [first[1]] if first is not None else []
    for count in (*channels, 3, 1):
        yield from ((1, count, side, side) for side in _SIDES)
    yield from ((1, count) for count in (*channels, 784, 100, 10))


def _find_shapes(
    net: Symbol, given: Mapping[str, tuple[int, ...]], values: Mapping[str, NDArray]
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every argument and auxiliary state.

    Raises:
        ArgumentError: the shape of an input must be given.
        ShapeError: a given shape contradicts the network or its parameters.
    """
    known = {**{k: v.shape for k, v in values.items() if k in net.list_arguments()}, **given}
    found = _complete(net, known)
    if found is not None:
        return found
    open_inputs = [n for n in net.list_arguments() if n in _inputs(net, values) - _labels(net) - set(given)]
    if len(open_inputs) == 1 or (open_inputs and not values):
        for shape in _candidates(net, values, open_inputs[0]):
            try:
                found = _complete(net, {**known, open_inputs[0]: shape})
            except MXNetError:
                continue
            if found is not None:
                return found
    wanted = " ".join(f"--shape {name}=..." for name in open_inputs or sorted(_labels(net)))
    raise ArgumentError(f"the shapes of the inputs do not follow from the network; give them: {wanted}")


def _complete(net: Symbol, known: Mapping[str, Shape]) -> dict[str, tuple[int, ...]] | None:
    """Return all shapes, or None if some stay unknown."""
    args, _, aux = net.infer_shape_partial(**known)
    names = net.list_arguments() + net.list_auxiliary_states()
    found = dict(zip(names, (*(args or ()), *(aux or ()))))
    if len(found) < len(names) or any(s is None or (0 in s) or not s for s in found.values()):
        return None
    return {name: tuple(shape) for name, shape in found.items() if shape is not None}


def _compare_names(names: list[str], inputs: list[str], values: Mapping[str, NDArray]) -> None:
    total = sum(values[name].size for name in names if name in values)
    print(f"parameters: {total:,} numbers in {sum(name in values for name in names)} arrays")
    for what, which in (
        ("missing", [n for n in names if n not in values and n not in inputs]),
        ("not used", [n for n in values if n not in names]),
    ):
        if which:
            print(f"parameters {what}: {', '.join(which)}")


def _random_batch(net: Symbol, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, NDArray]) -> Any:
    """Return an executor with the parameters and random inputs."""
    bound = net.simple_bind(context.cpu(), grad_req="null", **{n: shapes[n] for n in net.list_arguments()})
    random, labels = host(), _labels(net)
    for name, array in {**bound.arg_dict, **bound.aux_dict}.items():
        if name in values:
            values[name].astype(array.dtype).copyto(array)
        elif name.endswith(("gamma", "var")):
            array[:] = 1
        elif name not in labels:
            scale = max(array.size // array.shape[0], 1) ** 0.5
            array[:] = ndarray.array(random.uniform(-1, 1, array.shape) / scale)
    return bound


def _statistics(output: NDArray) -> str:
    values = output.asnumpy().astype("f8")
    bad = int(np.sum(~np.isfinite(values)))
    text = f"{output.shape} {dtype_name(output.dtype)}"
    if values.size:
        text += (
            f" min {values.min():.6g} mean {values.mean():.6g} max {values.max():.6g} std {values.std():.6g}"
        )
    return text + (f" ({bad} not finite)" if bad else "")
