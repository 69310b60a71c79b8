"""``dpmodule check``, ``explain``, ``summary`` and ``info``: inspect networks and the installation."""

from __future__ import annotations

import argparse
import os
import platform
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import numpy as np
import torch

from .. import context, native
from .._core import environment
from ..base import ArgumentError, dtype_name
from ..executor import passes
from ..graph.node import printable
from ..module import Module
from ..ndarray import NDArray
from . import networks, saved_files
from .check_files import check_files, has_models
from .check_program import check_program
from .shapes import find_shapes, given_shapes, input_lines, input_names, random_batch


def check(args: argparse.Namespace) -> int:
    """Check a network, all networks of a folder, or a program for another system."""
    if args.program is not None:
        return _check_program(args)
    if args.net is not None and args.params is None and args.params_option is None and has_models(args.net):
        return check_files(args.net, args.shape)
    network = saved_files.find_network(args)
    net, values = network.net, network.values
    counts = Counter(node.op.name for node in net.graph.nodes if node.op is not None)
    print(f"{network.title}: {len(net.graph.nodes)} nodes")
    print(
        "operators:", ", ".join(f"{name} {count}" for name, count in sorted(counts.items())), "(none missing)"
    )
    given = given_shapes(net, args.shape, values, 1)
    shapes = find_shapes(net, given, values)
    names = net.list_arguments() + net.list_auxiliary_states()
    inputs = [name for name in net.list_arguments() if name in input_names(net, values)]
    print("\n".join(input_lines(net, inputs, shapes, given, values, network.is_built_in)))
    if network.params_file is not None:
        _compare_names(names, inputs, values)
    bound = random_batch(net, shapes, values)
    for name, output in zip(net.list_outputs(), bound.forward(is_train=False)):
        print(f"output: {printable(name)} {_describe_output(output)}")
    return 0


def _check_program(args: argparse.Namespace) -> int:
    others = [args.net, args.params, args.prefix, args.symbol, args.params_option, args.epoch, *args.shape]
    if any(each is not None for each in others):
        raise ArgumentError(f"got both --program {args.program} and a network, expected one of them")
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


def _describe_output(output: NDArray) -> str:
    values = output.asnumpy().astype("f8")
    bad = int(np.sum(~np.isfinite(values)))
    text = f"{output.shape} {dtype_name(output.dtype)}"
    if values.size:
        text += (
            f" min {values.min():.6g} mean {values.mean():.6g} max {values.max():.6g} std {values.std():.6g}"
        )
    return text + (f" ({bad} not finite)" if bad else "")


_QUIET_LEVEL = "6"
"""Log level at which torch's profiler does not report that it starts and stops."""


def explain(args: argparse.Namespace) -> int:
    """Print a network's plan."""
    network = saved_files.find_network(args)
    net, values = network.net, network.values
    given = given_shapes(net, args.shape, values, 1)
    shapes = find_shapes(net, given, values, guess=bool(values))
    inputs = input_names(net, values) | set(given)
    parameters = [name for name in net.list_arguments() if name not in inputs]
    shown = [name for name in net.list_arguments() if name in inputs]
    print("\n".join(input_lines(net, shown, shapes, given, values, network.is_built_in)))
    wanted = {name: "write" if args.train and name in parameters else "null" for name in net.list_arguments()}
    if args.measure_memory:
        os.environ.setdefault("KINETO_LOG_LEVEL", _QUIET_LEVEL)
    with passes.disabled(*args.disable):
        bound = random_batch(net, shapes, values, wanted, args.context)
        if args.times:
            bound.forward(is_train=args.train)
        plan = bound.explain(args.train, args.times, args.measure_memory, parameters)
        print(plan if args.source else plan.summary)
    return 0


def summary(args: argparse.Namespace) -> int:
    """Print a network's layers."""
    network = saved_files.find_network(args, default="lenet")
    net, values = network.net, network.values
    known = given_shapes(net, args.shape, values, args.batch_size)
    shapes = find_shapes(net, known, values, args.batch_size, guess=bool(values))
    labels = networks.label_names(net)
    data = [name for name in net.list_arguments() if name in input_names(net, values) and name not in labels]
    module = Module(net, data_names=data, label_names=labels)
    module.bind([(name, shapes[name]) for name in data])
    print(network.title)
    print("\n".join(input_lines(net, data, shapes, known, values, network.is_built_in)))
    print(module.summary())
    return 0


_OWNERS = ("dpmodule", "MXNet", "ParlAI", "torch", "NVIDIA")
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES")


def info(args: argparse.Namespace) -> int:
    """Print versions and devices; with ``--report``, all that a bug report needs."""
    lines = {
        "dpmodule": version(),
        "native": _native(),
        "Python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "torch": torch.__version__,
        "NumPy": np.__version__,
        "CPU": f"{os.cpu_count()} logical cores, {torch.get_num_threads()} torch threads",
        "GPU": _gpus(),
    }
    variables = environment.set_variables(_OWNERS if args.report else ("dpmodule", "MXNet"))
    if args.report:
        lines |= _details()
        variables |= {name: os.environ[name] for name in _THREADS if name in os.environ}
    if variables:
        lines["variables"] = ", ".join(f"{name}={value}" for name, value in variables.items())
    text = "\n".join(f"{name:12} {value}" for name, value in lines.items())
    print(f"```text\n{text}\n```" if args.report else text)
    return 0


def _details() -> dict[str, str]:
    """Return what else a bug report needs."""
    from ..module.run_state import kernels  # imports what trains

    found = kernels()
    names = sorted(name for line in metadata.requires("dpmodule") or () if (name := _base_name(line)))
    libc = " ".join(platform.libc_ver()).strip() or "unknown"
    return {
        "system": f"{platform.platform()}, C library {libc}",
        "processor": _processor(),
        "instructions": f"{found['instructions']}, large products by {found['large products']}",
        "threads": f"{torch.get_num_threads()} in torch, {torch.get_num_interop_threads()} between its operations",
        "extension": native.error or str(getattr(native.core, "__file__", "")),
        "packages": ", ".join(f"{name} {installed}" for name in names if (installed := _installed(name))),
    }


def _base_name(requirement: str) -> str:
    """Return the name of a package that this one always needs; empty for one of an extra."""
    return "" if "extra ==" in requirement else re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    """Return the name of the processor."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _native() -> str:
    if native.core is None:
        return f"not active: {native.error}"
    file = Path(native.core.__file__ or "")
    package = Path(native.__file__).parents[1]
    return "active" if file.parent == package else f"active, from the installed package: {file}"


def version() -> str:
    """Return the version of the installed package."""
    try:
        return metadata.version("dpmodule")
    except metadata.PackageNotFoundError:
        return "not installed, run from the source"


def _gpus() -> str:
    names = [context.gpu_module().get_device_name(i) for i in range(context.num_gpus())]
    return ", ".join(f"gpu({i}) {name}" for i, name in enumerate(names)) or "none"
