"""`BatchWorld` and `DynamicBatchWorld`: a copy of a world for each row of a batch, whose agents act together.

Source: ParlAI's dynamic batching of 2019; Morishita et al. (2017), see `examples`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ..base import ArgumentError
from .agent import int_option
from .teachers import FixedDialogTeacher
from .worlds import DialogPartnerWorld, MultiAgentDialogWorld, World, check_texts, validate


class WorldWrapper(World):
    """A world whose copies of another one parley; what is asked about the task, the original answers."""

    def __init__(self, opt: Mapping[str, Any], world: World) -> None:
        super().__init__(opt)
        self.world = world
        self.worlds: list[World] = []

    def getID(self) -> str:
        return self.world.getID()

    def get_agents(self) -> list[Any]:
        return self.world.get_agents()

    def _epoch_size(self, which: int) -> int:
        return self.world._epoch_size(which)

    def share(self) -> dict[str, Any]:
        return self.world.share()

    def _report(self) -> dict[str, Any]:
        return self.world.report()

    def reset_metrics(self) -> None:
        self.world.reset_metrics()

    def save_agents(self) -> None:
        self.world.save_agents()

    def _display(self, title: str, rows: Sequence[int]) -> str:
        shown = [f"[--{title}--]"]
        for number in rows:
            shown += [f"[batch world {number}:]", self.worlds[number].display()]
        return "\n".join([*shown, "[--end of batch--]"])

    def reset(self) -> None:
        self.world.reset()
        for row in self.worlds:
            row.reset()

    def shutdown(self) -> None:
        for row in self.worlds:
            row.shutdown()
        self.world.shutdown()


def row_copy(world: World, index: int, **changes: Any) -> World:
    """Return a copy of a world for a row of a batch.

    Args:
        index: number of the row.
    """
    return world_from_shared(with_numbers(world.share(), {"batchindex": index, **changes}))


def world_from_shared(shared: Mapping[str, Any]) -> World:
    """Return a copy of a world from what its `share` returned."""
    return shared["world_class"](shared["opt"], None, shared)  # type: ignore[no-any-return]


def with_numbers(shared: Any, numbers: Mapping[str, int]) -> Any:
    """Return what a world shares with numbers in every dict of options and every agent's dict.

    Args:
        numbers: such as ``{"batchindex": 0}``.
    """
    found = dict(shared)
    found["opt"] = {**shared["opt"], **numbers}
    if "world_class" in shared:  # an agent's own keys may have any name
        for key in ("agents", "worlds"):
            if key in shared:
                found[key] = [with_numbers(each, numbers) for each in shared[key]]
    return {**found, **numbers}


def batch_replies(agent: Any, observations: Any, count: int) -> Sequence[Any]:
    """Return what the `batch_act` of an agent says, a message for each row.

    Args:
        count: how many rows there are; of more messages the first ones count.
    """
    acts = agent.batch_act(observations)
    length = len(acts) if isinstance(acts, (list, tuple)) else None
    if length is None or length < count:
        said = f"something of type {type(acts).__name__}" if length is None else f"{length} messages"
        raise ArgumentError(
            f"batch_act of agent {agent.getID()!r} ({type(agent).__name__}) returned {said} for {count} rows; it has "
            "to return a list with one message for each row, also for rows whose observation has no text"
        )
    return acts if length == count else acts[:count]  # type: ignore[no-any-return]


def has_batch_act(agent: Any) -> bool:
    """Say whether an agent acts for all rows at once."""
    return hasattr(agent, "batch_act") and bool(getattr(agent, "use_batch_act", True))


def observed_none_error(agent: Any, row: int) -> ArgumentError:
    """Return the error for a copy whose `observe` returned None."""
    return ArgumentError(
        f"observe of agent {agent.getID()!r} ({type(agent).__name__}) returned None in row {row}; agents should return "
        "what they observed"
    )


_DICT = frozenset({dict})
_PLAIN = (DialogPartnerWorld, MultiAgentDialogWorld)
"""Worlds whose agents are always the same, and speak to each other directly."""


class BatchWorld(WorldWrapper):
    """Rows of a batch, each of which is a copy of a world, made of what that shares.

    One `parley` is one example for every row. The agents act in turn: `batch_act` of the *original* agent if it has
    one and its attribute ``use_batch_act`` is not False, else `act` of each row's copy. Every other agent's copies
    then observe what was said in their rows, and what their `observe` returns is what `batch_act` gets.

    Args:
        opt: options; ``batchsize``: number of rows.

    Attributes:
        world: the original world.
        worlds: the rows; ``batchindex`` in the options of all that is in them tells their number.

    Raises:
        ArgumentError: the batch size is no whole number from 1, or an agent breaks the rules above.

    Example:
        >>> from dpmodule.agents import RepeatLabelAgent, create_task_world
        >>> opt = {"task": "reverse", "datatype": "valid", "batchsize": 4}
        >>> world = BatchWorld(opt, create_task_world(opt, [RepeatLabelAgent(opt)]))
        >>> world.parley()
        >>> world.report()["total"]
        4
    """

    def __init__(self, opt: Mapping[str, Any], world: World) -> None:
        super().__init__(opt, world)
        self.worlds = [row_copy(world, index) for index in range(int_option(self.opt, "batchsize", 1))]
        count = len(world.get_agents())
        self.acts = [None] * count
        self.batch_observations: list[Any] = [None] * count
        self._chooses_task = any(hasattr(row, "parley_init") for row in self.worlds)
        # what never changes is looked up once: half of a trivial agent's time would go there
        is_plain = all(type(row) in _PLAIN for row in self.worlds)
        self._columns = list(zip(*(row.get_agents() for row in self.worlds))) if is_plain else None
        self._row_acts = [row.get_acts() for row in self.worlds]
        self._observes_rows = [FixedDialogTeacher.observes_rows(column) for column in self._columns or ()]

    def parley(self) -> None:
        if self._chooses_task:
            for row in self.worlds:
                row.parley_init()  # type: ignore[attr-defined]
        observations = self.batch_observations
        for index in range(len(self.acts)):
            acts = self.acts[index] = self.batch_act(index, observations[index])
            try:
                for other in range(len(self.acts)):
                    seen = self.batch_observe(other, acts, index)
                    if seen is not None:
                        observations[other] = seen
            except TypeError:
                check_texts(acts, self.world.get_agents()[index])
                raise
        self.update_counters()

    def batch_act(self, index: int, batch_observation: Sequence[Any] | None) -> Sequence[Any]:
        """Return what an agent says in every row.

        Args:
            batch_observation: what its copies' `observe` returned.

        Raises:
            ArgumentError: it returned another number of messages than there are rows, or something else than messages.
        """
        agent = self.world.get_agents()[index]
        if has_batch_act(agent):
            acts = batch_replies(agent, batch_observation, len(self.worlds))
        else:
            acts = [each.act() for each in self._copies(index)]
        if set(map(type, acts)) != _DICT:
            for number, act in enumerate(acts):
                validate(act, agent, number)
        self._keep(index, acts)
        return acts

    def _keep(self, index: int, acts: Sequence[Any]) -> None:
        """Let every row know what was said in it."""
        if self._columns is not None:
            for kept, act in zip(self._row_acts, acts):
                kept[index] = act
            return
        for row, act in zip(self.worlds, acts):
            row.get_acts()[index] = act
            if hasattr(row, "execute"):
                row.execute(row.get_agents()[index], act)

    def batch_observe(self, index: int, batch_actions: Sequence[Any], index_acting: int) -> list[Any] | None:
        """Let an agent's copies observe what another one said in every row.

        Args:
            batch_actions: what was said.
            index_acting: number of the agent that said it.

        Returns:
            What their `observe` returned; None for the agent that spoke, unless the world has a word in it.

        Raises:
            ArgumentError: an `observe` returned None.
        """
        copies = self._copies(index)
        if self._columns is not None:
            if index == index_acting:
                return None
            if self._observes_rows[index]:
                FixedDialogTeacher.observe_rows(copies, batch_actions)
                return list(batch_actions)
            seen = [agent.observe(act) for agent, act in zip(copies, batch_actions)]
            if type(None) in set(map(type, seen)):
                raise observed_none_error(copies[seen.index(None)], seen.index(None))
            return seen
        return self._observe_through(copies, batch_actions, index == index_acting)

    def _observe_through(
        self, copies: Sequence[Any], batch_actions: Sequence[Any], is_own: bool
    ) -> list[Any] | None:
        """Let agents observe what their worlds, which may have an `observe` of their own, let through."""
        seen: list[Any] = []
        for number, (row, agent, act) in enumerate(zip(self.worlds, copies, batch_actions)):
            through = getattr(row, "observe", None)
            if through is None and is_own:
                return None
            shown = act if through is None else through(agent, act)
            found = None if shown is None else agent.observe(shown)
            if shown is not None and found is None:
                raise observed_none_error(agent, number)
            seen.append(found)
        return None if is_own and not any(each is not None for each in seen) else seen

    def _copies(self, index: int) -> Sequence[Any]:
        if self._columns is not None:
            return self._columns[index]
        return [row.get_agents()[index] for row in self.worlds]

    def display(self) -> str:
        return self._display(f"batchsize {len(self.worlds)}", range(len(self.worlds)))

    def _rows(self) -> int:
        return len(self.worlds)

    def episode_done(self) -> bool:
        return all(row.episode_done() for row in self.worlds)

    def epoch_done(self) -> bool:
        return (
            _is_sorted(self.world) and self.world.epoch_done() or all(row.epoch_done() for row in self.worlds)
        )

    def reset(self) -> None:
        super().reset()
        self.acts[:] = self.batch_observations[:] = [None] * len(self.acts)


def _is_sorted(world: World) -> bool:
    return bool(getattr(world.get_agents()[0], "use_batch_act", False)) if world.get_agents() else False


_BUFFER = 256
_EMPTY_KEYS = frozenset({"episode_done", "id"})


class _PendingObservation:
    """What a row's agent has observed and not answered yet."""

    __slots__ = ("age", "observation", "row", "tokens")

    def __init__(self, row: int, observation: Any, tokens: int, age: int) -> None:
        self.row, self.observation, self.tokens, self.age = row, observation, tokens, age


