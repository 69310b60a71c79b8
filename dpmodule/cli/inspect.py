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

from .. import context, environment, native
from ..module import Module
from . import networks, options, saved
from .shapes import find_shapes, given_shapes, input_lines, input_names


def add_commands(commands: Any) -> None:
    """Add ``summary`` and ``info`` to the subcommands of the command line."""
    parser = commands.add_parser(
        "summary",
        help="print a network's layers, shapes and parameter counts",
        description="Print a table of a network's operators with output shapes and numbers of parameters.",
    )
    parser.set_defaults(run=_summary)
    saved.add_arguments(parser, "lenet", by_name=True)
    options.add_input_shapes(parser)
    parser.add_argument(
        "--batch-size",
        type=options.positive,
        default=64,
        help="number of samples in the shapes (default: 64)",
    )
    parser = commands.add_parser(
        "info", help="print versions and devices", description="Print versions, processors and GPUs."
    )
    parser.set_defaults(run=_info)


def _summary(args: argparse.Namespace) -> int:
    found = saved.find(args, default="lenet")
    net, values = found.net, found.values
    given = given_shapes(net, args.shape, values, args.batch_size)
    shapes = find_shapes(net, given, values, args.batch_size, guess=bool(values))
    labels = networks.label_names(net)
    data = [name for name in net.list_arguments() if name in input_names(net, values) and name not in labels]
    module = Module(net, data_names=data, label_names=labels)
    module.bind([(name, shapes[name]) for name in data])
    print(found.title)
    print("\n".join(input_lines(net, data, shapes, given, values, found.comes_along)))
    print(module.summary())
    return 0


def _info(args: argparse.Namespace) -> int:
    lines = {
        "dpmodule": version(),
        "native": _native(),
        "Python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "torch": torch.__version__,
        "NumPy": np.__version__,
        "CPU": f"{os.cpu_count()} logical cores, {torch.get_num_threads()} torch threads",
        "GPU": _gpus(),
    }
    if variables := environment.given():
        lines["variables"] = ", ".join(f"{name}={value}" for name, value in variables.items())
    for name, value in lines.items():
        print(f"{name:10} {value}")
    return 0


def _native() -> str:
    if native.core is None:
        return f"not active: {native.error}"
    file = Path(native.core.__file__ or "")
    package = Path(native.__file__).parents[1]
    return "active" if file.parent == package else f"active, that of the installed package: {file}"


def version() -> str:
    """Return the version of the installed package."""
    try:
        return metadata.version("dpmodule")
    except metadata.PackageNotFoundError:
        return "not installed, run from its source"


def _gpus() -> str:
    names = [context.gpu_module().get_device_name(i) for i in range(context.num_gpus())]
    return ", ".join(f"gpu({i}) {name}" for i, name in enumerate(names)) or "none"
