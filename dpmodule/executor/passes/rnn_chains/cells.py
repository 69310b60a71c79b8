"""Finding the operators that compute one step of a recurrent network.

A cell is matched from its last operator backwards, by its arithmetic (i, f, g, o, r, z and n are gates, each computed
from a linear map of the input and one of the state)::

    LSTM   h = o * tanh(c),  c = f * c' + i * g
    GRU    h = (1 - z) * n + z * h',  n = tanh(input's part + r * state's part)
    plain  h = tanh or relu of the sum of both maps

Operands of sums and products may come in either order. Values between the linear maps and the states must have no other
readers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ...lowering import Lowered, Step

_KINDS = {
    "elemwise_add": "add",
    "elemwise_mul": "mul",
    "elemwise_sub": "sub",
    "ones_like": "ones",
    "relu": "relu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
}


def kinds(low: Lowered) -> list[str]:
    """Return the kind of each step that can be part of a cell, else "".

    Linear maps of rows are "linear", operators that split the second axis into three are "split3".
    """
    return [_kind(low, step) for step in low.steps]


def _kind(low: Lowered, step: Step) -> str:
    op, a = low.operator(step)
    if op is None or step.takes_env:
        return ""
    if op.name == "Activation":
        return str(a.act_type)
    if op.name == "FullyConnected":
        return "linear" if a.flatten else ""
    if op.name == "SliceChannel":
        return f"split{a.num_outputs}" if a.axis in (1, -1) and not a.squeeze_axis else ""
    if op.name == "_rminus_scalar":
        return "one_minus" if a.scalar == 1 else ""
    return _KINDS.get(op.name, "")


class DefUse:
    """The maker and the readers of every value.

    Attributes:
        made: (step, output) that makes a value.
    """

    def __init__(self, low: Lowered, kinds: list[str]) -> None:
        self.low = low
        self.kinds = kinds
        self.made: dict[int, tuple[int, int]] = {}
        self.readers: dict[int, list[int]] = {}
        self.kept = low.kept()
        for index, step in enumerate(low.steps):
            for value in step.inputs:
                self.readers.setdefault(value, []).append(index)
            for position, value in enumerate(step.outputs):
                self.made[value] = index, position

    def maker(self, value: int, kind: str) -> int:
        """Return the step that makes a value if it has the given kind, else -1."""
        index = self.made.get(value, (-1, 0))[0]
        return index if index >= 0 and self.kinds[index] == kind else -1

    def inputs(self, index: int) -> list[int]:
        """Return the inputs of a step."""
        return self.low.steps[index].inputs

    def both_orders(self, index: int) -> Iterator[tuple[int, int]]:
        """Yield the two operands of a step in both orders."""
        first, second = self.inputs(index)
        yield first, second
        if first != second:
            yield second, first

    def match(self, value: int, kind: str, one: str, other: str) -> Iterator[tuple[int, int, int]]:
        """Match a value made by a kind of step whose operands are made by steps of two kinds, in either order.

        Returns:
            The step, and the steps that make its operands, for each match.
        """
        index = self.maker(value, kind)
        if index >= 0:
            for first, second in self.both_orders(index):
                left, right = self.maker(first, one), self.maker(second, other)
                if left >= 0 and right >= 0:
                    yield index, left, right

    def are_closed(self, steps: set[int], results: tuple[int, ...]) -> bool:
        """Return True if other steps read only `results` of the values that some steps make."""
        for index in steps:
            for value in self.low.steps[index].outputs:
                if value in results:
                    continue
                if value in self.kept or not steps.issuperset(self.readers.get(value, ())):
                    return False
        return True


class Linear(NamedTuple):
    """A linear map: its input, its weight and its bias, or -1."""

    data: int
    weight: int
    bias: int


@dataclass(slots=True)
class RecurrentStep:
    """One step of a recurrent network.

    Attributes:
        maps: the linear maps of the input and of the state, in either order.
        orders: positions of the gates i, f, g, o or r, z, n in each map.
        recurrent: index of the state's map; -1 if only a neighbouring cell determines it.
        cell: the new state of an LSTM's cell, else -1.
        cell_before: the previous state of an LSTM's cell, else -1.
        mapping: the steps of the maps, which may have other readers, since equal maps were merged.
    """

    mode: str
    maps: tuple[Linear, Linear]
    orders: tuple[tuple[int, ...], tuple[int, ...]]
    recurrent: int
    hidden: int
    cell: int
    cell_before: int
    steps: set[int]
    mapping: set[int]


def find_cells(uses: DefUse) -> list[RecurrentStep]:
    """Return all cells, in the order of their last steps."""
    cells = []
    for index, kind in enumerate(uses.kinds):
        finder = _FINDERS.get(kind)
        cell = None if finder is None else finder(uses, index)
        if (
            cell is not None
            and cell.maps[0][1:] != cell.maps[1][1:]
            and uses.are_closed(cell.steps, (cell.hidden, cell.cell))
        ):
            cells.append(cell)
    return cells


def _linear(uses: DefUse, index: int) -> Linear:
    data, weight, *bias = uses.inputs(index)
    return Linear(data, weight, bias[0] if bias else -1)


def _pieces(uses: DefUse, values: list[int], kind: str) -> tuple[int, tuple[int, ...]]:
    """Return the split that makes all of some values, and their indices among its outputs; -1 if there is none."""
    index = uses.maker(values[0], kind)
    positions = [uses.made.get(value, (-2, 0)) for value in values]
    if index < 0 or any(maker != index for maker, _ in positions):
        return -1, ()
    order = tuple(position for _, position in positions)
    return (index, order) if len(set(order)) == len(order) else (-1, ())


def _find_lstm(uses: DefUse, last: int) -> RecurrentStep | None:
    """Match an LSTM cell by its last product."""
    (hidden,) = uses.low.steps[last].outputs
    for _, leave, tanh in uses.match(hidden, "mul", "sigmoid", "tanh"):
        cell = uses.inputs(tanh)[0]
        for plus, keeps, adds in uses.match(cell, "add", "mul", "mul"):
            products = uses.low.steps[keeps].outputs[0], uses.low.steps[adds].outputs[0]
            for _, enter, new in uses.match(products[1], "mul", "sigmoid", "tanh"):
                for forget_value, before in uses.both_orders(keeps):
                    gates = [enter, uses.maker(forget_value, "sigmoid"), new, leave]
                    if gates[1] < 0:
                        continue
                    steps = {last, tanh, plus, keeps, adds, *gates}
                    match = _lstm_of_gates(uses, gates, (hidden, cell, before), steps)
                    if match is not None:
                        return match
    return None


def _lstm_of_gates(
    uses: DefUse, gates: list[int], states: tuple[int, int, int], steps: set[int]
) -> RecurrentStep | None:
    """Build an LSTM cell from its gates' activations, if they are four parts of one sum."""
    split, order = _pieces(uses, [uses.inputs(gate)[0] for gate in gates], "split4")
    if split < 0:
        return None
    for plus, one, other in uses.match(uses.inputs(split)[0], "add", "linear", "linear"):
        maps = _linear(uses, one), _linear(uses, other)
        return RecurrentStep("lstm", maps, (order, order), -1, *states, steps | {split, plus}, {one, other})
    return None


