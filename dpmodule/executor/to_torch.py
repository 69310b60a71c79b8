"""Converting a graph to a `torch.fx.GraphModule`, which PyTorch's tools accept.

Every operator becomes one call of a function of `ops.fx`, with the attributes of its node. Arrays keep their names in
``state_dict``. The optimizations of an executor's program (passes, kernels chosen by size, known shapes) are left to
PyTorch's compilers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from keyword import iskeyword
from typing import Any

import numpy as np
import torch
from torch import fx

from .._devices.single_thread import single_thread
from ..base import ArgumentError, OpError
from ..graph import Graph, Node
from ..ndarray import NDArray
from ..ops.spec import AUX, LABEL
from .storage_types import declared_storage_types, infer_storage_types
from .torch_writer import ModulePlan, is_safe_in_source, sizes_of, write_module


def to_torch(
    graph: Graph,
    arg_params: Mapping[str, Any],
    aux_params: Mapping[str, Any],
    share: bool = False,
    *,
    inputs: Sequence[str] | None = None,
    fixed: Collection[str] = (),
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> fx.GraphModule:
    """Return a graph as a PyTorch module.

    Shape:
        arg_params, aux_params: each as the variable of its name.

    Args:
        arg_params: parameters by name; names that are not in the graph are ignored.
        aux_params: auxiliary states by name.
        share: True to share memory between the arrays and the module's parameters and buffers; else copy.
        inputs: names of the arguments that are inputs or labels; None means those that are not in `arg_params`.
        shapes: shapes of inputs; needed only if the size of a result of an operator without inputs is unknown.
    """
    for what, given in (("arg_params", arg_params), ("aux_params", aux_params)):
        if not isinstance(given, Mapping):
            raise ArgumentError(
                f"to_torch: {what} is {type(given).__name__}, expected a dict of arrays by name"
            )
    wanted = [n for n in graph.argument_names if n not in arg_params] if inputs is None else inputs
    names = [n for n in graph.argument_names if n in wanted]
    _check(graph, names, arg_params, aux_params, share)
    arrays = {n: arg_params[n] for n in graph.argument_names if n not in names}
    arrays.update({n: aux_params[n] for n in graph.auxiliary_names})
    with single_thread():
        held = {name: _tensor(value, share) for name, value in arrays.items()}
    labels, ones = _only_labels(graph, names), _always_one(graph)
    data = [n for n in names if n not in {node.name for node in labels}]
    sizes, missing = sizes_of(graph, {name: tuple(t.shape) for name, t in held.items()}, data, shapes or {})
    if missing:
        raise ArgumentError(
            f"to_torch: the shape of {', '.join(n.describe() for n in missing)} depends on unknown shapes of inputs; "
            f" give shapes={{name: shape}} for {', '.join(names)}"
        )
    for name in ones & held.keys():
        held[name].fill_(1)
    return write_module(ModulePlan(graph, names, labels, held, {*fixed, *ones}, sizes))


def _check(
    graph: Graph,
    inputs: Collection[str],
    arg_params: Mapping[str, Any],
    aux_params: Mapping[str, Any],
    share: bool,
) -> None:
    """Reject a graph, or arrays, that cannot become a PyTorch module."""
    graph.check_names()
    problems = [*_unfit_arrays(graph, inputs, arg_params, aux_params, share), *_unfit_names(graph, inputs)]
    if problems:
        raise ArgumentError("to_torch: " + "; ".join(problems))
    refused = list(_refused(graph))
    if refused:
        raise OpError(f"to_torch: a PyTorch module cannot have {'; '.join(refused)}")


def _unfit_arrays(
    graph: Graph,
    inputs: Collection[str],
    arg_params: Mapping[str, Any],
    aux_params: Mapping[str, Any],
    share: bool,
) -> Iterator[str]:
    """Yield the problems of the arrays."""
    for what, arrays, names in (
        ("arg_params", arg_params, [n for n in graph.argument_names if n not in inputs]),
        ("aux_params", aux_params, graph.auxiliary_names),
    ):
        missing = [n for n in names if n not in arrays]
        if what == "arg_params":
            missing += [n for n in inputs if n in graph.parameters]
        if missing:
            prefixed = any(key.startswith(("arg:", "aux:")) for key in arrays)
            hint = " (its names have the prefixes of files; mx.model.load_checkpoint removes arg: and aux:)"
            yield f"{what} has no {', '.join(missing)}{hint if prefixed else ''}"
        for name in (n for n in names if n in arrays):
            if not isinstance(arrays[name], (NDArray, np.ndarray, torch.Tensor)):
                yield f"{name} is {type(arrays[name]).__name__}, expected an NDArray"
            elif share and getattr(arrays[name], "stype", "default") != "default":
                yield f"{name} is stored as {arrays[name].stype}, which cannot be shared; call tostype('default')"


def _unfit_names(graph: Graph, inputs: Collection[str]) -> Iterator[str]:
    """Yield the problems of names of parameters and states."""
    names = [n.name for n in graph.inputs if n.name not in inputs]
    if unsafe := [name for name in names if not all(map(is_safe_in_source, name.split(".")))]:
        yield (
            f"{', '.join(map(repr, unsafe))} cannot be written in the module's source; rename variables that are "
            "Python keywords, or have quotes, backslashes, control characters or compatibility characters of Unicode"
        )
    for name in names:
        first, *rest = name.split(".")
        if not all((first, *rest)):
            yield f"{name!r} has an empty part between dots"
        elif clash := sorted({first} & _module_names(True) or {*rest} & _module_names(False)):
            yield f"{clash[0]!r} of {name!r} is a name that PyTorch's modules use; rename the variable"
        for end in range(1, len(rest) + 1):
            outer = ".".join([first, *rest][:end])
            if outer in names:
                yield f"{outer!r} is a variable, so {name!r} cannot be inside it"


@cache
def _module_names(is_whole: bool) -> frozenset[str]:
    """Return the attribute names of the module (`is_whole`), or of a module inside it."""
    if not is_whole:
        return frozenset(dir(torch.nn.Module()))
    module = fx.GraphModule(torch.nn.Module(), fx.Graph())
    exported = ("_guards_fn", "_in_spec", "shape_env")
    return frozenset({*dir(module), *dir(type(module)), *exported})


def _refused(graph: Graph) -> Iterator[str]:
    """Yield the nodes that a PyTorch module cannot have."""
    # other storage types represent the same values as dense arrays
    ragged = {name: stype for name, stype in declared_storage_types(graph).items() if stype == "ragged"}
    storage = infer_storage_types(graph, ragged) if ragged else None
    for (node, _), stype in storage.values.items() if storage is not None else ():
        if stype == "ragged":
            yield f"{node.describe()}, stored as ragged"
    for node in graph.nodes:
        for body in node.subgraphs:
            yield from _refused(body)
        if wrong := [key for key in node.params if not key.isidentifier() or iskeyword(key)]:
            yield f"{node.describe()}, whose attribute {wrong[0]!r} is not a name in Python"
        if node.op is None or node.op.owner is not None or not node.op.mutates:
            continue
        states = {one.name for one in node.op.active_inputs(node.a, len(node.inputs)) if one.kind == AUX}
        if node.op.variadic is not None or states & {*node.op.commit_in_forward}:
            yield f"{node.describe()}, which overwrites its inputs when it is called"


def _tensor(value: Any, share: bool) -> torch.Tensor:
    """Return an array's memory, or a copy of it."""
    if isinstance(value, NDArray):
        tensor = (value if value.stype == "default" else value.tostype("default")).torch().detach()
    else:
        tensor = value.detach() if isinstance(value, torch.Tensor) else torch.from_numpy(np.asarray(value))
    return tensor if share else tensor.clone()


