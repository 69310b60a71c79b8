"""Joining cells to chains, and ordering the steps so that each chain can run in one call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from .cells import DefUse, RecurrentStep

_MIN_LENGTH = 3
"""Minimal number of steps of a chain; a kernel for fewer is not faster."""

_Weights = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Chain:
    """Steps of one recurrent network, each reading the state of the previous one.

    Attributes:
        recurrent: index of the state's map of each cell.
    """

    cells: list[RecurrentStep]
    recurrent: list[int]

    @property
    def inputs(self) -> list[int]:
        """The inputs of the steps, without the states."""
        return [cell.maps[1 - r].data for cell, r in zip(self.cells, self.recurrent, strict=True)]

    @property
    def begin(self) -> list[int]:
        """The initial states: hidden, and cell of an LSTM."""
        first = self.cells[0]
        hidden = first.maps[self.recurrent[0]].data
        return [hidden, first.cell_before] if first.cell_before >= 0 else [hidden]

    @property
    def weights(self) -> list[int]:
        """Weights and biases: the weights of input and state, then their biases, or -1."""
        cell, r = self.cells[0], self.recurrent[0]
        ours, states = cell.maps[1 - r], cell.maps[r]
        return [ours.weight, states.weight, ours.bias, states.bias]

    @property
    def orders(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Positions of the gates in the maps of the input and of the state."""
        cell, r = self.cells[0], self.recurrent[0]
        return cell.orders[1 - r], cell.orders[r]

    def reads(self) -> Iterator[int]:
        """Yield all values that the chain reads."""
        yield from self.inputs
        yield from self.begin
        yield from (value for value in self.weights if value >= 0)


def join_cells(cells: list[RecurrentStep]) -> list[Chain]:
    """Return the chains that are long enough; each cell is in at most one of them."""
    by_hidden = {cell.hidden: number for number, cell in enumerate(cells)}
    links: list[tuple[int, int, int]] = []
    votes: Counter[tuple[frozenset[_Weights], _Weights]] = Counter()
    for number, cell in enumerate(cells):
        for r in (0, 1) if cell.recurrent < 0 else (cell.recurrent,):
            before = by_hidden.get(cell.maps[r].data, number)
            if before != number and _follows(cells[before], cell, r):
                links.append((before, number, r))
                votes[_pair(cell), cell.maps[r][1:]] += 1
    following: dict[int, tuple[int, int]] = {}
    followers: set[int] = set()
    for before, number, r in links:
        cell = cells[number]
        # networks that share both weights between layers could match along either axis
        ours, other = ((votes[_pair(cell), each[1:]], each[1:]) for each in (cell.maps[r], cell.maps[1 - r]))
        if ours > other and before not in following and number not in followers:
            following[before] = number, r
            followers.add(number)
    starts = [number for number in following if number not in followers]
    chains = [_follow(cells, start, following) for start in starts]
    return [chain for chain in chains if len(chain.cells) >= _MIN_LENGTH]


def _pair(cell: RecurrentStep) -> frozenset[_Weights]:
    return frozenset(linear[1:] for linear in cell.maps)


def _follows(before: RecurrentStep, cell: RecurrentStep, r: int) -> bool:
    """Return True if a cell follows another when its map `r` is the state's."""
    if before.mode != cell.mode or before.cell != cell.cell_before:
        return False
    same = _matching(before, cell, r)
    if same < 0 or before.recurrent not in (-1, same):
        return False
    return (before.orders[same], before.orders[1 - same]) == (cell.orders[r], cell.orders[1 - r])


def _matching(before: RecurrentStep, cell: RecurrentStep, r: int) -> int:
    """Return the index of the map with the weights of another cell's map `r`; -1 if the other weights differ."""
    for same in (0, 1):
        if before.maps[same][1:] == cell.maps[r][1:] and before.maps[1 - same][1:] == cell.maps[1 - r][1:]:
            return same
    return -1


def _follow(cells: list[RecurrentStep], start: int, following: dict[int, tuple[int, int]]) -> Chain:
    second, r = following[start]
    chain = Chain([cells[start]], [_matching(cells[start], cells[second], r)])
    while start in following:
        start, r = following[start]
        chain.cells.append(cells[start])
        chain.recurrent.append(r)
    return chain


def arrange(uses: DefUse, chains: list[Chain]) -> tuple[list[Chain], list[int | Chain]]:
    """Sort steps and chains so that all inputs of each come before it.

    Chains without such an order are dropped: their inputs depend on their own states, as in decoders with feedback.
    Steps that draw random numbers or have side effects keep their order.

    Returns:
        (remaining chains, order of the chains and of all steps outside them)
    """
    while chains:
        sorting = _TopologicalOrder(uses, chains)
        dropped = sorting.find()
        if dropped is None:
            return chains, sorting.order
        chains = [chain for chain in chains if chain is not dropped]
    return [], []


class _TopologicalOrder:
    """A depth-first topological sort of steps and chains."""

    def __init__(self, uses: DefUse, chains: list[Chain]) -> None:
        self.order: list[int | Chain] = []
        self._uses = uses
        self._owner: dict[int, Chain] = {i: chain for chain in chains for c in chain.cells for i in c.steps}
        self._before: dict[int, int] = {}
        last = -1
        for index, step in enumerate(uses.low.steps):
            if index not in self._owner and uses.low.has_effect(step):
                if last >= 0:
                    self._before[index] = last
                last = index

    def _needs(self, item: int | Chain) -> Iterator[int | Chain]:
        values = self._uses.inputs(item) if isinstance(item, int) else item.reads()
        for value in values:
            maker = self._uses.made.get(value)
            if maker is not None:
                yield self._owner.get(maker[0], maker[0])
        if isinstance(item, int) and item in self._before:
            yield self._before[item]

    def find(self) -> Chain | None:
        """Fill `order`, or return a chain that must be dropped."""
        done: set[int | Chain] = set()
        for index in range(len(self._uses.low.steps)):
            item = self._owner.get(index, index)
            if item not in done:
                dropped = self._visit(item, done)
                if dropped is not None:
                    return dropped
        return None

    def _visit(self, item: int | Chain, done: set[int | Chain]) -> Chain | None:
        """Append an item after everything it needs; return a chain of a cycle, if there is one."""
        path: dict[int | Chain, Iterator[int | Chain]] = {item: self._needs(item)}
        while path:
            current, needs = next(reversed(path.items()))
            child = next((need for need in needs if need not in done), None)
            if child is None:
                del path[current]
                done.add(current)
                self.order.append(current)
            elif child in path:
                cycle = list(path)[list(path).index(child) :]
                chains = [item for item in cycle if isinstance(item, Chain)]
                return min(chains, key=lambda chain: len(chain.cells))
            else:
                path[child] = self._needs(child)
        return None