def _find_gru(uses: DefUse, last: int) -> RecurrentStep | None:
    """Match a GRU cell by its last sum."""
    (hidden,) = uses.low.steps[last].outputs
    for _, fades, keeps in uses.match(hidden, "add", "mul", "mul"):
        for rest, new_value in uses.both_orders(fades):
            new = uses.maker(new_value, "tanh")
            if new < 0:
                continue
            for update_value, before in uses.both_orders(keeps):
                update = uses.maker(update_value, "sigmoid")
                others = _complement(uses, rest, update_value)
                if update < 0 or not others:
                    continue
                steps = {last, fades, keeps, new, update, *others}
                match = _gru_of_gates(uses, update, new, (hidden, before), steps)
                if match is not None:
                    return match
    return None


def _complement(uses: DefUse, value: int, gate: int) -> tuple[int, ...]:
    """Return the steps that compute a value as one minus a gate; () if there are none."""
    index = uses.maker(value, "one_minus")
    if index >= 0:
        return (index,) if uses.inputs(index)[0] == gate else ()
    index = uses.maker(value, "sub")
    if index < 0 or uses.inputs(index)[1] != gate:
        return ()
    ones = uses.maker(uses.inputs(index)[0], "ones")
    return (index, ones) if ones >= 0 and uses.inputs(ones)[0] == gate else ()


def _gru_of_gates(
    uses: DefUse, update: int, new: int, states: tuple[int, int], steps: set[int]
) -> RecurrentStep | None:
    """Build a GRU cell from the activations of its update and new gates, if all gates are parts of two maps."""
    plus = uses.maker(uses.inputs(new)[0], "add")
    if plus < 0:
        return None
    for own, product in uses.both_orders(plus):
        times = uses.maker(product, "mul")
        if times < 0:
            continue
        for reset_value, reached in uses.both_orders(times):
            reset = uses.maker(reset_value, "sigmoid")
            if reset < 0:
                continue
            sums = [uses.maker(uses.inputs(gate)[0], "add") for gate in (reset, update)]
            inside = steps | {plus, times, reset, *sums}
            match = None if min(sums) < 0 else _gru_of_sums(uses, sums, (own, reached), states, inside)
            if match is not None:
                return match
    return None


def _gru_of_sums(
    uses: DefUse, sums: list[int], new: tuple[int, int], states: tuple[int, int], steps: set[int]
) -> RecurrentStep | None:
    """Build a GRU cell from the sums in its reset and update gates, and the two parts of its new gate."""
    for reset in uses.both_orders(sums[0]):
        for update in uses.both_orders(sums[1]):
            matches = [_pieces(uses, list(parts), "split3") for parts in zip(reset, update, new, strict=True)]
            splits = [split for split, _ in matches]
            if min(splits) < 0 or splits[0] == splits[1]:
                continue
            linears = [uses.maker(uses.inputs(split)[0], "linear") for split in splits]
            if min(linears) < 0 or uses.inputs(linears[1])[0] != states[1]:
                continue
            maps = _linear(uses, linears[0]), _linear(uses, linears[1])
            orders = matches[0][1], matches[1][1]
            return RecurrentStep("gru", maps, orders, 1, states[0], -1, -1, steps, {*splits, *linears})
    return None


def _find_plain(uses: DefUse, last: int) -> RecurrentStep | None:
    """Match a plain recurrent cell by its last activation."""
    step = uses.low.steps[last]
    for plus, one, other in uses.match(step.inputs[0], "add", "linear", "linear"):
        maps = _linear(uses, one), _linear(uses, other)
        mode = f"rnn_{uses.kinds[last]}"
        return RecurrentStep(
            mode, maps, ((0,), (0,)), -1, step.outputs[0], -1, -1, {last, plus}, {one, other}
        )
    return None


_FINDERS = {"mul": _find_lstm, "add": _find_gru, "tanh": _find_plain, "relu": _find_plain}