def _only_labels(graph: Graph, inputs: Collection[str]) -> set[Node]:
    """Return the inputs that only losses read, as labels, and the operators computed from these inputs."""
    ends: dict[Node, bool] = {}
    heads = {node for node, _ in graph.heads}
    for node in reversed(graph.nodes):
        readers = graph.readers.get(node, [])
        ends[node] = bool(readers) and node not in heads
        ends[node] = ends[node] and all(ends[r] or _is_label_of(node, r) for r in readers)
    labels: set[Node] = set()
    for node in graph.nodes:
        is_input = node.op is None and node.name in inputs
        made_of_labels = node.op is not None and any(child in labels for child, _ in node.inputs)
        if ends[node] and (is_input or made_of_labels):
            labels.add(node)
    return labels


def _is_label_of(node: Node, reader: Node) -> bool:
    """Return True if a loss reads a node only as its label."""
    if reader.op is None or not reader.op.is_loss(reader.a):
        return False
    declared = reader.op.active_inputs(reader.a, len(reader.inputs))
    return all(one.kind == LABEL for (child, _), one in zip(reader.inputs, declared) if child is node)


def _always_one(graph: Graph) -> set[str]:
    """Return the gammas that normalisation treats as 1."""
    names = set()
    for node in graph.nodes:
        if node.op is not None and getattr(node.a, "fix_gamma", False):
            declared = node.op.active_inputs(node.a, len(node.inputs))
            names |= {child.name for (child, _), one in zip(node.inputs, declared) if one.name == "gamma"}
    return names