class DynamicBatchWorld(WorldWrapper):
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
        self._budget = int_option(self.opt, "max_batch_tokens", None)
        most = int_option(self.opt, "batchsize", 1)
        self._most = most if most > 1 else self._budget
        wanted = int_option(self.opt, "batch_buffer", _BUFFER)
        rows = max(min(wanted, world.num_episodes() or wanted), 1)
        # a row asks for single examples, in the order of its episodes
        self.worlds = [row_copy(world, index, batch_sort=False) for index in range(rows)]
        self._waiting: list[_PendingObservation] = []
        self._idle = list(range(rows))
        self._answered: list[int] = []
        self._asked = self._examples_seen = 0

    def parley(self) -> None:
        self._ask_idle_rows()
        batch = self._take_batch()
        self._answered = [each.row for each in batch]
        if batch:
            self._answer(batch, self._replies(batch))
        self._examples_seen += len(batch)
        self.update_counters()

    def _ask_idle_rows(self) -> None:
        """Let teachers ask in the rows that are idle."""
        idle, self._idle = self._idle, []
        for number in idle:
            row = self.worlds[number]
            if hasattr(row, "parley_init"):
                row.parley_init()
            teacher, student = row.get_agents()
            act = row.get_acts()[0] = validate(teacher.act(), teacher, number)
            if _EMPTY_KEYS.issuperset(act):
                if not row.epoch_done():
                    self._idle.append(number)
                continue
            seen = student.observe(act)
            if seen is None:
                raise observed_none_error(student, number)
            self._waiting.append(_PendingObservation(number, seen, _tokens(seen, act), self._asked))
            self._asked += 1
        self._waiting.sort(key=lambda each: each.tokens)

    def _take_batch(self) -> list[_PendingObservation]:
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

    def _replies(self, batch: Sequence[_PendingObservation]) -> Sequence[Any]:
        agent = self.world.get_agents()[1]
        if not has_batch_act(agent):
            return [self.worlds[each.row].get_agents()[1].act() for each in batch]
        return batch_replies(agent, [each.observation for each in batch], len(batch))

    def _answer(self, batch: Sequence[_PendingObservation], replies: Sequence[Any]) -> None:
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
        return self._display(f"batch of {len(self._answered)}", self._answered)

    def get_total_exs(self) -> int:
        return self._examples_seen

    def episode_done(self) -> bool:
        return all(self.worlds[number].episode_done() for number in self._answered)

    def epoch_done(self) -> bool:
        return not self._waiting and all(row.epoch_done() for row in self.worlds)

    def reset(self) -> None:
        super().reset()
        self._waiting.clear()
        self._idle, self._answered = list(range(len(self.worlds))), []


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
