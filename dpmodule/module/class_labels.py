"""Checks for labels that are not class numbers, such as the label 10 for ten classes."""

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
"""Values of `check_labels`."""

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
"""Operators that pass labels on with their values unchanged."""

_EXCEPT = frozenset({"_equal_scalar", "_not_equal_scalar"})
_BOUNDS = frozenset({"_greater_equal_scalar", "_greater_scalar", "_lesser_equal_scalar", "_lesser_scalar"})
"""Comparisons by which a network masks some labels itself."""


def check_choice(what: str, check_labels: object) -> None:
    """Raise ArgumentError if `check_labels` is not one of its values."""
    if check_labels not in CHOICES:
        raise ArgumentError(f"{what}: check_labels is {check_labels!r}, expected {' or '.join(CHOICES)}")


class NetworkInputs(NamedTuple):
    """A symbol and the inputs that a batch has for it.

    Attributes:
        shapes: shapes of its inputs and labels by name.
        labels: arrays that may hold class numbers, dense or ragged, by name.
        axes: the axis of the samples by name; the first axis if a name is missing.
    """

    symbol: Symbol
    shapes: Mapping[str, tuple[int, ...]]
    labels: Mapping[str, NDArray]
    axes: Mapping[str, int] = MappingProxyType({})


def network_inputs(module: Any, batch: Any, is_first: bool = True) -> NetworkInputs:
    """Return the inputs that a batch has for a bound module of one symbol.

    Args:
        is_first: True if the module reads the batch's data, False if it reads the outputs of another module.
    """
    data = batch.data if is_first else ()
    labels = (getattr(batch, "label", None) or ()) if module.label_shapes else ()
    shapes, arrays, axes = {}, {}, {}
    for bound, values, described in (
        (module.data_shapes, data, "provide_data"),
        (module.label_shapes, labels, "provide_label"),
    ):
        bound = bound or ()
        if len(values) != len(bound):  # a subclass may derive other arrays from a batch
            values = ()
        descs = redescribe(bound, values, getattr(batch, described, None)) if values else bound
        shapes.update({desc.name: tuple(desc.shape) for desc in descs})
        for desc, array in zip(descs, values):
            if isinstance(array, NDArray) and array.stype in ("default", "ragged"):
                arrays[desc.name], axes[desc.name] = array, DataDesc.get_batch_axis(desc.layout)
    return NetworkInputs(module.symbol, shapes, arrays, axes)


@dataclass(frozen=True, slots=True)
class InvalidLabel:
    """A label that is not a class number.

    Attributes:
        row: its index on the axis of the samples.
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
            where: the row in words, such as "sample 3 of the first batch".
        """
        others = f" {self.count} of {self.total} labels are invalid." if self.count > 1 else ""
        return (
            f"{where} has the label {self.value:.10g} in {self.input!r}, which is not one of the {self.classes} "
            f"classes (0 to {self.classes - 1}) of {self.reader}.{others}"
        )


def reads_classes(symbol: Symbol, names: Collection[str]) -> bool:
    """Return True if some operator reads one of the inputs as class numbers."""
    return bool(_readers(symbol, names))


def find_invalid_label(network: NetworkInputs, pad: int = 0) -> InvalidLabel | None:
    """Return the first label that is not a class of the operator that reads it, None if all are valid.

    Labels that `use_ignore` skips or that the network masks by a comparison are not checked, nor are probabilities and
    labels of regressions.

    Args:
        pad: number of padding samples at the end, which may hold any label.
    """
    for reader, rule in _rules(network):
        array = network.labels[reader.input]
        if not _are_classes(numbers_of(array), rule.count):
            invalid = _invalid_label(reader, rule, array, network.axes.get(reader.input, 0), pad)
            if invalid is not None:
                return invalid
    return None


_Rules = list[tuple["_LabelReader", ClassLabels]]
_known: WeakKeyDictionary[Graph, tuple[Any, _Rules]] = WeakKeyDictionary()
"""Operators of a graph that read class numbers, for the shapes of its last inputs."""


