"""Export of torch modules to torch's graph, with dynamic sizes and without in-place writes.

Source: PyTorch's ``torch.export``.
"""

from __future__ import annotations

import inspect
import io
import logging
import operator
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.export import Dim, ExportedProgram, default_decompositions
from torch.fx import Node as TorchNode
from torch.utils import _pytree as pytree

from ..base import ArgumentError
from .torch_functions import AppliedFunction, KeptGradients, WholeNetworks, check_hooks
from .torch_operators import dims_of, is_number, known_overloads

if TYPE_CHECKING:
    from torch.fx import Graph

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_aten = torch.ops.aten

Dynamic = Mapping[str, Any]


class Exported(NamedTuple):
    """An exported torch module.

    Attributes:
        inputs: name and example of every leaf of the arguments, in torch's order.
        applied: calls of custom functions, numbered in the graph.
    """

    program: ExportedProgram
    inputs: list[tuple[str, Any]]
    applied: list[AppliedFunction]


def leaf_names(tree: object, join: str = "_", first: str = "") -> list[str]:
    """Return a name for every leaf of nested tuples, lists and dicts: its joined keys."""
    paths, _ = pytree.tree_flatten_with_path(tree)
    names = []
    for path, _ in paths:
        keys = [str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", "")))) for k in path]
        if first and keys and keys[0].isdigit():
            keys[0] = first + keys[0]
        names.append(join.join(keys))
    return names


def _bound(module: torch.nn.Module, example: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments by the names of forward's parameters."""
    try:
        return dict(inspect.signature(module.forward).bind(*example, **named).arguments)
    except TypeError as error:
        raise ArgumentError(
            f"from_torch: forward of {type(module).__name__} does not accept these examples: {error}; pass one for "
            "each of its parameters without a default"
        ) from None


def _flat_names(module: torch.nn.Module, example: Sequence[Any], named: Mapping[str, Any]) -> list[str]:
    """Return the names of all leaves of the arguments, in torch's order."""
    parameters = list(inspect.signature(module.forward).parameters.values())
    positional: list[str] = []
    for i in range(len(example)):
        last = parameters[min(i, len(parameters) - 1)]
        many = [p.name for p in parameters[: i + 1] if p.kind is p.VAR_POSITIONAL]
        positional.append(
            f"{many[0]}_{len([n for n in positional if n.startswith(many[0])])}" if many else last.name
        )
    names = []
    for name, value in (*zip(positional, example), *named.items()):
        names += [f"{name}_{rest}" if rest else name for rest in leaf_names(value)]
    return names


def export(
    module: torch.nn.Module, example: Sequence[Any], named: Mapping[str, Any], dynamic: Dynamic | None
) -> Exported:
    """Export a module with torch.

    Args:
        named: arguments by name.
        dynamic: names of the dynamic sizes by input and axis; None means the first axis of every input, if the
            module allows it.
    """
    if not isinstance(module, torch.nn.Module):
        raise ArgumentError(
            f"from_torch: module is of type {type(module).__name__}, expected a torch.nn.Module"
        )
    if isinstance(module, torch.jit.ScriptModule):
        raise ArgumentError(
            "from_torch: module is a torch.jit.ScriptModule, expected the module that it was scripted or traced from"
        )
    check_hooks(module)
    _bound(module, example, named)
    order = list(inspect.signature(module.forward).parameters)
    # torch.export mixes up the inputs of a GraphModule whose arguments come in another order
    named = dict(
        sorted(named.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order))
    )
    names = _flat_names(module, example, named)
    leaves = _distinct(pytree.tree_leaves((tuple(example), dict(named))))
    _check_dynamic(names, leaves, dynamic)
    axes = [_varying(name, leaf, dynamic) for name, leaf in zip(names, leaves)]
    grown = _enlarged(leaves, axes, dynamic)
    try:
        program, applied = _exported(module, example, named, grown, axes)
    except ArgumentError:
        if dynamic is not None or grown is leaves:
            raise
        program, applied = _exported(module, example, named, leaves, axes)
    inputs = list(zip(names, leaves))
    _check_stays(module, program, inputs, dynamic)
    return Exported(program, inputs, applied)


def _distinct(leaves: list[Any]) -> list[Any]:
    """Return examples with repeated ones copied, as torch would treat them as one input."""
    seen: set[int] = set()
    copied_leaves = []
    for leaf in leaves:
        copied_leaves.append(leaf.clone() if isinstance(leaf, torch.Tensor) and id(leaf) in seen else leaf)
        seen.add(id(leaf))
    return copied_leaves


def _check_dynamic(names: list[str], leaves: list[Any], dynamic: Dynamic | None) -> None:
    """Raise for names that are not inputs, and axes that they lack."""
    if not isinstance(dynamic, Mapping | None):
        raise ArgumentError(f"dynamic is {dynamic!r}, expected a dict such as {{'data': {{0: 'batch'}}}}")
    wrong = []
    ranks = {n: leaf.dim() for n, leaf in zip(names, leaves) if isinstance(leaf, torch.Tensor)}
    for name, axes in (dynamic or {}).items():
        if name not in ranks:
            wrong.append(f"{name!r} is not an input; there are {', '.join(ranks)}")
        elif not isinstance(axes, Mapping):
            wrong.append(f"{name!r} has {axes!r}, expected a dict such as {{0: 'batch'}}")
        else:
            far = [a for a in axes if not isinstance(a, int) or not 0 <= a < ranks[name]]
            wrong += [f"{name!r} has no axis {a!r}, but {ranks[name]} axes" for a in far]
    if wrong:
        raise ArgumentError(f"from_torch: dynamic: {'; '.join(wrong)}")


def _varying(name: str, leaf: object, dynamic: Dynamic | None) -> list[int]:
    """Return the axes of an input with dynamic sizes."""
    if not isinstance(leaf, torch.Tensor):
        return []
    if dynamic is None:
        return [0] if leaf.dim() else []
    return list(dynamic.get(name, ()))


def _enlarged(leaves: list[Any], axes: list[list[int]], dynamic: Dynamic | None) -> list[Any]:
    """Return the examples with dynamic axes of length 1 enlarged to 2, as torch fixes sizes of 1.

    Without `dynamic`, only a batch of one is enlarged, if all inputs have it.
    """
    sizes = [leaf.shape[a] for leaf, mine in zip(leaves, axes) for a in mine]
    if 1 not in sizes or (dynamic is None and set(sizes) != {1}):
        return leaves
    grown = list(leaves)
    for i, mine in enumerate(axes):
        for axis in mine:
            if grown[i].shape[axis] == 1:
                grown[i] = torch.cat([grown[i], grown[i]], axis)
    return grown


def _exported(
    module: torch.nn.Module,
    example: Sequence[Any],
    named: Mapping[str, Any],
    leaves: list[Any],
    axes: list[list[int]],
) -> tuple[ExportedProgram, list[AppliedFunction]]:
    """Export a module with the named axes dynamic."""
    _, spec = pytree.tree_flatten((tuple(example), dict(named)))
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    shapes = [
        dict.fromkeys(mine, Dim.AUTO) if isinstance(leaf, torch.Tensor) else None
        for leaf, mine in zip(leaves, axes)
    ]
    dims = _bound(module, *pytree.tree_unflatten(shapes, spec))
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # it would replace attention by one operator
    try:
        gradients = KeptGradients()
        with warnings.catch_warnings(), torch.enable_grad(), _silent(), WholeNetworks(), gradients:
            warnings.simplefilter("ignore")
            program = torch.export.export(module, args, kwargs, dynamic_shapes=dims, strict=False)
            return program, gradients.applied
    except Exception as error:
        raise _refusal(module, error) from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


@contextmanager
def _silent() -> Iterator[None]:
    """Suppress torch's logs and the graph on sys.stderr, which repeat its error."""
    known = [logging.getLogger(n) for n in list(logging.root.manager.loggerDict) if n.startswith("torch")]
    spoke = [logger for logger in known if not logger.disabled]
    for logger in spoke:
        logger.disabled = True
    try:
        with redirect_stderr(io.StringIO()) as text:
            yield
        sys.stderr.write(text.getvalue())
    finally:
        for logger in spoke:
            logger.disabled = False


_BRANCHES = ("data-dependent", "DataDependent", "_local_scalar_dense", "unbacked")


def _refusal(module: torch.nn.Module, error: Exception) -> ArgumentError:
    """Return the error for a module that torch cannot export."""
    class_name = type(module).__name__
    text = str(error)
    location = _place(error)
    if any(word in text or word in type(error).__name__ for word in _BRANCHES):
        return ArgumentError(
            f"from_torch: {class_name} takes a branch or a size from values that are known only at run time{location}, "
            "which a symbol cannot express; compute both sides and select with torch.where, or use "
            "sym.torch_module(module, ...), which keeps the module unchanged"
        )
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return ArgumentError(
        f"from_torch: torch.export cannot read {class_name}{location}: {first.strip()}; sym.torch_module(module, ...) "
        "keeps it unchanged"
    )


def _place(error: BaseException) -> str:
    """Return the innermost line of the user's code in a traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    mine = [f for f in frames if not f.filename.startswith((_TORCH, _OURS, "<"))]
    return f" ({mine[-1].filename}:{mine[-1].lineno}, in {mine[-1].name})" if mine else ""


def _check_stays(
    module: torch.nn.Module, program: ExportedProgram, inputs: list[tuple[str, Any]], dynamic: Dynamic | None
) -> None:
    """Raise if a module fixes a dynamic size; warn if it fixes all sizes and `dynamic` is None."""
    input_nodes = dict(zip((name for name, _ in inputs), user_inputs(program)))
    fixed = []
    for name, axes in (dynamic or {}).items():
        dims = dims_of(input_nodes[name].meta["val"])
        fixed += [f"axis {a} ({axes[a]}) of {name} at {dims[a]}" for a in axes if is_number(dims[a])]
    if fixed:
        raise ArgumentError(
            f"from_torch: {type(module).__name__} fixes {', '.join(fixed)}; remove it from dynamic, or let forward "
            "read sizes from x.shape instead of numbers"
        )
    tensors = [n.meta["val"] for n in input_nodes.values() if isinstance(n.meta["val"], torch.Tensor)]
    if dynamic is None and tensors and all(is_number(d) for t in tensors for d in dims_of(t)):
        warnings.warn(
            f"from_torch: {type(module).__name__} fixes the size of every axis; the symbol is only right for inputs of "
            "the examples' shapes",
            stacklevel=5,
        )


def user_inputs(program: ExportedProgram) -> list[TorchNode]:
    """Return the nodes of the module's arguments, in torch's order."""
    by_name = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    specs = program.graph_signature.input_specs
    return [by_name[s.arg.name] for s in specs if s.kind.name == "USER_INPUT"]


# in-place writes


def _schema(node: TorchNode) -> Any:
    return getattr(node.target, "_schema", None) if node.op == "call_function" else None


_MAY_BE_VIEWS = ("reshape", "contiguous", "to", "flatten", "unflatten", "type_as", "expand_as", "view_as")


def _looks_into(node: TorchNode) -> bool:
    """Return True if a node's result may share the memory of its first argument."""
    schema = _schema(node)
    if schema is None:
        return node.op == "call_function"  # getitem of parts, and unknown functions
    name = schema.name.removeprefix("aten::")
    return name in _MAY_BE_VIEWS or any(r.alias_info is not None for r in schema.returns)


def writes_simply(nodes: Sequence[TorchNode]) -> bool:
    """Return True if all in-place writes replace a whole array that has no view of another shape."""
    root: dict[TorchNode, TorchNode] = {}
    views: dict[TorchNode, list[TorchNode]] = {}
    order = {node: i for i, node in enumerate(nodes)}
    for node in nodes:
        first = node.args[0] if node.args and isinstance(node.args[0], TorchNode) else None
        schema = _schema(node)
        if first is None or node.op != "call_function" or not _looks_into(node):
            root[node] = node
            continue
        root[node] = root[first]
        if schema is None or not schema.is_mutable:
            views.setdefault(root[first], []).append(node)
            continue
        seen = views.get(root[first], [])
        if first in seen or any(order[u] > order[node] for v in seen for u in v.users):
            return False
    return True


def functional(module: torch.nn.Module, program: ExportedProgram) -> ExportedProgram:
    """Return a module's program without in-place writes, in which unknown operators are decomposed into known ones.

    Batch normalisation and dropout, which torch decomposes by the mode of the export, remain one operator each.
    """
    for node in list(program.graph.nodes):
        if node.op == "call_function" and node.target in _KEPT:
            _keep_whole(program.graph, node)
    program.graph_module.recompile()
    table: Any = default_decompositions()
    for target in known_overloads(table):
        table.pop(target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            decomposed: ExportedProgram = program.run_decompositions(table)
        except Exception as error:
            raise _refusal(module, error) from error
        return decomposed


_KEPT: dict[Any, tuple[Any, int]] = {
    _aten.dropout.default: (_aten.native_dropout.default, 3),
    _aten.dropout_.default: (_aten.native_dropout.default, 3),
    _aten.batch_norm.default: (_aten._native_batch_norm_legit_functional.default, 8),
}
"""Replacements of operators that torch decomposes by the mode of the export, and their numbers of arguments."""


def _keep_whole(graph: Graph, node: TorchNode) -> None:
    """Replace a node by an operator that is not decomposed."""
    function, count = _KEPT[node.target]
    arguments = tuple(node.args[:count])
    if function is _aten._native_batch_norm_legit_functional.default and arguments[3] is None:
        function, arguments = _aten._native_batch_norm_legit.no_stats, (*arguments[:3], *arguments[5:])
    with graph.inserting_before(node):
        whole = graph.call_function(function, arguments)
        part = graph.call_function(operator.getitem, (whole, 0))
        nodes = [whole, part]
        if node.target is _aten.dropout_.default:
            nodes.append(graph.call_function(_aten.copy_.default, (node.args[0], part)))
    for new in nodes:
        new.meta = {key: value for key, value in node.meta.items() if key != "val"}
    node.replace_all_uses_with(nodes[-1])
    graph.erase_node(node)
