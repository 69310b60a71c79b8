"""Labels that are not classes of the operator that reads them, such as the label 10 beside scores of ten classes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch

from ..base import ArgumentError, MXNetError
from ..graph.node import Entry, Graph, Node
from ..io import DataDesc
from ..ndarray import NDArray
from ..ndarray.ragged import RaggedNDArray, numbers_of
from ..ops.spec import ClassLabels, Env
from ..symbol import Symbol
from .group.batch_splitter import redescribe

CHOICES = ("raise", "warn", "ignore")
"""What `check_labels` may be."""

_SAME_VALUES = frozenset({"BlockGrad", "Cast", "_copy", "amp_cast"})
_OTHER_ORDER = frozenset(
    {
        "Flatten",
        "Reshape",
        "SliceChannel",
        "SwapAxis",
        "expand_dims",
        "slice",
        "slice_axis",
        "squeeze",
        "transpose",
    }
)
"""Operators between a variable and the one that reads it as classes: their outputs hold labels unchanged."""

_EXCEPT = frozenset({"_equal_scalar", "_not_equal_scalar"})
_BOUNDS = frozenset({"_greater_equal_scalar", "_greater_scalar", "_lesser_equal_scalar", "_lesser_scalar"})
"""Comparisons by which a network masks labels of its own choice."""


def check_choice(what: str, check_labels: object) -> None:
    """Refuse anything that `check_labels` cannot be."""
    if check_labels not in CHOICES:
        raise ArgumentError(f"{what}: check_labels is {check_labels!r}, expected {' or '.join(CHOICES)}")


class NetworkInputs(NamedTuple):
    """A symbol and what a batch feeds it.

    Attributes:
        shapes: shapes of its inputs and labels by name.
        labels: those arrays by name that may hold class numbers, dense or ragged.
        axes: the axis of the samples by name; the first one where a name is missing.
    """

    symbol: Symbol
    shapes: Mapping[str, tuple[int, ...]]
    labels: Mapping[str, NDArray]
    axes: Mapping[str, int] = MappingProxyType({})


def network_inputs(module: Any, batch: Any, is_first: bool = True) -> NetworkInputs:
    """Return what a batch feeds a bound module of one symbol.

    Args:
        is_first: whether the module gets the batch's data, too, not that of a module before it.
    """
    data = batch.data if is_first else ()
    labels = (getattr(batch, "label", None) or ()) if module.label_shapes else ()
    shapes, arrays, axes = {}, {}, {}
    for bound, given, described in (
        (module.data_shapes, data, "provide_data"),
        (module.label_shapes, labels, "provide_label"),
    ):
        bound = bound or ()
        if len(given) != len(bound):  # a subclass may make other arrays of a batch
            given = ()
        descs = redescribe(bound, given, getattr(batch, described, None)) if given else bound
        shapes.update({desc.name: tuple(desc.shape) for desc in descs})
        for desc, array in zip(descs, given):
            if isinstance(array, NDArray) and array.stype in ("default", "ragged"):
                arrays[desc.name], axes[desc.name] = array, DataDesc.get_batch_axis(desc.layout)
    return NetworkInputs(module.symbol, shapes, arrays, axes)


@dataclass(frozen=True, slots=True)
class InvalidLabel:
    """A label that is not a class.

    Attributes:
        row: its position on the axis of the samples.
    """

    input: str
    value: float
    row: int
    reader: str
    classes: int
    count: int
    total: int

    def describe(self, where: str) -> str:
        """Return a sentence for messages.

        Args:
            where: where the row is, such as "sample 3 of the first batch".
        """
        others = f" {self.count} of {self.total} labels are not." if self.count > 1 else ""
        return (
            f"{where} has the label {self.value:.10g} in {self.input!r}, which is not one of the {self.classes} "
            f"classes (0 to {self.classes - 1}) of {self.reader}.{others}"
        )


def reads_classes(symbol: Symbol, names: Collection[str]) -> bool:
    """Say whether some operator reads an input as class numbers."""
    return bool(_readers(symbol, names))


def find_invalid_label(network: NetworkInputs, pad: int = 0) -> InvalidLabel | None:
    """Return the first label that is not a class of the operator that reads it, None if there is none.

    Labels that `use_ignore` leaves out and those that the network itself masks by a comparison do not count, nor do
    probabilities and labels of regressions.

    Args:
        pad: how many samples at the end are padding, which may hold anything.
    """
    for reader, rule in _rules(network):
        array = network.labels[reader.input]
        if not _are_classes(numbers_of(array), rule.count):
            wrong = _wrong_label(reader, rule, array, network.axes.get(reader.input, 0), pad)
            if wrong is not None:
                return wrong
    return None


_Rules = list[tuple["_Reader", ClassLabels]]
_known: WeakKeyDictionary[Graph, tuple[Any, _Rules]] = WeakKeyDictionary()
"""What reads class numbers in a graph, for the shapes it was fed with last."""


def _rules(network: NetworkInputs) -> _Rules:
    """Return the operators that read class numbers, each with its classes."""
    graph = network.symbol.graph
    key = tuple(network.shapes.items()), tuple(network.labels)
    known, rules = _known.get(graph, (None, []))
    if known != key:
        rules = _found_rules(network)
        _known[graph] = key, rules
    return rules


def _found_rules(network: NetworkInputs) -> _Rules:
    readers = _readers(network.symbol, network.labels)
    if not readers:
        return []
    shapes = _shapes_of([entry for reader in readers for entry in reader.node.inputs], network.shapes)
    rules = []
    for reader in readers:
        operator: Any = reader.node.op
        read = [shapes.get(entry, ()) for entry in reader.node.inputs]
        rule = operator.classes(reader.node.a, *read) if all(read) and all(map(all, read)) else None
        if rule is not None:
            rules.append((reader, rule))
    return rules


def _are_classes(numbers: torch.Tensor, count: int) -> bool:
    """Say whether all of what is fed, read or not, is a class: so it is nearly always."""
    if not numbers.is_cpu or numbers.dtype in (torch.bfloat16, torch.bool):
        return False
    labels = numbers.detach().numpy()
    if not labels.size:
        return True
    is_whole = labels.dtype.kind in "iu" or bool((labels == np.floor(labels)).all())
    return is_whole and labels.min() >= 0 and labels.max() < count


class _Reader(NamedTuple):
    """An operator that reads an input as class numbers."""

    node: Node
    input: str
    path: Sequence[Entry]
    masked: Collection[float]


def _readers(symbol: Symbol, names: Collection[str]) -> list[_Reader]:
    readers = []
    masked: dict[str, set[float]] = defaultdict(set)
    bounded = set()
    for node in symbol.graph.nodes:
        if node.op is None or not node.inputs:
            continue
        if node.op.name in _EXCEPT or node.op.name in _BOUNDS:
            name, _ = _source(node.inputs[0])
            masked[name].add(float(node.a.scalar))
            if node.op.name in _BOUNDS:
                bounded.add(name)
        elif node.op.classes is not None:
            name, path = _source(node.inputs[1])
            if name in names:
                readers.append(_Reader(node, name, path, masked[name]))
    return [each for each in readers if each.input not in bounded]


def _source(entry: Entry) -> tuple[str, list[Entry]]:
    """Return the variable whose values an entry holds, and the operators in between; "" if it is computed."""
    path: list[Entry] = []
    node = entry[0]
    while node.op is not None:
        if node.op.name not in _SAME_VALUES and node.op.name not in _OTHER_ORDER:
            return "", []
        path.append(entry)
        entry = node.inputs[0]
        node = entry[0]
    return node.name, path[::-1]


def _shapes_of(
    entries: Sequence[Entry], known: Mapping[str, tuple[int, ...]]
) -> dict[Entry, tuple[int, ...]]:
    part = Symbol(entries)
    names = set(part.list_arguments())
    try:
        found = part.infer_shape_partial(**{name: known[name] for name in known if name in names})[1]
    except MXNetError:  # the batch does not fit the network, which forward says better
        return {}
    return {entry: tuple(shape) for entry, shape in zip(entries, found) if shape}


def _wrong_label(
    reader: _Reader, rule: ClassLabels, array: NDArray, axis: int, pad: int
) -> InvalidLabel | None:
    operator: Any = reader.node.op
    fed = numbers_of(array).detach()
    if not fed.numel():
        return None
    places = _places(reader.path, fed)
    labels = fed.flatten()[places.flatten()].view(places.shape) if reader.path else fed
    labels = labels.double() if labels.is_floating_point() else labels.long()
    is_read = torch.ones_like(labels, dtype=torch.bool) if rule.reads is None else rule.reads(labels)
    for value in reader.masked:
        is_read &= labels != value
    rows = places // prod(fed.shape[axis + 1 :]) % fed.shape[axis]
    if isinstance(array, RaggedNDArray):
        rows = array.stored.row_numbers()[rows]
    if pad:
        is_read &= rows < array.shape[axis] - pad
    is_class = (labels >= 0) & (labels < rule.count)
    if labels.is_floating_point():
        is_class &= labels == labels.floor()
    wrong = (is_read & ~is_class).flatten()
    if not wrong.any():
        return None
    at = int(wrong.nonzero()[0])
    return InvalidLabel(
        reader.input,
        labels.flatten()[at].item(),
        int(rows.flatten()[at]),
        f"{operator.name} {reader.node.name!r}",
        rule.count,
        int(wrong.sum()),
        int(is_read.sum()),
    )


def _places(path: Sequence[Entry], fed: torch.Tensor) -> torch.Tensor:
    """Return for each label that is read where it lies among those that are fed."""
    found = torch.arange(fed.numel(), device=fed.device).view(fed.shape)
    env = Env(fed.device, None, False)
    for node, output in path:
        operator: Any = node.op
        if operator.name in _OTHER_ORDER:
            result = operator.run(node.a, env, found)
            found = result[output] if isinstance(result, (tuple, list)) else result
    return found
