"""Signatures: which nodes may be computed together; and plans: in which order.

Two records describe a node. Its `BatchKind` says what is computed: operation, attributes, shapes, parameters. Nodes of
one kind can share a batch. Its `Signature` adds the kinds of what feeds it, up to two steps away: a tanh of one matrix
product and a tanh of another are one kind and two signatures. Schedules order signatures, so that nodes that only look
alike do not tie a layer to a recurrence; batches are made of kinds.

Both live in a `SignatureTable` that outlives graphs: after the first few examples, every node is found by one lookup in
a dict.
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
"""The second and later results of an operation, which it computes; attributes: (which one, its `Dim`)."""


class BatchKind:
    """What a batch computes.

    Attributes:
        dims: the `Dim` of every operand (of one, if the operation takes many alike).
        parameters: for every operand that is a parameter: (`Dim`, weak reference to it, is updated); else None.
        stack_key: of the product of a matrix for all nodes with a vector for each: equal for those that can be computed
            together, if the vectors are the same; else None.
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
    """Parameters of one shape that are read as one tensor, in place of a parameter in `BatchKind.parameters`."""

    __slots__ = ()


class Signature:
    """A kind, and the kinds of what feeds it.

    Attributes:
        dim: the `Dim` of the (first) result.
        tag: a number for (kind, kinds of the operands): what its consumers know of it.
        lead: its kind, that of its first computed operand, and so on for three steps: nodes for which it is equal keep
            their order in a batch, so that who reads them often reads rows in a row.
    """

    __slots__ = ("dim", "extras", "index", "kind", "lead", "needs", "numbers", "tag")

    needs: bool

    def __init__(self, index: int, kind: BatchKind, tag: int, lead: tuple[int, ...]) -> None:
        self.index, self.kind, self.tag, self.lead = index, kind, tag, lead
        self.extras: tuple[Signature, ...] = ()
        self.numbers: tuple[int, ...] = (index,)
        self.dim, self.needs = kind.outs[0], kind.needs


class SignatureTable:
    """All kinds and signatures seen, by what makes them.

    Attributes:
        found: from a key, (operation, attributes, tags of the operands), to its signature.
        trie: the numbers of signatures, found without making a key: dicts in dicts, by operation, attributes, and the
            number of each operand's signature; see `Graph.append`.
        plain_trie: likewise for operations without attributes that always have as many operands: a list by the first
            operand, of dicts by operation and the other operands.
        arities: how many operands each has, by index; 0 for those that take many.
    """

    LIMIT = 100_000
    """So many signatures are kept from graph to graph; a program that makes ever new ones starts afresh."""

    def __init__(self) -> None:
        self.generation = 0
        self.found: dict[Any, Signature] = {}
        self.trie: dict[Any, Any] = {}
        self.plain_trie: list[dict[Any, Any]] = []
        self.signatures: list[Signature] = []
        self.arities: NDArray[np.int64] = np.zeros(256, np.int64)
        self.kinds: list[BatchKind] = []
        self._kinds: dict[Any, BatchKind] = {}
        self._tags: dict[Any, int] = {}
        self._stacks: dict[tuple[BatchKind, ...], BatchKind] = {}
        self._references: list[weakref.ref[Any]] = []

    def tidy(self) -> None:
        """Forget everything if there is too much, or if it holds on to dead parameters. Only between two graphs."""
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
        """Return the signature of an operation on operands that have been described.

        Args:
            many: `operands` are those that occur among many alike, each once.
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
        around = (
            frozenset(each.kind.index for each in operands) if many else tuple(e.kind.index for e in operands)
        )
        tag = self._tags.setdefault((kind.index, around), len(self._tags))
        index = len(self.signatures)
        lead = operands[kind.computed[0]].lead[:2] if kind.computed else ()
        found = Signature(index, kind, tag, (kind.index, *lead))
        self.signatures.append(found)
        if index == len(self.arities):
            self.arities = np.concatenate([self.arities, np.zeros_like(self.arities)])
        self.arities[index] = 0 if many else len(kind.dims)
        for place in range(1, len(kind.outs)):
            extra = self._make(EXTRA, (place, kind.outs[place]), (found,))
            found.extras, found.numbers = (*found.extras, extra), (*found.numbers, extra.index)
        return found

    def stack(self, kinds: tuple[BatchKind, ...]) -> BatchKind:
        """Return the kind of several products with one vector, each of another kind, side by side."""
        found = self._stacks.get(kinds)
        if found is None:
            first = kinds[0]
            found = self._stacks[kinds] = copy(first)
            found.index, found.op, found.attrs = -1 - len(self._stacks), STACK, (len(kinds),)
            found.parameters = (
                *[StackedParameters(each) for each in zip(*[kind.parameters[:-1] for kind in kinds])],
                None,
            )
        return found

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
        args: (N, operands), or flat for operations that take many.

    Args:
        counts: for operations that take many, how many operands each node has.
        stage: steps of one stage do not depend on each other; -1 where nobody has looked.
        parts: the steps that were put together into this one, of equal length.
    """

    kind: BatchKind
    nodes: Ints
    args: Ints
    counts: list[int] = field(default_factory=list)
    stage: int = -1
    parts: list[BatchStep] = field(default_factory=list)


@dataclass(slots=True)
class BatchPlan:
    """Which nodes are computed together, and in which order; independent of values and devices.

    Args:
        steps: the batches in order.
        first: the number of the first node.
    """

    steps: list[BatchStep]
    first: int
    end: int
    seconds: float = 0.0


class NodeTable(Protocol):
    """The nodes of a graph, as far as plans and engines go.

    Attributes:
        aux: the nodes' own arguments (`Op.aux`), of those that have one.
    """

    table: SignatureTable
    aux: dict[int, Any]

    @property
    def size(self) -> int:
        """The number of nodes."""

    def signature(self, node: int) -> Signature:
        """Return what a node is."""

    def operands(self, node: int) -> tuple[int, ...]:
        """Return the operands of a node."""

    def columns(self, first: int, end: int) -> tuple[Ints, Ints, Ints]:
        """Return of nodes in a row the signatures, where in the third array their operands begin, and all operands.

        Shape:
            returns: (nodes,), (nodes + 1,), (operands,); int64.
        """
