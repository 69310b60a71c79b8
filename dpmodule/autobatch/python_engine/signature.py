"""Signatures, which decide what nodes may share a batch, and plans, the order of batches.

Two records describe a node. Its `BatchKind` defines the computation: operation, attributes, shapes, parameters. Nodes
of one kind can share a batch. Its `Signature` adds the kinds of its operands, up to two steps away: tanh of two
different matrix products is one kind but two signatures. Schedules order signatures, so that a similar node does not
tie a layer to a recurrence; batches consist of kinds.

Both are stored in a `SignatureTable` that outlives graphs: after the first few examples, every node is found by one
dict lookup.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..ops.linear import AFFINE, MATMUL, STACK
from ..ops.source import PARAMETER
from ..ops.spec import Dim, Operation, declare


def _extra_shape(attrs: tuple[Any, ...], dims: Sequence[Dim]) -> Dim:
    found: Dim = attrs[1]
    return found


EXTRA = declare("extra", _extra_shape)
"""The second and later results of an operation; attributes: (number of the result, its `Dim`)."""


class BatchKind:
    """The computation of a batch.

    Attributes:
        dims: the `Dim` of every operand, or of one operand for operations on many.
        parameters: for every operand, (`Dim`, weak reference, is updated) of a parameter, else None.
        stack_key: for products of a shared matrix with one vector per node, a key that is equal for kinds that can be
            stacked; else None.
    """

    __slots__ = (
        "attrs",
        "stack_key",
        "computed",
        "dims",
        "index",
        "many",
        "needs",
        "op",
        "outs",
        "parameters",
        "wants",
    )

    def __init__(
        self, index: int, op: Operation, attrs: tuple[Any, ...], operands: Sequence[Signature], many: bool
    ) -> None:
        self.index, self.op, self.attrs, self.many = index, op, attrs, many
        self.dims = tuple(each.dim for each in operands[: 1 if many else None])
        found = op.shape(attrs, self.dims)
        self.outs: tuple[Dim, ...] = (found,) if isinstance(found, Dim) else found
        self.wants = (
            (any(each.needs for each in operands),) if many else tuple(each.needs for each in operands)
        )
        self.parameters = tuple(
            each.kind.attrs if each.kind.op is PARAMETER and not many else None for each in operands
        )
        self.computed = tuple(place for place, each in enumerate(self.parameters) if each is None)
        source = not operands and not op.constant
        self.needs = (source and bool(attrs[-1])) if op is PARAMETER else source or any(self.wants)
        if op.constant:
            self.needs = False
        self.stack_key = self._stack_key()

    def _stack_key(self) -> Any:
        if not (self.op is MATMUL or (self.op is AFFINE and len(self.dims) == 3)):
            return None
        is_plain = self.computed == (len(self.dims) - 1,) and len(self.dims[-1].d) == 1
        return (self.op, self.dims, self.wants) if is_plain else None


class StackedParameters(tuple[Any, ...]):
    """Parameters of one shape that are read as one stacked tensor; an element of `BatchKind.parameters`."""

    __slots__ = ()


class Signature:
    """A kind, and the kinds of its operands.

    Attributes:
        dim: the `Dim` of the first result.
        tag: number of (kind, kinds of the operands), used in the signatures of its consumers.
        lead: the kinds of the node, of its first computed operand, and so on for three steps; nodes are sorted by it,
            so that consumers often read consecutive rows.
    """

    __slots__ = ("dim", "extras", "index", "kind", "lead", "needs", "numbers", "tag")

    needs: bool

    def __init__(self, index: int, kind: BatchKind, tag: int, lead: tuple[int, ...]) -> None:
        self.index, self.kind, self.tag, self.lead = index, kind, tag, lead
        self.extras: tuple[Signature, ...] = ()
        self.numbers: tuple[int, ...] = (index,)
        self.dim, self.needs = kind.outs[0], kind.needs


class SignatureTable:
    """All known kinds and signatures.

    Attributes:
        found: signatures by (operation, attributes, tags of the operands).
        trie: numbers of signatures in nested dicts, by operation, attributes, and the number of each operand's
            signature; see `PythonGraph.append`.
        arities: number of operands by signature index; 0 for operations on many.
    """

    LIMIT = 100_000
    """Largest number of signatures kept from graph to graph; beyond it the table is cleared."""

    def __init__(self) -> None:
        self.generation = 0
        self.found: dict[Any, Signature] = {}
        self.trie: dict[Any, Any] = {}
        self.signatures: list[Signature] = []
        self.arities: NDArray[np.int64] = np.zeros(256, np.int64)
        self.kinds: list[BatchKind] = []
        self._kinds: dict[Any, BatchKind] = {}
        self._tags: dict[Any, int] = {}
        self._stacks: dict[tuple[BatchKind, ...], BatchKind] = {}
        self._references: list[weakref.ref[Any]] = []

    def tidy(self) -> None:
        """Clear the table if it is too large or refers to dead parameters; called between two graphs."""
        if len(self.signatures) > self.LIMIT or self._is_stale():
            for each in vars(self).values():
                if isinstance(each, (dict, list)):
                    each.clear()
            self.generation += 1

    def _is_stale(self) -> bool:
        return any(reference() is None for reference in self._references)

    def find(
        self, op: Operation, attrs: tuple[Any, ...], operands: Sequence[Signature], many: bool = False
    ) -> Signature:
        """Return the signature of an operation on operands with known signatures.

        Args:
            many: True if `operands` are the distinct signatures of many operands.
        """
        tags = [each.tag for each in operands]
        key = (op, attrs, frozenset(tags)) if many else (op, attrs, *tags)
        found = self.found.get(key)
        if found is None:
            found = self.found[key] = self._make(op, attrs, operands, many)
        return found

    def _make(
        self, op: Operation, attrs: tuple[Any, ...], operands: Sequence[Signature], many: bool = False
    ) -> Signature:
        kind = self._kind(op, attrs, operands, many)
        operand_kinds = (
            frozenset(each.kind.index for each in operands) if many else tuple(e.kind.index for e in operands)
        )
        tag = self._tags.setdefault((kind.index, operand_kinds), len(self._tags))
        index = len(self.signatures)
        lead = operands[kind.computed[0]].lead[:2] if kind.computed else ()
        signature = Signature(index, kind, tag, (kind.index, *lead))
        self.signatures.append(signature)
        if index == len(self.arities):
            self.arities = np.concatenate([self.arities, np.zeros_like(self.arities)])
        self.arities[index] = 0 if many else len(kind.dims)
        for place in range(1, len(kind.outs)):
            extra = self._make(EXTRA, (place, kind.outs[place]), (signature,))
            signature.extras, signature.numbers = (
                (*signature.extras, extra),
                (*signature.numbers, extra.index),
            )
        return signature

    def stack(self, kinds: tuple[BatchKind, ...]) -> BatchKind:
        """Return the kind of several stacked products with one vector."""
        stacked = self._stacks.get(kinds)
        if stacked is None:
            first = kinds[0]
            stacked = self._stacks[kinds] = copy(first)
            stacked.index, stacked.op, stacked.attrs = -1 - len(self._stacks), STACK, (len(kinds),)
            stacked.parameters = (
                *[StackedParameters(each) for each in zip(*[kind.parameters[:-1] for kind in kinds])],
                None,
            )
        return stacked

    def _kind(
        self, op: Operation, attrs: tuple[Any, ...], operands: Sequence[Signature], many: bool
    ) -> BatchKind:
        if many:
            key: Any = (op, attrs, operands[0].dim, any(each.needs for each in operands))
        else:
            key = (
                op,
                attrs,
                tuple([(e.kind.attrs if e.kind.op is PARAMETER else e.dim, e.needs) for e in operands]),
            )
            if op is EXTRA:
                key = (key, operands[0].kind.index)
        kind = self._kinds.get(key)
        if kind is None:
            kind = BatchKind(len(self.kinds), op, attrs, operands, many)
            self._kinds[key] = kind
            self._references += [each for each in attrs if isinstance(each, weakref.ref)]
            self.kinds.append(kind)
        return kind


Ints = NDArray[np.int64]


@dataclass(slots=True)
class BatchStep:
    """One batch of a plan.

    Shape:
        nodes: (N,).
        args: (N, operands), or flat for operations on many operands.

    Args:
        counts: for operations on many operands, the number of operands of each node.
        stage: steps of one stage are independent; -1 if unknown.
        parts: the steps of equal length that were stacked into this one.
    """

    kind: BatchKind
    nodes: Ints
    args: Ints
    counts: list[int] = field(default_factory=list)
    stage: int = -1
    parts: list[BatchStep] = field(default_factory=list)


@dataclass(slots=True)
class BatchPlan:
    """Order and content of batches; independent of values and devices.

    Args:
        steps: the batches in order.
        first: number of the first node.
    """

    steps: list[BatchStep]
    first: int
    end: int
    seconds: float = 0.0


class NodeTable(Protocol):
    """Interface of the nodes of a graph used by plans and engines.

    Attributes:
        aux: arguments of single nodes (`Operation.aux`), by node.
    """

    table: SignatureTable
    aux: dict[int, Any]

    @property
    def size(self) -> int:
        """The number of nodes."""

    def signature(self, node: int) -> Signature:
        """Return the signature of a node."""

    def operands(self, node: int) -> tuple[int, ...]:
        """Return the operands of a node."""

    def columns(self, first: int, end: int) -> tuple[Ints, Ints, Ints]:
        """Return signatures, operand offsets and operands of consecutive nodes.

        Shape:
            returns: (nodes,), (nodes + 1,), (operands,); int64.
        """
