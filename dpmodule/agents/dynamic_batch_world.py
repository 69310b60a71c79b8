"""`DynamicBatchWorld`: batches of as many rows of similar length as fit into a number of tokens.

Source: ParlAI's dynamic batching of 2019; Morishita et al. (2017), see `examples`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ..base import ArgumentError
from .batch_world import WorldOfCopies, batch_of_replies, has_batch_act, row_of, silent
from .options import whole
from .worlds import World, check_texts, validate

_BUFFER = 256
_NO_EXAMPLE = frozenset({"episode_done", "id"})


class _Waiting:
    """What a row's agent has observed and not answered yet."""

    __slots__ = ("age", "observation", "row", "tokens")

    def __init__(self, row: int, observation: Any, tokens: int, age: int) -> None:
        self.row, self.observation, self.tokens, self.age = row, observation, tokens, age


class DynamicBatchWorld(WorldOfCopies):
    """Rows, each of which is a copy of a world, that are answered in batches up to a number of tokens.

    In every row a teacher asks, and its agent's copy observes the question. Observations wait, sorted by length. One
    `parley` answers the batch that has the oldest of them in it, fits into the budget, and has the most tokens that are
    no padding; a question that is too long for the budget is a batch of its own. `batch_act` of the original agent
    answers, or `act` of the copies, as in `BatchWorld`.

    Args:
        opt: options; ``max_batch_tokens``: the budget: rows times the longest of them and 1, in tokens, of which a text
            has one more than spaces; ``batchsize``: the most rows of a batch, if above 1; ``batch_buffer``: how many
            rows there are, of which a batch takes some (default 256, and no more than episodes).
        world: the original world, of a teacher and one other agent.

    Attributes:
        world: the original world.
        worlds: the rows.

    Raises:
        ArgumentError: an option is no whole number from 1, there are not two agents, or they break the rules.

    Example:
        >>> from dpmodule.agents import RepeatLabelAgent, create_task_world
        >>> opt = {"task": "reverse", "datatype": "valid", "max_batch_tokens": 100}
        >>> world = DynamicBatchWorld(opt, create_task_world(opt, [RepeatLabelAgent(opt)]))
        >>> while not world.epoch_done():
        ...     world.parley()
        >>> world.report()["total"] == world.num_examples()
        True
    """

    def __init__(self, opt: Mapping[str, Any], world: World) -> None:
        super().__init__(opt, world)
        if len(world.get_agents()) != 2:
            raise ArgumentError(
                f"world has {len(world.get_agents())} agents, expected two: a teacher and another"
            )
        self._budget = whole(self.opt, "max_batch_tokens", None)
        most = whole(self.opt, "batchsize", 1)
        self._most = most if most > 1 else self._budget
        wanted = whole(self.opt, "batch_buffer", _BUFFER)
        rows = max(min(wanted, world.num_episodes() or wanted), 1)
        # a row asks for single examples, in the order of its episodes
        self.worlds = [row_of(world, index, batch_sort=False) for index in range(rows)]
        self._waiting: list[_Waiting] = []
        self._idle = list(range(rows))
        self._answered: list[int] = []
        self._asked = self._examples_seen = 0

    def parley(self) -> None:
        self._ask()
        batch = self._take()
        self._answered = [each.row for each in batch]
        if batch:
            self._answer(batch, self._replies(batch))
        self._examples_seen += len(batch)
        self.update_counters()

    def _ask(self) -> None:
        """Let teachers ask in the rows that are idle."""
        idle, self._idle = self._idle, []
        for number in idle:
            row = self.worlds[number]
            if hasattr(row, "parley_init"):
                row.parley_init()
            teacher, student = row.get_agents()
            act = row.get_acts()[0] = validate(teacher.act(), teacher, number)
            if _NO_EXAMPLE.issuperset(act):
                if not row.epoch_done():
                    self._idle.append(number)
                continue
            seen = student.observe(act)
            if seen is None:
                raise silent(student, number)
            self._waiting.append(_Waiting(number, seen, _tokens(seen, act), self._asked))
            self._asked += 1
        self._waiting.sort(key=lambda each: each.tokens)

    def _take(self) -> list[_Waiting]:
        """Return the next batch, and let it wait no more."""
        waiting = self._waiting
        if not waiting:
            return []
        oldest = min(range(len(waiting)), key=lambda place: waiting[place].age)
        lengths = [each.tokens for each in waiting]
        first, end = best_window(lengths, oldest, self._budget, self._most)
        batch = waiting[first:end]
        del waiting[first:end]
        return batch

    def _replies(self, batch: Sequence[_Waiting]) -> Sequence[Any]:
        agent = self.world.get_agents()[1]
        if not has_batch_act(agent):
            return [self.worlds[each.row].get_agents()[1].act() for each in batch]
        return batch_of_replies(agent, [each.observation for each in batch], len(batch))

    def _answer(self, batch: Sequence[_Waiting], replies: Sequence[Any]) -> None:
        """Let the teachers observe the replies."""
        agent = self.world.get_agents()[1]
        for each, reply in zip(batch, replies):
            row = self.worlds[each.row]
            row.get_acts()[1] = validate(reply, agent, each.row)
            try:
                row.get_agents()[0].observe(reply)
            except TypeError:
                check_texts([reply], agent)
                raise
            self._idle.append(each.row)

    def display(self) -> str:
        shown = [f"[--batch of {len(self._answered)}--]"]
        for number in self._answered:
            shown += [f"[batch world {number}:]", self.worlds[number].display()]
        return "\n".join([*shown, "[--end of batch--]"])

    def get_total_exs(self) -> int:
        return self._examples_seen

    def episode_done(self) -> bool:
        return all(self.worlds[number].episode_done() for number in self._answered)

    def epoch_done(self) -> bool:
        return not self._waiting and all(row.epoch_done() for row in self.worlds)

    def reset(self) -> None:
        self.world.reset()
        for row in self.worlds:
            row.reset()
        self._waiting.clear()
        self._idle, self._answered = list(range(len(self.worlds))), []

    def shutdown(self) -> None:
        for row in self.worlds:
            row.shutdown()
        self.world.shutdown()


def best_window(lengths: Sequence[int], place: int, budget: int, most: int) -> tuple[int, int]:
    """Return which of sorted lengths make the fullest batch that has a certain one in it: the first, and the end.

    Args:
        place: the one that has to be in it, even if it alone is too long.
        budget: what the longest and 1, times their number, may be at most.

    Example:
        >>> best_window([1, 1, 2, 5, 30], 2, 12, 100)
        (2, 4)
    """
    sums = [0, *itertools.accumulate(lengths)]
    best, found = -1, (place, place + 1)
    for end in range(place + 1, len(lengths) + 1):
        rows = min(budget // (lengths[end - 1] + 1), most)
        first = max(end - rows, 0)
        if first > place:
            break
        full = sums[end] - sums[first]
        if full > best:
            best, found = full, (first, end)
    return found


def _tokens(seen: Any, act: Mapping[str, Any]) -> int:
    text = seen.get("text") if isinstance(seen, Mapping) else None
    text = act.get("text") if text is None else text
    return text.count(" ") + 1 if isinstance(text, str) else 1
