"""Storage types of a graph's values, and the operators that run by their sparse rules.

Most graphs have dense values only; `infer_storage_types` detects them in one pass over the nodes and returns None.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ..base import OpError, Shape
from ..graph import Entry, Graph, Node
from ..ops.sparse import SparseRule, has_dense_rule, log_fallback, rule_of

_DENSE = "default"
_BY_NUMBER = {"0": "default", "1": "row_sparse", "2": "csr", "101": "ragged"}


@dataclass(frozen=True)
class StorageTypes:
    """Storage types of a graph's values.

    Attributes:
        rules: the nodes that run by a sparse rule, with the rule and the storage types of their outputs.
    """

    key: tuple[str, ...]
    values: Mapping[Entry, str]
    rules: Mapping[Node, tuple[SparseRule, tuple[str, ...]]]

    def of(self, entry: Entry) -> str:
        """Return the storage type of a value."""
        return self.values.get(entry, _DENSE)


def declared_storage_types(graph: Graph) -> dict[str, str]:
    """Return the storage types that variables declare, by name, without dense ones."""
    stypes = {}
    for node in graph.nodes:
        if node.op is None:
            stype = _BY_NUMBER.get(node.attrs.get("__storage_type__", "0"), _DENSE)
            if stype != _DENSE:
                stypes[node.name] = stype
    return stypes


def infer_storage_types(
    graph: Graph, stypes: Mapping[str, str], free: Collection[str] = ()
) -> StorageTypes | None:
    """Propagate storage types through a graph.

    Args:
        stypes: storage types of variables by name; missing variables are dense.
        free: names of missing variables that take the storage type their first reader prefers.

    Returns:
        The storage types, or None if no value and no operator involves sparse arrays.
    """
    declared = {name: stype for name, stype in stypes.items() if stype != _DENSE}
    if not declared and not any(_counts_alone(node) for node in graph.nodes):
        return None
    values: dict[Entry, str] = {}
    rules: dict[Node, tuple[SparseRule, tuple[str, ...]]] = {}
    for node in graph.nodes:
        if node.op is None:
            if node.name in declared:
                values[node, 0] = declared[node.name]
            continue
        if free:
            _infer_free_variables(node, values, free)
        kinds = tuple(values.get(entry, _DENSE) for entry in node.inputs)
        rule = _rule_for(node, kinds)
        if rule is None:
            continue
        rules[node] = rule
        for i, stype in enumerate(rule[1]):
            if stype != _DENSE:
                values[node, i] = stype
    variables = (*graph.arguments, *graph.auxiliary)
    return StorageTypes(tuple(declared.get(node.name, _DENSE) for node in variables), values, rules)


def _infer_free_variables(node: Node, values: dict[Entry, str], free: Collection[str]) -> None:
    """Set the storage types that an operator prefers for variables that declare none."""
    kinds = tuple(values.get(entry, _DENSE) for entry in node.inputs)
    rule = rule_of(node.op) if node.op is not None and _counts_alone(node) else None
    if rule is None or rule.variable_storage is None:
        return
    for entry, stype in zip(node.inputs, rule.variable_storage(node.a, kinds), strict=True):
        if entry[0].op is None and entry[0].name in free and entry not in values and stype != _DENSE:
            values[entry] = stype


def _counts_alone(node: Node) -> bool:
    """Return True if an operator uses sparse arrays even when its inputs are dense."""
    return node.op is not None and has_dense_rule(node.op, node.a)


def _rule_for(node: Node, kinds: tuple[str, ...]) -> tuple[SparseRule, tuple[str, ...]] | None:
    """Return a node's sparse rule and its outputs' storage types; None if it reads dense values."""
    if node.op is None or (set(kinds) <= {_DENSE} and not _counts_alone(node)):
        return None
    try:
        rule = rule_of(node.op, kinds)
        stypes = None if rule is None else rule.storage(node.a, kinds)
    except OpError as error:
        raise OpError(f"{node.describe()}: {error}") from None
    if rule is None or stypes is None:
        log_fallback(node.op.name, kinds)
        return None
    return rule, stypes


def check_axes(storage: StorageTypes, shapes: Mapping[Node, Sequence[Shape]]) -> None:
    """Reject operators whose sparse rule does not support the rank of their input."""
    for node, (rule, _) in storage.rules.items():
        shape = shapes[node.inputs[0][0]][node.inputs[0][1]] if rule.check is not None else None
        if rule.check is not None and shape is not None:
            try:
                rule.check(node.a, len(shape))
            except OpError as error:
                raise OpError(f"{node.describe()}: {error}") from None


def gradient_storage_types(graph: Graph, storage: StorageTypes) -> dict[str, str]:
    """Return the storage type of the gradient of each argument that is not dense.

    It is the type on which all readers of the argument agree; the gradient of a ragged argument is ragged.
    """
    reported: dict[Node, set[str]] = {}
    for node in graph.nodes:
        if node.op is None:
            continue
        kinds = tuple(storage.of(entry) for entry in node.inputs)
        rule = rule_of(node.op, kinds)
        stypes: tuple[str, ...] = (_DENSE,) * len(kinds)
        if rule is not None and rule.grad_storage is not None:
            stypes = rule.grad_storage(node.a, kinds)
        for (child, _), stype in zip(node.inputs, stypes):
            if child.op is None:
                reported.setdefault(child, set()).add(stype)
    agreed = {node.name: next(iter(s)) for node, s in reported.items() if len(s) == 1 and s != {_DENSE}}
    ragged = (node for (node, _), stype in storage.values.items() if stype == "ragged" and node.op is None)
    return agreed | {node.name: "ragged" for node in ragged}
