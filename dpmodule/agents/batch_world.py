"""`BatchWorld` and `DynamicBatchWorld`: a copy of a world for each row of a batch, with agents that act together.

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
    """A world that runs copies of another world; questions about the task go to the original."""

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
        lines = [f"[--{title}--]"]
        for number in rows:
            lines += [f"[batch world {number}:]", self.worlds[number].display()]
        return "\n".join([*lines, "[--end of batch--]"])

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
    """Return a copy of a world from the result of its `share`."""
    return shared["world_class"](shared["opt"], None, shared)  # type: ignore[no-any-return]


def with_numbers(shared: Any, numbers: Mapping[str, int]) -> Any:
    """Return shared state with numbers added to every dict of options and every agent's dict.

    Args:
        numbers: such as ``{"batchindex": 0}``.
    """
    state = dict(shared)
    state["opt"] = {**shared["opt"], **numbers}
    if "world_class" in shared:  # keys of an agent may have any name
        for key in ("agents", "worlds"):
            if key in shared:
                state[key] = [with_numbers(part, numbers) for part in shared[key]]
    return {**state, **numbers}


def batch_replies(agent: Any, observations: Any, count: int) -> Sequence[Any]:
    """Return the messages of an agent's `batch_act`, one for each row.

    Args:
        count: number of rows; further messages are dropped.
    """
    acts = agent.batch_act(observations)
    length = len(acts) if isinstance(acts, (list, tuple)) else None
    if length is None or length < count:
        returned = f"something of type {type(acts).__name__}" if length is None else f"{length} messages"
        raise ArgumentError(
            f"batch_act of agent {agent.getID()!r} ({type(agent).__name__}) returned {returned} for {count} rows; it "
            "must return a list with one message for each row, including rows whose observation has no text"
        )
    return acts if length == count else acts[:count]  # type: ignore[no-any-return]


def has_batch_act(agent: Any) -> bool:
    """Return True if an agent acts for all rows together."""
    return hasattr(agent, "batch_act") and bool(getattr(agent, "use_batch_act", True))


def observed_none_error(agent: Any, row: int) -> ArgumentError:
    """Return the error for a copy whose `observe` returned None."""
    return ArgumentError(
        f"observe of agent {agent.getID()!r} ({type(agent).__name__}) returned None in row {row}; agents should return "
        "their observation"
    )


_DICT = frozenset({dict})
_PLAIN = (DialogPartnerWorld, MultiAgentDialogWorld)
"""Worlds with fixed agents that speak to each other directly."""


class BatchWorld(WorldWrapper):
    """A batch of copies of a world, one for each row.

    One `parley` is one example for every row. The agents act in turn: by `batch_act` of the *original* agent if it is
    defined and the attribute ``use_batch_act`` is not False, else by `act` of each row's copy. The copies of every
    other agent then observe the messages of their rows; the results of `observe` are the input of `batch_act`.

    Args:
        opt: options; ``batchsize``: number of rows.

    Attributes:
        world: the original world.
        worlds: the rows; ``batchindex`` in the options of their agents is the number of the row.

    Raises:
        ArgumentError: the batch size is not an integer from 1, or an agent breaks the rules above.

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
        # looked up once, since it never changes: for a trivial agent this is half of the time
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
        """Return the messages of an agent for all rows.

        Args:
            batch_observation: results of `observe` of its copies.

        Raises:
            ArgumentError: the agent returned fewer messages than there are rows, or something else than messages.
        """
        agent = self.world.get_agents()[index]
        if has_batch_act(agent):
            acts = batch_replies(agent, batch_observation, len(self.worlds))
        else:
            acts = [copy.act() for copy in self._copies(index)]
        if set(map(type, acts)) != _DICT:
            for number, act in enumerate(acts):
                validate(act, agent, number)
        self._keep(index, acts)
        return acts

    def _keep(self, index: int, acts: Sequence[Any]) -> None:
        """Store the messages in their rows."""
        if self._columns is not None:
            for kept, act in zip(self._row_acts, acts):
                kept[index] = act
            return
        for row, act in zip(self.worlds, acts):
            row.get_acts()[index] = act
            if hasattr(row, "execute"):
                row.execute(row.get_agents()[index], act)

    def batch_observe(self, index: int, batch_actions: Sequence[Any], index_acting: int) -> list[Any] | None:
        """Let the copies of an agent observe the messages of another agent, row by row.

        Args:
            batch_actions: the messages, one for each row.
            index_acting: number of the acting agent.

        Returns:
            Results of `observe`; None for the acting agent, unless the world defines `observe`.

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
        """Let agents observe messages as their worlds show them, which may define an `observe`."""
        seen: list[Any] = []
        for number, (row, agent, act) in enumerate(zip(self.worlds, copies, batch_actions)):
            observe = getattr(row, "observe", None)
            if observe is None and is_own:
                return None
            shown = act if observe is None else observe(agent, act)
            observation = None if shown is None else agent.observe(shown)
            if shown is not None and observation is None:
                raise observed_none_error(agent, number)
            seen.append(observation)
        return None if is_own and not any(observation is not None for observation in seen) else seen

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
    """An observation of a row that has not been answered yet."""

    __slots__ = ("age", "observation", "row", "tokens")

    def __init__(self, row: int, observation: Any, tokens: int, age: int) -> None:
        self.row, self.observation, self.tokens, self.age = row, observation, tokens, age


class DynamicBatchWorld(WorldWrapper):
    """Copies of a world that are answered in batches up to a number of tokens.

    In every row a teacher asks, and the copy of the agent observes the question. Pending observations are sorted by
    length. One `parley` answers the batch that contains the oldest one, fits into the budget, and has the most tokens
    that are not padding; a question that is too long for the budget is a batch of its own. Replies come from
    `batch_act` of the original agent, or from `act` of the copies, as in `BatchWorld`.

    Args:
        opt: options; ``max_batch_tokens``: the budget: rows * (longest text + 1) in tokens, where a text has one more
            token than spaces; ``batchsize``: largest number of rows in a batch, if above 1; ``batch_buffer``: number
            of rows that a batch is chosen from (default 256, and no more than episodes).
        world: the original world, of a teacher and one other agent.

    Attributes:
        world: the original world.
        worlds: the rows.

    Raises:
        ArgumentError: an option is not an integer from 1, there are not two agents, or they break the rules.

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
        # rows ask for single examples, in the order of their episodes
        self.worlds = [row_copy(world, index, batch_sort=False) for index in range(rows)]
        self._waiting: list[_PendingObservation] = []
        self._idle = list(range(rows))
        self._answered: list[int] = []
        self._asked = self._examples_seen = 0

    def parley(self) -> None:
        self._ask_idle_rows()
        batch = self._take_batch()
        self._answered = [pending.row for pending in batch]
        if batch:
            self._answer(batch, self._replies(batch))
        self._examples_seen += len(batch)
        self.update_counters()

    def _ask_idle_rows(self) -> None:
        """Let the teachers of idle rows ask."""
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
        self._waiting.sort(key=lambda pending: pending.tokens)

    def _take_batch(self) -> list[_PendingObservation]:
        """Remove the next batch from the pending observations, and return it."""
        waiting = self._waiting
        if not waiting:
            return []
        oldest = min(range(len(waiting)), key=lambda index: waiting[index].age)
        lengths = [pending.tokens for pending in waiting]
        first, end = best_window(lengths, oldest, self._budget, self._most)
        batch = waiting[first:end]
        del waiting[first:end]
        return batch

    def _replies(self, batch: Sequence[_PendingObservation]) -> Sequence[Any]:
        agent = self.world.get_agents()[1]
        if not has_batch_act(agent):
            return [self.worlds[pending.row].get_agents()[1].act() for pending in batch]
        return batch_replies(agent, [pending.observation for pending in batch], len(batch))

    def _answer(self, batch: Sequence[_PendingObservation], replies: Sequence[Any]) -> None:
        """Let the teachers observe the replies."""
        agent = self.world.get_agents()[1]
        for pending, reply in zip(batch, replies):
            row = self.worlds[pending.row]
            row.get_acts()[1] = validate(reply, agent, pending.row)
            try:
                row.get_agents()[0].observe(reply)
            except TypeError:
                check_texts([reply], agent)
                raise
            self._idle.append(pending.row)

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


def best_window(lengths: Sequence[int], item: int, budget: int, most: int) -> tuple[int, int]:
    """Return start and end of the slice of sorted lengths that makes the fullest batch with a given item.

    Args:
        item: index of the item that the batch contains, even if it alone is too long.
        budget: largest allowed value of (longest + 1) * rows.

    Example:
        >>> best_window([1, 1, 2, 5, 30], 2, 12, 100)
        (2, 4)
    """
    sums = [0, *itertools.accumulate(lengths)]
    best, window = -1, (item, item + 1)
    for end in range(item + 1, len(lengths) + 1):
        rows = min(budget // (lengths[end - 1] + 1), most)
        first = max(end - rows, 0)
        if first > item:
            break
        full = sums[end] - sums[first]
        if full > best:
            best, window = full, (first, end)
    return window


def _tokens(seen: Any, act: Mapping[str, Any]) -> int:
    text = seen.get("text") if isinstance(seen, Mapping) else None
    text = act.get("text") if text is None else text
    return text.count(" ") + 1 if isinstance(text, str) else 1