def _rules(network: NetworkInputs) -> _Rules:
    """Return the operators that read class numbers, with the rules of their classes."""
    graph = network.symbol.graph
    key = tuple(network.shapes.items()), tuple(network.labels)
    known, rules = _known.get(graph, (None, []))
    if known != key:
        rules = _find_rules(network)
        _known[graph] = key, rules
    return rules


def _find_rules(network: NetworkInputs) -> _Rules:
    readers = _readers(network.symbol, network.labels)
    if not readers:
        return []
    shapes = _shapes_of([entry for reader in readers for entry in reader.node.inputs], network.shapes)
    rules = []
    for reader in readers:
        operator: Any = reader.node.op
        inputs = [shapes.get(entry, ()) for entry in reader.node.inputs]
        rule = operator.classes(reader.node.a, *inputs) if all(inputs) and all(map(all, inputs)) else None
        if rule is not None:
            rules.append((reader, rule))
    return rules


def _are_classes(numbers: torch.Tensor, count: int) -> bool:
    """Return True if all labels, read or not, are class numbers, which is nearly always so."""
    if not numbers.is_cpu or numbers.dtype in (torch.bfloat16, torch.bool):
        return False
    labels = numbers.detach().numpy()
    if not labels.size:
        return True
    is_whole = labels.dtype.kind in "iu" or bool((labels == np.floor(labels)).all())
    return is_whole and labels.min() >= 0 and labels.max() < count


class _LabelReader(NamedTuple):
    """An operator that reads an input as class numbers."""

    node: Node
    input: str
    path: Sequence[Entry]
    masked: Collection[float]


def _readers(symbol: Symbol, names: Collection[str]) -> list[_LabelReader]:
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
                readers.append(_LabelReader(node, name, path, masked[name]))
    return [reader for reader in readers if reader.input not in bounded]


def _source(entry: Entry) -> tuple[str, list[Entry]]:
    """Return the name of the variable whose values an entry holds, and the operators between; "" if it is computed."""
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
    subgraph = Symbol(entries)
    names = set(subgraph.list_arguments())
    try:
        shapes = subgraph.infer_shape_partial(**{name: known[name] for name in known if name in names})[1]
    except MXNetError:  # the batch does not match the network; forward reports that better
        return {}
    return {entry: tuple(shape) for entry, shape in zip(entries, shapes) if shape}


def _invalid_label(
    reader: _LabelReader, rule: ClassLabels, array: NDArray, axis: int, pad: int
) -> InvalidLabel | None:
    operator: Any = reader.node.op
    values = numbers_of(array).detach()
    if not values.numel():
        return None
    positions = _label_positions(reader.path, values)
    labels = values.flatten()[positions.flatten()].view(positions.shape) if reader.path else values
    labels = labels.double() if labels.is_floating_point() else labels.long()
    is_read = torch.ones_like(labels, dtype=torch.bool) if rule.reads is None else rule.reads(labels)
    for value in reader.masked:
        is_read &= labels != value
    rows = positions // prod(values.shape[axis + 1 :]) % values.shape[axis]
    if isinstance(array, RaggedNDArray):
        rows = array.stored.row_numbers()[rows]
    if pad:
        is_read &= rows < array.shape[axis] - pad
    is_class = (labels >= 0) & (labels < rule.count)
    if labels.is_floating_point():
        is_class &= labels == labels.floor()
    invalid = (is_read & ~is_class).flatten()
    if not invalid.any():
        return None
    first = int(invalid.nonzero()[0])
    return InvalidLabel(
        reader.input,
        labels.flatten()[first].item(),
        int(rows.flatten()[first]),
        f"{operator.name} {reader.node.name!r}",
        rule.count,
        int(invalid.sum()),
        int(is_read.sum()),
    )


def _label_positions(path: Sequence[Entry], values: torch.Tensor) -> torch.Tensor:
    """Return the index in the flattened input of each label that an operator reads."""
    positions = torch.arange(values.numel(), device=values.device).view(values.shape)
    env = Env(values.device, None, False)
    for node, output in path:
        operator: Any = node.op
        if operator.name in _OTHER_ORDER:
            result = operator.run(node.a, env, positions)
            positions = result[output] if isinstance(result, (tuple, list)) else result
    return positions
