"""``dpmodule summary`` and ``dpmodule info``: look at a network, and at the installation."""

from __future__ import annotations

import argparse
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import checkpoint, context, native, symbol
from ..module import Module
from . import networks, options

__all__ = ["add_commands"]


def add_commands(commands: Any) -> None:
    """Add ``summary`` and ``info`` to the subcommands of the command line."""
    parser = commands.add_parser("summary", help="print a network's layers, shapes and parameter counts")
    parser.set_defaults(run=_summary)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--network", choices=sorted(networks.NETWORKS), default="lenet", help="(default: lenet)"
    )
    which.add_argument("--symbol", metavar="FILE", help="a -symbol.json")
    which.add_argument("--prefix", help="a saved network")
    parser.add_argument("--shape", type=options.shape, default=(1, 8, 8), help="one sample (default: 1,8,8)")
    parser.add_argument("--classes", type=options.positive, default=10, help="for --network (default: 10)")
    parser.add_argument("--batch-size", type=options.positive, default=64, help="(default: 64)")
    parser = commands.add_parser("info", help="print versions and devices")
    parser.set_defaults(run=_info)


def _summary(args: argparse.Namespace) -> int:
    if args.prefix is not None:
        net = symbol.load(checkpoint.symbol_file(args.prefix))
    elif args.symbol is not None:
        net = symbol.load(args.symbol)
    else:
        net = networks.build(args.network, args.shape, args.classes)
    module = Module(net, label_names=networks.label_names(net))
    module.bind([("data", (args.batch_size, *args.shape))])
    print(module.summary())
    return 0


def _info(args: argparse.Namespace) -> int:
    lines = {
        "dpmodule": _version(),
        "native": _native(),
        "Python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "torch": torch.__version__,
        "NumPy": np.__version__,
        "CPU": f"{os.cpu_count()} logical cores, {torch.get_num_threads()} torch threads",
        "GPU": _gpus(),
    }
    for name, value in lines.items():
        print(f"{name:10} {value}")
    return 0


def _native() -> str:
    if native.core is None:
        return f"not active: {native.error}"
    file = Path(native.core.__file__ or "")
    package = Path(native.__file__).parents[1]
    return "active" if file.parent == package else f"active, that of the installed package: {file}"


def _version() -> str:
    try:
        return metadata.version("dpmodule")
    except metadata.PackageNotFoundError:
        return "not installed, run from its source"


def _gpus() -> str:
    names = [torch.cuda.get_device_name(i) for i in range(context.num_gpus())]
    return ", ".join(f"gpu({i}) {name}" for i, name in enumerate(names)) or "none"
