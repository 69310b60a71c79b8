"""Which network a command works on: one that was saved, named by its prefix or its files, or one that comes along."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from .. import checkpoint, symbol
from ..base import ArgumentError
from ..ndarray import NDArray
from ..ndarray.safetensors import looks_like
from ..symbol import Symbol
from . import networks
from .models import find as find_place
from .models import read, read_values

_SAMPLE = (1, 8, 8)
"""Shape of a sample for the networks that come along, where nothing else is asked for: that of the digits."""


@dataclass(frozen=True)
class SavedNetwork:
    """A network and, as far as they are known, its parameters."""

    net: Symbol
    name: str
    """What messages call it: the file of the graph, or the name of one that comes along."""
    values: Mapping[str, NDArray] = field(default_factory=dict)
    """Parameters and auxiliary states by name; empty if there are none."""
    params_file: str | None = None
    comes_along: bool = False
    """Whether it is one of those that come along, and no file."""

    @property
    def title(self) -> str:
        """What it is, and where its parameters come from."""
        return self.name if self.params_file is None else f"{self.name}, parameters from {self.params_file}"


def find(args: argparse.Namespace, default: str | None = None) -> SavedNetwork:
    """Return the network that the arguments of `add_arguments` name.

    Args:
        default: what NET is if nothing is named; None = that is an error.
    """
    given = {
        "NET": args.net,
        "--prefix": args.prefix,
        "--symbol": args.symbol,
        "--network": vars(args).get("network"),
    }
    named = {option: name for option, name in given.items() if name is not None}
    if len(named) > 1:
        shown = " and ".join(f"{option} {name}" for option, name in named.items())
        raise ArgumentError(f"{shown} are given, expected one network")
    if args.params is not None and args.params_option is not None:
        raise ArgumentError(f"PARAMS {args.params} and --params {args.params_option} are given, expected one")
    params = args.params or args.params_option
    option, name = next(iter(named.items()), ("NET", default))
    if name is None:
        raise ArgumentError("which network? Expected NET: the prefix of a saved one, or its -symbol.json")
    if option == "--network" or (option == "NET" and "network" in args and name in networks.NETWORKS):
        return _built_in(args, name, params, may_be_saved="NET" in named)
    if vars(args).get("classes") is not None:
        raise ArgumentError(f"--classes {args.classes} goes with --network; {name} is a saved network")
    if args.prefix is None and (os.path.isfile(name) or os.path.isdir(name)):
        if args.epoch is not None:
            what = "file" if os.path.isfile(name) else "folder"
            raise ArgumentError(
                f"--epoch {args.epoch} goes with a prefix; {name} is a {what}, give its parameters' file"
            )
        return _of_path(name, params)
    if params is not None and args.epoch is not None:
        raise ArgumentError(f"--epoch {args.epoch} and the parameters {params} are given, expected one")
    return load(name, args.epoch, params, option="--epoch")


def _of_path(path: str, params: str | None) -> SavedNetwork:
    """Return the network of a graph's file, or one that has its parameters with it: a folder, or a safetensors file."""
    if os.path.isfile(path):
        with open(path, "rb") as file:
            is_graph = not looks_like(file.read(9))
        if is_graph:
            return SavedNetwork(
                symbol.load(path), path, {} if params is None else read_values(params), params
            )
    found = read(find_place(path))
    return SavedNetwork(
        found.net, path, found.values if params is None else read_values(params), params or path
    )


def _built_in(args: argparse.Namespace, name: str, params: str | None, may_be_saved: bool) -> SavedNetwork:
    for option, value in (("--epoch", args.epoch), ("--params", params)):
        if value is not None:
            raise ArgumentError(
                f"{option} {value} goes with a saved network; {name} comes along, without parameters"
            )
    if may_be_saved and checkpoint.files(name):
        raise ArgumentError(
            f"{name} is a network that comes along, and there is {checkpoint.symbol_file(name)}; "
            f"expected --network {name} or --prefix {name}"
        )
    samples = [shape if of is None else shape[1:] for of, shape in args.shape if of in (None, "data")]
    sample = samples[-1] if samples else _SAMPLE
    net = networks.build(name, sample, 10 if args.classes is None else args.classes)
    return SavedNetwork(net, name, comes_along=True)


def load(
    prefix: str, epoch: int | str | None = None, params: str | None = None, option: str = "--load-epoch"
) -> SavedNetwork:
    """Return the network saved under a prefix.

    Args:
        epoch: which epoch, or `checkpoint.LAST`; None = the last one, without parameters if there is none.
        params: file of the parameters, if they are not the prefix's.
    """
    path = checkpoint.symbol_file(prefix)
    if not checkpoint.files(prefix):
        raise ArgumentError(
            f"nothing is saved under the prefix {prefix!r}: there is no {path}; `fit --prefix` makes one"
        )
    saved = checkpoint.epochs(prefix)
    if params is None and epoch is None:
        if not saved and checkpoint.params_files(prefix, checkpoint.LAST):
            raise ArgumentError(
                f"under the prefix {prefix!r} is only what was saved within an epoch; "
                f"{option} {checkpoint.LAST} takes that"
            )
        epoch = saved[-1] if saved else None
    if params is not None or epoch is None:
        net = checkpoint.saved_symbol(prefix, saved[-1] if saved else 0)
        return SavedNetwork(net, path, {} if params is None else read_values(params), params)
    files = checkpoint.params_files(prefix, epoch)
    if not files:
        epochs = ", ".join(map(str, saved)) or "none"
        raise ArgumentError(
            f"{option} is {epoch}; saved under the prefix {prefix!r} are the epochs: {epochs}"
        )
    net, arg_params, aux_params = checkpoint.load_checkpoint(prefix, epoch)
    values = {**arg_params, **aux_params}
    return SavedNetwork(net, path if os.path.exists(path) else files[-1], values, files[-1])
