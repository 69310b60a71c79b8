"""``dpmodule check``, ``explain``, ``summary`` and ``info``: inspect networks and the installation."""

from __future__ import annotations

import argparse
import os
import platform
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

import numpy as np
import torch

from .. import checkpoint, context, native, symbol
from .._core import environment
from .._files import regular_file
from ..base import ArgumentError, FileError, MXNetError, dtype_name
from ..executor import passes
from ..graph.node import printable
from ..module import Module
from ..ndarray import NDArray, safetensors
from . import networks, saved_files
from .check_program import check_program
from .models import Model, Shapes, find, is_pretrained, read
from .shapes import find_shapes, given_shapes, input_lines, input_names, random_batch


def check(args: argparse.Namespace) -> int:
    """Check a network, all networks of a folder, or a program for another system."""
    if args.program is not None:
        return _check_program(args)
    if args.net is not None and os.path.isdir(args.net) and not is_pretrained(args.net):
        return check_folder(args.net, args.shape)
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


_EXPORTED = (".onnx", ".pt2")
_STATE_DICTS = (".pt", ".pth")
_GRAPH = re.compile(rb'\s*\{\s*"nodes"\s*:\s*\[')  # every MXNet writes the nodes first
_MAX_ERROR = 300


def check_folder(folder: str, requested_shapes: list[tuple[str | None, tuple[int, ...]]]) -> int:
    """Load every model in a folder and its subfolders, run a random batch, and print a line for each.

    Args:
        asked: shapes of inputs from the user, for the models that have these inputs.

    Returns:
        The exit code: 1 if a model cannot be used.
    """
    failed = total = 0
    for path in _model_paths(folder):
        total += 1
        try:
            line = f"ok    {path}: {_try_model(path, requested_shapes)}"
        except (MXNetError, OSError, RuntimeError, MemoryError) as error:
            failed += 1
            text = " ".join(str(error).removeprefix(f"{path}: ").split()) or type(error).__name__
            line = f"error {path}: {text if len(text) <= _MAX_ERROR else text[:_MAX_ERROR] + ' ...'}"
        print(printable(line), flush=True)
    if not total:
        raise ArgumentError(f"{folder}: no model in this folder or its subfolders")
    print(f"{total - failed} of {total} models can be used")
    return 1 if failed else 0


def _model_paths(folder: str) -> Iterator[str]:
    """Yield the paths of likely models in sorted order: files, folders of `save_pretrained`, prefixes."""
    for path, folders, files in os.walk(folder):
        folders.sort()
        if is_pretrained(path):
            folders.clear()
            yield path
            continue
        graphs = {name.removesuffix("-symbol.json") for name in files if name.endswith("-symbol.json")}
        yield from (os.path.join(path, name) for name in sorted(files) if _is_model(path, name, graphs))


def _is_model(folder: str, name: str, graphs: set[str]) -> bool:
    """Return True for a file with a graph, or a torch file with a graph next to it."""
    path, (stem, ending) = os.path.join(folder, name), os.path.splitext(name)
    if ending == ".json":
        return name.endswith("-symbol.json") or _is_graph(path)
    if ending == ".safetensors":
        return _has_graph(path)
    return ending in _EXPORTED or (ending in _STATE_DICTS and stem in graphs)


def _is_graph(path: str) -> bool:
    """Return True for a JSON file with a graph, and for pipes and devices, so that they are reported."""
    try:
        with open(path, "rb", opener=regular_file) as file:
            return _GRAPH.match(file.read(99)) is not None
    except FileError:
        return True


def _has_graph(path: str) -> bool:
    """Return True for a safetensors file with a graph, and for a damaged one, so that it is reported."""
    try:
        return checkpoint.SYMBOL in safetensors.read_metadata(path)
    except MXNetError:
        return True


def _try_model(path: str, requested_shapes: list[tuple[str | None, tuple[int, ...]]]) -> str:
    """Run a model, and return its description."""
    location = find(path)
    model = Model(location, symbol.load(location.path), {}, {}) if location.is_graph else read(location)
    fitting = [each for each in requested_shapes if each[0] is None or each[0] in model.net.list_arguments()]
    given: Shapes = {**model.shapes, **given_shapes(model.net, fitting, model.values, 1)}
    shapes = find_shapes(model.net, given, model.values)
    outputs = random_batch(model.net, shapes, model.values).forward(is_train=False)
    bad = sum(int(np.sum(~np.isfinite(each.asnumpy().astype("f8")))) for each in outputs)
    names = [name for name in model.data_names if name in input_names(model.net, model.values)]
    inputs = ", ".join(f"{name} {shapes[name]}" for name in names)
    results = ", ".join(f"{name} {each.shape}" for name, each in zip(model.net.list_outputs(), outputs))
    count = sum(array.size for array in model.values.values())
    epoch = f" epoch {location.epoch}" if location.is_prefix else ""
    parameters = f"{count:,} parameters" if model.values else "no parameters, random ones"
    finite = f" ({bad} numbers not finite)" if bad else ""
    return f"{location.kind}{epoch}, {len(model.net.graph.nodes)} nodes, {parameters}; {inputs} -> {results}{finite}"


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


def info(args: argparse.Namespace) -> int:
    """Print versions and devices."""
    lines = {
        "dpmodule": version(),
        "native": _native(),
        "Python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "torch": torch.__version__,
        "NumPy": np.__version__,
        "CPU": f"{os.cpu_count()} logical cores, {torch.get_num_threads()} torch threads",
        "GPU": _gpus(),
    }
    if variables := environment.set_variables():
        lines["variables"] = ", ".join(f"{name}={value}" for name, value in variables.items())
    for name, value in lines.items():
        print(f"{name:10} {value}")
    return 0


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
