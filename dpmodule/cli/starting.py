"""What ``dpmodule fit`` starts from: a network, and samples and labels that fit it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .. import checkpoint, symbol
from ..base import ArgumentError
from ..module import Module
from ..ndarray import NDArray
from ..symbol import Symbol
from . import data, networks
from .data import Samples
from .saved import SavedNetwork, split_values
from .shapes import data_input, fitted, inferred


@dataclass(frozen=True)
class Start:
    """A network, its parameters if it has been trained before, and samples in the shape that it takes."""

    net: Symbol
    values: Mapping[str, NDArray]
    """Parameters and auxiliary states by name; empty to initialize them."""
    parts: Sequence[Samples]
    """The samples for training and, if there are some, those for validation."""
    data_name: str
    label_name: str
    shapes: Mapping[str, tuple[int, ...]]
    """Shapes of all arguments that are known."""


def first_epoch(args: argparse.Namespace) -> int:
    """Return the number of the first epoch."""
    saved = checkpoint.epochs(args.prefix) if args.resume and not args.overwrite else []
    if saved and saved[-1] > args.epochs:
        raise ArgumentError(
            f"--resume and --epochs {args.epochs}: epoch {saved[-1]} is saved under the prefix {args.prefix!r}; give "
            "--epochs at least that number, or another --prefix"
        )
    if args.load_epoch is None:
        return 0
    epoch = int(args.load_epoch)
    if epoch >= args.epochs:
        raise ArgumentError(
            f"--load-epoch {args.load_epoch} and --epochs {args.epochs} leave nothing to do: {epoch} epochs are done, "
            "and --epochs is the number of the last one"
        )
    return epoch


def preload(module: Module, args: argparse.Namespace, values: Mapping[str, NDArray]) -> None:
    """Give a module the parameters and the optimizer's states that ``--load-epoch`` goes on from.

    Args:
        values: parameters and auxiliary states by name; empty to initialize them.
    """
    if not values:
        return
    states = checkpoint.states_file(args.prefix, args.load_epoch)
    there = os.path.exists(states)
    if not there:
        print(f"note: there is no {states}, so the optimizer starts anew", file=sys.stderr)
    module.preload(*split_values(module.symbol, values), states if there else None)


def choose(args: argparse.Namespace, loaded: SavedNetwork | None, parts: Sequence[Samples]) -> Start:
    """Return the network that the options name, with samples that fit it.

    Args:
        loaded: what ``--load-epoch`` has loaded, None without it.
        parts: the samples for training and, if there are some, those for validation.
    """
    values: Mapping[str, NDArray] = {}
    if loaded is None:
        net = _named(args, parts)
    else:
        net, values = loaded.net, loaded.values
    data_name, label_name = data_input(net, values), _label(net)
    batch = min(args.batch_size, len(parts[0].x))
    parts = [fitted(samples, net, values, batch) for samples in parts]
    if loaded is not None:
        _check_same(args, loaded, parts)
    shapes, outputs = inferred(net, values, {data_name: (batch, *parts[0].x.shape[1:])})
    _check_labels(args, parts, outputs)
    return Start(net, values, parts, data_name, label_name, shapes)


def _named(args: argparse.Namespace, parts: Sequence[Samples]) -> Symbol:
    if args.symbol is not None:
        return symbol.load(args.symbol)
    count = data.num_classes(parts, args.classes)
    return networks.build(args.network or "lenet", parts[0].x.shape[1:], count)


def _check_same(args: argparse.Namespace, loaded: SavedNetwork, parts: Sequence[Samples]) -> None:
    """Complain if the options name another network than the one to go on with."""
    if args.symbol is None and args.network is None:
        return
    if _named(args, parts).tojson() != loaded.net.tojson():
        option = f"--symbol {args.symbol}" if args.symbol is not None else f"--network {args.network}"
        raise ArgumentError(
            f"{option} is, with these samples, another network than {loaded.name}, with which --load-epoch goes on; "
            "leave it out, or begin anew under another --prefix"
        )


def _label(net: Symbol) -> str:
    names = networks.label_names(net)
    if len(names) != 1:
        raise ArgumentError(
            f"the network has {len(names)} inputs for labels ({', '.join(names) or 'none'}), expected one, "
            "whose name ends in 'label', as of a SoftmaxOutput"
        )
    return names[0]


def _check_labels(
    args: argparse.Namespace, parts: Sequence[Samples], outputs: Sequence[tuple[int, ...] | None]
) -> None:
    """Complain about labels for which the network has no output."""
    if len(outputs) != 1 or outputs[0] is None or len(outputs[0]) != 2:
        return
    count = outputs[0][1]
    if args.classes is not None and args.classes != count:
        raise ArgumentError(f"--classes is {args.classes}, but the network tells {count} classes apart")
    for samples in parts:
        largest = int(np.max(samples.y)) if samples.y is not None else 0
        if largest >= count > 0:
            raise ArgumentError(
                f"{samples.name}: the largest label is {largest}, but the network tells {count} classes apart; "
                f"expected labels from 0 to {count - 1} (--label-column says which column holds them)"
            )
